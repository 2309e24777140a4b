"""The commands of a node: run the agent, show its status, and run the proxy in front of the container runtime."""
