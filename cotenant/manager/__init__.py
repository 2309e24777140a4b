"""The manager: controllers that publish what the packages decide, and the scheduled pipeline, under one Lease."""
