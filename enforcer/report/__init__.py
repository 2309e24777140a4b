"""What the agent reports: status, action log, Events, NodeMetric, recordings."""
