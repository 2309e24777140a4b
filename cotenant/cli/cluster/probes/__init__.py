"""Checks of `cotenant doctor`: one module per subject, each with a function that yields findings.

`machine`: Python, packages, settings; `storage`: the store and its history; `metrics`: Prometheus; `cluster`: the
Kubernetes API; `reclaimed`: namespaces whose bounds refuse the pods of a profile.
"""
