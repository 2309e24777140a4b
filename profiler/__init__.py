"""Usage of pods and nodes: where history comes from (Prometheus or synthetic) and what it condenses to (portraits)."""
