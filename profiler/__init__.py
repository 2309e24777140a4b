"""Usage of pods and nodes: its sources (Prometheus or synthetic), and portraits as its fixed-size summary."""
