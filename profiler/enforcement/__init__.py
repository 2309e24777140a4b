"""Actions of node agents, read from their Events and metrics and kept in the store."""
