"""Quotas and gangs: who has what, who waits, and why."""
