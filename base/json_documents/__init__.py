"""JSON documents: checked against a struct, and compared with one another. Pure."""
