"""Rounds of the autopilot at the edges: what is read, what the ledger keeps, how an act is carried out."""
