"""Benchmarks of the scheduler extender."""
