"""Access to the outside that several packages share: Kubernetes, store, clock, telemetry. Files here are EDGES."""
