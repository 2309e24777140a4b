"""The results of an analysis about nodes: reclaimable capacity, calibrated peaks, history, explanations."""
