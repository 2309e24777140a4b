"""The HTTP server and client of small processes, their health pages, and outgoing webhooks."""
