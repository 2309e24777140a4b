"""The decisions of a change: guardrails, methods, what is written, when it is verified or rolled back. Pure."""
