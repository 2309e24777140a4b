"""Commands that install the product in a cluster, try it, and run its services."""
