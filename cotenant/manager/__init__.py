"""The manager: controllers that publish what the packages decide, and the pipeline on intervals, under one Lease."""
