"""The reservations pages: board, detail, forms, what a plan's buttons do."""
