"""Simulated nodes, second by second: the node agent's own strategies on simulated cgroups."""
