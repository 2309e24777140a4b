"""Which autoscaler removes a node once it is empty, and which objects and settings prevent that."""
