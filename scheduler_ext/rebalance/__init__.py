"""Rebalance: which pods leave overloaded nodes, where each could go, and why others stay (Koordinator's LowNodeLoad).

    cluster reading -> node loads, pods, budgets -> classification -> round -> plan

Everything but `cluster_reading` is pure. Nothing here writes to a cluster.
"""
