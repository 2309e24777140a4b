"""What touches the node: writes and their read-back, notes of original values, evictions, kernel settings."""
