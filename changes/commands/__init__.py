"""`cotenant recs` and `cotenant audit`: recommendations accepted, changes verified, the ledger."""
