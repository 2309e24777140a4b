"""`cotenant status`: what runs, what is lent, at risk and waiting, the next peak, and what was saved."""
