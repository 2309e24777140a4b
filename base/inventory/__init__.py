"""What follows from an inventory: the templates of pods, and of which workloads a part alone is known. Pure."""
