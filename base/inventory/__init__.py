"""Facts derived from an inventory: the templates of pods, and the workloads that are only partly known. Pure."""
