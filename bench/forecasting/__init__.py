"""Benchmarks of forecasts, node and workload peaks, on real traces."""
