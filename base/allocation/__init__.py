"""The assignment of a node's hardware (CPUs, shares of devices) to pods, given what other pods already have. Pure."""
