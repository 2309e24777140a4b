"""Rebalancing: which pods leave overloaded nodes, where they fit, and why others stay (Koordinator's LowNodeLoad).

    cluster reading -> node loads, pods, budgets -> classification -> round -> plan

Everything except `cluster_reading` is pure. Nothing here writes to a cluster.
"""
