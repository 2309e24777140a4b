"""What the webhooks check of quotas and gangs: gates of new pods, and the rules of the quota tree. Pure."""
