"""Recommendations from usage: the reclaimable capacity of each node, and requests and limits of each container."""
