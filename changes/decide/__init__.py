"""Decisions about changes: guardrails, methods, what is written, when a change is verified or rolled back. Pure."""
