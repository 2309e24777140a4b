"""`cotenant get quotas`, `get waiting`, `get gangs` and `explain queue`."""
