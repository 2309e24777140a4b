"""Scores of kube-scheduler's default profile (1.35) for the nodes that a pod fits on. Pure.

    LeastAllocated + BalancedAllocation + 2 x PodTopologySpread, each a whole number from 0 to 100

PodTopologySpread uses the default constraints, over hostnames and zones: pods whose controller has a selector prefer
nodes and zones with few of its pods, unless the pod has constraints of its own. It weighs more than even load. Not
scored: preferred affinity, a pod's own ScheduleAnyway, PreferNoSchedule, images on the node.

Source: plugins noderesources and podtopologyspread, schedule_one.go.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from cotenant.scheduler_ext.arrays import Floats, Ints

COUNTED_KINDS: Final = frozenset({"ReplicaSet", "StatefulSet", "ReplicationController"})
"""Kinds of controllers whose selector is used to count pods."""
FEWEST_SCORED: Final = 100  # nodes that fit, of which a scheduler scores all
ROUNDING: Final = 1e-9  # what a share may be below the whole per cent that it is
HOST_SKEW, ZONE_SKEW = 3, 5  # maxSkew of the default constraints


def most_scored(nodes: int) -> int:
    """Return the number of fitting nodes after which kube-scheduler stops searching a cluster of `nodes` nodes."""
    if nodes < FEWEST_SCORED:
        return nodes
    return max(FEWEST_SCORED, nodes * max(50 - nodes // 125, 5) // 100)


def resource_scores(free: Floats) -> Ints:
    """Return LeastAllocated + BalancedAllocation, (nodes,); `free` are free shares of CPU and memory, (2, nodes)."""
    per_cent = 100 * free + ROUNDING
    rounded = per_cent.astype(np.int64)
    balanced = (100 + ROUNDING - np.abs(per_cent[0] - per_cent[1]) / 2).astype(np.int64)
    return np.asarray((rounded[0] + rounded[1]) // 2 + balanced)


def spread_scores(on_node: Ints, in_zone: Ints, zone_of: Ints) -> Ints:
    """Return 2 x PodTopologySpread, 0 to 200, of each node, (nodes,), for a pod of one controller.

    `on_node` and `in_zone` are the numbers of this controller's pods on each node and in each zone; the last number of
    `in_zone` is that of nodes without a zone. `zone_of` is the index of each node's zone, -1 without one.
    """
    here = np.zeros(len(in_zone), dtype=np.bool_)
    here[zone_of] = True
    by_zone = in_zone * math.log(np.count_nonzero(here) + 2) + (ZONE_SKEW - 1)
    by_zone[-1] = 0
    by_zone += HOST_SKEW - 1
    raw = (on_node * math.log(len(on_node) + 2) + by_zone[zone_of] + 0.5).astype(np.int64)
    most = int(raw.max())
    return np.asarray(100 * (most + int(raw.min()) - raw) // most * 2)
