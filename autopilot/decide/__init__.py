"""Pure decisions of the autopilot: what a policy allows, which workload changes next, and when the autopilot stops."""
