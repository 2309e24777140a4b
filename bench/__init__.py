"""Benchmarks: every number that README or docs quote comes from here, one command each."""
