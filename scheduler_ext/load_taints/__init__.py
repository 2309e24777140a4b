"""Taints that keep schedulers without the extender away from busy nodes.

NodeSnapshot -> `decide.node_loads` -> NodeLoads -> `decide.decide` -> LoadTaintPlan: the effect that each node's taint
should have. The manager's feature `load-taints` writes the difference.
"""
