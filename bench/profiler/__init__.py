"""Benchmarks of reading usage history from Prometheus."""
