"""`cotenant status`: what runs, what is lent, at risk, waiting, when the next peak is, what was saved."""
