"""Taints that keep a scheduler without extender away from busy nodes.

NodeSnapshot -> `observe.node_loads` -> NodeLoads -> `decide.decide` -> LoadTaintPlan: the effect that each node's taint
should have. The manager's feature `load-taints` writes the difference.
"""
