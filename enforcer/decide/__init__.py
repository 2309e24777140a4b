"""The decision of one tick: strategies run in order, their wants are merged, and writes are derived. Pure."""
