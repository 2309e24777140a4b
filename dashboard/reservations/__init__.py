"""The reservations pages: board, details of a plan, forms, and the actions of a plan's buttons."""
