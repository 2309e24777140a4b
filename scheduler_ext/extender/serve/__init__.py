"""The extender's process: server, certificates, metrics, the scheduler's wire format."""
