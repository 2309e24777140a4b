"""Which nodes a cluster could do without: decided here, proved by placing their pods again, written to nobody."""
