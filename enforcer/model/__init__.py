"""Inputs and reports of the node agent: the node's policy, and tables of the agents' actions. Pure."""
