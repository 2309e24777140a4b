"""What the node agent is told and what it reports: node policy, enforcement and its tables. Pure."""
