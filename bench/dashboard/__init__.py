"""Benchmarks of the dashboard and of the demo."""
