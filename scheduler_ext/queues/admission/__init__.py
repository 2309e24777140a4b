"""Checks of the webhooks for quotas and gangs: gates of new pods, and rules of the quota tree. Pure."""
