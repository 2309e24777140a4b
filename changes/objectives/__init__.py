"""Metrics of services that can verify their changes: conventions, what Prometheus has, and how it is used."""
