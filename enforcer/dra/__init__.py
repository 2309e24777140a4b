"""Devices and whole cores by Kubernetes' dynamic resource allocation: what is offered, and claims made ready for pods.

The cluster's own scheduler allocates; this prepares. `cotenant.enforcer.runtime.dra_service` carries it to the kubelet.
"""
