"""The web process: connections, limits of requests, faults, health and metrics."""
