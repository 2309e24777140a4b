"""Managed fields: which manager owns which field of an object, as server-side apply merges and records it. Pure."""
