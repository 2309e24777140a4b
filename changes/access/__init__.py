"""Access to the cluster with the rights of the person who asks, and which features these rights allow."""
