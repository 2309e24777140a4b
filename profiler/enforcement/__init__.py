"""What node agents enforce, read from their metrics and kept in the store."""
