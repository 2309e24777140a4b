"""Vocabulary of Reservations and reservation plans."""
