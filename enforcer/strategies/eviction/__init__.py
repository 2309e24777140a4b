"""Eviction: which pods leave a node that is too full, by CPU, by memory, and in which order. Pure."""
