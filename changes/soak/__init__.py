"""After an accepted change: what is due, and whether it did harm."""
