"""The node enforcer: observe, decide, write cgroups. The room is empty so far; docs/house.md says what will be here."""
