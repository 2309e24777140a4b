"""Guardrails of what a node or a namespace can hold: capacity, quotas, GPUs. Pure."""
