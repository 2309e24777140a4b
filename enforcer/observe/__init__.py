"""One consistent reading of the node a tick: cgroup files, proc and sys."""
