"""Usage of pods and nodes: its sources (Prometheus or synthetic), and portraits, its summary of fixed size."""
