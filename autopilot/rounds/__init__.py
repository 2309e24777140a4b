"""Rounds of the autopilot: each reads the cluster and the ledger, decides, and makes the decided changes."""
