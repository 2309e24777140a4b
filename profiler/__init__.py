"""Usage of pods and nodes: its sources (Prometheus, recorder, synthetic), and portraits, fixed-size usage summaries."""
