"""Data types of queues: pods that wait for their quota or gang, gangs, and report rows."""
