"""Eviction: which pods must leave a node whose CPU or memory is too full, and in which order. Pure."""
