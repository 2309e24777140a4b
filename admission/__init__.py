"""Admission webhooks: colocation profiles, pod and quota rules.

The room is empty so far; docs/house.md says what will be here.
"""
