"""`cotenant simulate`, and its report."""
