"""Which piece of a node's hardware a pod gets: CPUs, shares of devices; pure functions over what is taken."""
