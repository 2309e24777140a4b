"""Peaks, valleys and quantiles of the next 24 hours, with the error they were measured to have."""
