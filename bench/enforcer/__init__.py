"""Benchmarks of the node agent."""
