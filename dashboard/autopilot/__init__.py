"""What the page Autopilot is made of: the switch and its confirm step, and the editor of policies."""
