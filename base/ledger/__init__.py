"""The audit log: an append-only file or bucket whose rows are chained by hashes."""
