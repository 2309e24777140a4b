"""Benchmarks of the autopilot."""
