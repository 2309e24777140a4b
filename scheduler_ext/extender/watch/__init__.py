"""What the extender knows of the cluster: watched in a process of its own, handed over in frames."""
