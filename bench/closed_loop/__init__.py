"""Benchmarks of the closed loop: simulated, on a live cluster and on a real node."""
