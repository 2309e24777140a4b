"""The commands `cotenant serve webhook` and `cotenant config profiles`."""
