"""What takes a node away once it is empty, and which objects and settings keep it from doing so."""
