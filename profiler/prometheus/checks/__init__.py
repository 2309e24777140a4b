"""Checks by which a scan detects wrong usage and apparent gaps, from other data of the server than usage."""
