"""One module a feature: what the manager tells Prometheus of it."""
