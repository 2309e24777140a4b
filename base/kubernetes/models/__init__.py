"""Kubernetes objects as the API writes them: one family of structs per kind; a consumer decodes a projection of it.

What a projection does not name never becomes a Python object. A projection inherits from the kind's smallest struct,
so that a field has one name, type and default wherever it is read; a house test refuses a second family.
"""
