"""Commands of a node: the agent, what it did, and the proxy before the container runtime."""
