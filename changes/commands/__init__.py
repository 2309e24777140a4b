"""`cotenant recs` and `cotenant audit`: accept recommendations, verify changes, check and export the ledger."""
