"""Benchmarks of rebalancing."""
