"""The closed loop in simulated time: the effect of each way to share nodes with batch work."""
