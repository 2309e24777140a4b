"""Settings of the node agent, of its hooks into the container runtime, and of what it does to best-effort pods."""
