"""What an analysis says of nodes: reclaimable capacity, calibrated peaks, their history, and explanations."""
