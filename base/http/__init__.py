"""The HTTP server and client of small processes, their health endpoints, and outgoing webhooks."""
