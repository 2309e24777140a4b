"""The highest usage of a node in the next 24 hours, at a risk."""
