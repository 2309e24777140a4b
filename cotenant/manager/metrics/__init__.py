"""The manager's metrics, one module per feature."""
