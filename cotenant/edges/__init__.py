"""The outside world that more than one room meets: Kubernetes, the store, the clock, telemetry. Files here are EDGES."""
