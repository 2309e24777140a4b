"""Commands about reservation plans and Reservations."""
