"""Vocabulary of changes: what people may ask for, what became of it, and who they are."""
