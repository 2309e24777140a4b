"""Scheduling: the extender that kube-scheduler calls, and the controller that reserves capacity for Reservations."""
