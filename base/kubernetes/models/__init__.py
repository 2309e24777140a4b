"""Kubernetes objects as the API writes them: one family of structs per kind; each consumer decodes one of its structs.

Fields that a struct does not name never become Python objects. Every struct of a kind (a projection) inherits from its
smallest one, so that a field has one name, type and default everywhere; a house test refuses a second family.
"""
