"""Benchmarks of quotas and gangs."""
