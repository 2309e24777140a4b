"""How best effort gives way to everybody else's CPU: how much it may use, and where."""
