"""Reservation plans as people deal with them: listed, previewed, made, approved and rejected."""
