"""Data types of Reservations and reservation plans."""
