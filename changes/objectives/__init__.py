"""Measures of services that could guard their changes: conventions, what was found in Prometheus, and its use."""
