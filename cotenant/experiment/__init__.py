"""The closed loop in simulated time: what a cluster does under each way to share its nodes with batch work."""
