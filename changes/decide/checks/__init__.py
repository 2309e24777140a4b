"""Guardrails about capacity: limits of nodes and namespaces, quotas, GPUs. Pure."""
