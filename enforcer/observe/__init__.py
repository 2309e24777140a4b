"""One consistent reading of the node per tick, from cgroup files, proc and sysfs."""
