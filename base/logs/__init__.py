"""Log lines and metrics of all processes."""
