"""The manager: controllers that publish what the rooms decide, and the pipeline on intervals, under one Lease."""
