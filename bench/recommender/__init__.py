"""Benchmarks of recommendations and of the reclaim formulas."""
