"""The outside world that more than one room meets: Kubernetes, store, clock, telemetry. Files here are EDGES."""
