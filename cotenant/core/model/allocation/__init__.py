"""Which piece of a node's hardware a pod gets: CPUs by number; pure functions over a topology and what is taken."""
