"""What to do about it: reclaimable capacity per node, requests and limits per container."""
