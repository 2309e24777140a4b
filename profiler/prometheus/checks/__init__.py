"""Data of the server beside usage, from which a scan detects wrong usage and gaps that are none."""
