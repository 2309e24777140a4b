"""Benchmarks of Reservations and plans."""
