"""Suppression: how much CPU best effort may use beside all other pods, and on which CPUs."""
