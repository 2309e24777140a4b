"""Scheduling: the extender that kube-scheduler asks, and the controller that holds room for Reservations."""
