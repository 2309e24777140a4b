"""Data types of changes: what people request, what became of it, and who they are."""
