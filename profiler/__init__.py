"""Usage of pods and nodes: where history comes from (Prometheus or the synthetic cluster) and what it condenses to (portraits)."""
