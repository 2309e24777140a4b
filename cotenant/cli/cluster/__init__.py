"""Commands that install cotenant in a cluster, check what it needs, and run its services."""
