"""`cotenant serve extender` and `explain pod`."""
