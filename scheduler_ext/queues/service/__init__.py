"""EDGE: reads the queues of a cluster for pages and REST."""
