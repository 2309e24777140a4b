"""The node agent: observe, decide, write cgroups."""
