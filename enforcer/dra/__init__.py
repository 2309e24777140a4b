"""Devices and whole cores for Kubernetes' dynamic resource allocation: which are offered, and how claims are prepared.

The cluster's scheduler allocates claims; this package prepares them. `runtime.dra_service` serves the kubelet's calls.
"""
