"""Elastic quotas and gangs on a stock kube-scheduler, by scheduling gates and reserved capacity. Pure."""
