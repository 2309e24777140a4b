"""Rounds of the autopilot: reading the cluster and the ledger, and carrying out the decided changes."""
