"""Benchmarks of what no feature owns: the test cluster, a fresh clone, the whole analysis."""
