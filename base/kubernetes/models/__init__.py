"""Kubernetes objects as the API writes them: related structs for each kind, of which each consumer decodes one.

Fields that a struct does not name never become Python objects. Every struct of a kind (a projection) inherits from its
smallest one, so that a field has one name, type and default everywhere; a house test refuses a second hierarchy.
"""
