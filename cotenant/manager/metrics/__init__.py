"""One module per feature: what the manager tells Prometheus of it."""
