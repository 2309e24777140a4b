"""Checks of the server's data, apart from usage, by which a scan detects wrong usage and apparent gaps."""
