"""Access to the cluster with the rights of the calling person, and the features that these rights allow."""
