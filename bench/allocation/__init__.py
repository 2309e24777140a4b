"""Benchmarks of the allocation of CPUs and devices."""
