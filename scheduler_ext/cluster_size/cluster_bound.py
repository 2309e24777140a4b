"""The fewest nodes that could hold a cluster's pods, by linear programming: no placing can do with fewer. Pure.

Nodes that are alike are one kind, pods that demand alike are one group. A kind may be kept in part, a group may be cut
in any parts over the kinds that its selector, taints and volumes permit, and rules between pods do not count: the
program of `linear_program` in which each node costs 1 and those that cannot leave are kept.

Every real placing obeys these too, so their least sum, rounded up, is a bound of every one. Pods that no node could
hold do not count, nor do those that the answer does not count.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from cotenant.scheduler_ext.cluster_size.constraints import CompiledCluster, compile_cluster
from cotenant.scheduler_ext.cluster_size.decide import find_stays
from cotenant.scheduler_ext.cluster_size.linear_program import NodeKind, solve_program
from cotenant.scheduler_ext.cluster_size.model import SizedCluster

Ints = npt.NDArray[np.int64]
ROUNDING: Final = 1e-6
"""What a solver's sum may be above a whole number that it means."""


@dataclass(frozen=True, slots=True)
class Bound:
    """nodes: no placing can do with fewer. reason: why there is no bound; "" where there is one."""

    nodes: int = 0
    reason: str = ""


def fewest_nodes(state: SizedCluster, uncounted: Collection[str] = ()) -> Bound:
    """The bound of a state, without any reserve; with its reason where there is none.

    uncounted: pods, NAMESPACE/NAME, that wait and find no place today either (`ClusterSize.waiting`).
    """
    counted = tuple(pod for pod in state.pods if pod.address not in uncounted)
    cluster = compile_cluster(replace(state, pods=counted))
    if not cluster.nodes:
        return Bound(reason="the cluster has no nodes")
    kinds, counts, kept = _kinds(cluster)
    groups = demand_groups(cluster, (n for n, pod in enumerate(cluster.pods) if not pod.goes_with_node))
    pairs = [
        (group, kind)
        for group, (mask, shape, _) in enumerate(groups)
        for kind, (node, free) in enumerate(kinds)
        if cluster.masks[mask][node] and (free >= cluster.demand[shape]).all()
    ]
    scale = np.maximum(cluster.allocatable.max(axis=1), 1).astype(float)
    demands = [(cluster.demand[number], count) for _, number, count in groups]
    program = [NodeKind(free, 1.0, least, most) for (_, free), least, most in zip(kinds, kept, counts, strict=True)]
    solved = solve_program(program, demands, pairs, scale)
    return Bound(reason=solved.reason) if solved.reason else Bound(max(1, math.ceil(solved.value - ROUNDING)))


def _kinds(cluster: CompiledCluster) -> tuple[list[tuple[int, Ints]], list[int], list[int]]:
    """(a node, what pods may take of it) of each kind, how many nodes it has, and how many of them cannot leave.

    A node's kind is its amounts without DaemonSets' and static pods', and which masks have it.
    """
    free = free_beside_daemons(cluster)
    masks = np.array(cluster.masks, dtype=np.bool_).reshape(len(cluster.masks), len(cluster.nodes))
    stays = find_stays(cluster)
    numbers: dict[bytes, int] = {}
    kinds: list[tuple[int, Ints]] = []
    counts, kept = list[int](), list[int]()
    for node in range(len(cluster.nodes)):
        key = free[:, node].tobytes() + masks[:, node].tobytes()
        number = numbers.setdefault(key, len(kinds))
        if number == len(kinds):
            kinds.append((node, free[:, node]))
            counts.append(0)
            kept.append(0)
        counts[number] += 1
        kept[number] += node in stays
    return kinds, counts, kept


def free_beside_daemons(cluster: CompiledCluster) -> Ints:
    """Return what each node has beside its DaemonSets' and static pods, (resources, nodes), never below 0."""
    free = cluster.allocatable.copy()
    for pod, node in enumerate(cluster.node_of.tolist()):
        if node >= 0 and cluster.pods[pod].goes_with_node:
            free[:, node] -= cluster.demand[cluster.class_of[pod]]
    return np.maximum(free, 0)


def demand_groups(cluster: CompiledCluster, pods: Iterable[int]) -> list[tuple[int, int, int]]:
    """(mask, a class with the demand, pods) of each group of these pods: of one demand, for the same nodes."""
    counts: dict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0])
    for pod in pods:
        number = int(cluster.class_of[pod])
        class_ = cluster.classes[number]
        entry = counts[class_.mask, class_.shape]
        entry[0], entry[1] = number, entry[1] + 1
    return [(mask, number, count) for (mask, _), (number, count) in counts.items()]
