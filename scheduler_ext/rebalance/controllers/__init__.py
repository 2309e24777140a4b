"""The manager's features of rebalancing: rounds of the descheduler, and migration jobs."""
