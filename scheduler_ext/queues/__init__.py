"""Queues on a stock kube-scheduler: elastic quota and gangs, by scheduling gates and held capacity. Pure."""
