"""What follows an accepted change: steps that are due, and whether it did harm."""
