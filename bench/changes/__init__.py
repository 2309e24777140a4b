"""Benchmarks of accepted changes."""
