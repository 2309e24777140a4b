"""Quantiles, peaks and valleys of the next 24 hours, each with its back-tested error."""
