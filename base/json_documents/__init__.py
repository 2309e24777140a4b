"""JSON documents: their validation against a struct, and their comparison. Pure."""
