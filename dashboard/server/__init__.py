"""The web process: connections, request limits, errors, health and metrics."""
