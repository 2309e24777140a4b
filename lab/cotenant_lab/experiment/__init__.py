"""Synthetic and recorded clusters (worlds) for the product's experiment, and their comparison at equal safety."""
