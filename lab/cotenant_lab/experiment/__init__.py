"""Synthetic and recorded worlds for the product's experiment, and what comes of it at equal safety."""
