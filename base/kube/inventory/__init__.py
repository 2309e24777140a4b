"""EDGE: pods of the API server as the inventory needs them."""
