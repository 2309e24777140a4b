"""The commands `cotenant dashboard` and `cotenant serve mcp`."""
