"""Days with services' peaks, with and without forecast-driven reservations, in simulated time."""
