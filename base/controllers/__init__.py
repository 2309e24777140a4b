"""The framework of the manager's controllers: contract, loop, sender, clocks, status."""
