"""What controllers decide: from objects and results to writes. Pure."""
