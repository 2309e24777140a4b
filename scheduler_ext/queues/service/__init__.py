"""EDGE: the queues of a cluster as they are read, and the service that pages and REST ask."""
