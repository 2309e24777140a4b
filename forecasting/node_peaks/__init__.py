"""The highest usage of a node in the next 24 hours, which is exceeded only with a given risk."""
