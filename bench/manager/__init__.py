"""Benchmarks of the manager on a real API server, and of the store that it shares."""
