"""The decisions of the manager's controllers: which objects to write, given existing objects and results. Pure."""
