"""Pure decisions of the autopilot: what a policy allows, who is next, when everything stops."""
