"""What the agent says: status, action log, Events, NodeMetric, recordings."""
