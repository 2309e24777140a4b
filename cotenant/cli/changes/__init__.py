"""Commands that change a cluster on a person's word, and the ledger of it: `recs`, `audit`."""
