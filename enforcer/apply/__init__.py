"""The modules that change the node: cgroup writes, the journal of original values, evictions, kernel settings."""
