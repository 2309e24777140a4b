"""The fewest nodes that could hold a cluster's pods, by linear programming: no placing can do with fewer. Pure.

Nodes that are alike are one kind, pods that demand alike are one group. A kind may be kept in part, a group may be cut
in any parts over the kinds that its selector, taints and volumes permit, and rules between pods do not count:

    minimise   sum of kept
    subject to for each kind and resource: what is placed on it <= kept * (allocatable - what DaemonSets take)
               for each group: all of it is placed
               nodes that cannot leave are kept

Every real placing obeys these too, so their least sum, rounded up, is a bound of every one. Pods that no node could
hold do not count, nor do those that the answer does not count.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog
from scipy.sparse import coo_array

from cotenant.scheduler_ext.cluster_size.constraints import CompiledCluster, compile_cluster
from cotenant.scheduler_ext.cluster_size.decide import find_stays
from cotenant.scheduler_ext.cluster_size.model import ClusterState

Ints = npt.NDArray[np.int64]
ROUNDING: Final = 1e-6
"""What a solver's sum may be above a whole number that it means."""
INFEASIBLE: Final = 2
"""The status of SciPy's `linprog` that no values obey the constraints."""
MOST_UNKNOWNS: Final = 200_000
"""Beyond them the program takes too long: there is no bound then."""


@dataclass(frozen=True, slots=True)
class Bound:
    """nodes: no placing can do with fewer. reason: why there is no bound; "" where there is one."""

    nodes: int = 0
    reason: str = ""


def fewest_nodes(state: ClusterState, uncounted: Collection[str] = ()) -> Bound:
    """The bound of a state, without any reserve; with its reason where there is none.

    uncounted: pods, NAMESPACE/NAME, that wait and find no place today either (`ClusterSize.waiting`).
    """
    counted = tuple(pod for pod in state.pods if pod.address not in uncounted)
    cluster = compile_cluster(replace(state, pods=counted))
    if not cluster.nodes:
        return Bound(reason="the cluster has no nodes")
    kinds, counts, kept = _kinds(cluster)
    groups = _groups(cluster)
    pairs = [
        (group, kind)
        for group, (mask, shape, _) in enumerate(groups)
        for kind, (node, free) in enumerate(kinds)
        if cluster.masks[mask][node] and (free >= cluster.demand[shape]).all()
    ]
    if len(pairs) + len(kinds) > MOST_UNKNOWNS:
        return Bound(reason=f"the linear program would have {len(pairs):,} unknowns")
    return _solve(cluster, kinds, counts, kept, groups, pairs)


def _kinds(cluster: CompiledCluster) -> tuple[list[tuple[int, Ints]], list[int], list[int]]:
    """(a node, what pods may take of it) of each kind, how many nodes it has, and how many of them cannot leave.

    A node's kind is its amounts without DaemonSets' and static pods', and which masks have it.
    """
    free = cluster.allocatable.copy()
    for pod, node in enumerate(cluster.node_of.tolist()):
        if node >= 0 and cluster.pods[pod].goes_with_node:
            free[:, node] -= cluster.demand[cluster.class_of[pod]]
    masks = np.array(cluster.masks, dtype=np.bool_).reshape(len(cluster.masks), len(cluster.nodes))
    stays = find_stays(cluster)
    numbers: dict[bytes, int] = {}
    kinds: list[tuple[int, Ints]] = []
    counts, kept = list[int](), list[int]()
    for node in range(len(cluster.nodes)):
        key = free[:, node].tobytes() + masks[:, node].tobytes()
        number = numbers.setdefault(key, len(kinds))
        if number == len(kinds):
            kinds.append((node, np.maximum(free[:, node], 0)))
            counts.append(0)
            kept.append(0)
        counts[number] += 1
        kept[number] += node in stays
    return kinds, counts, kept


def _groups(cluster: CompiledCluster) -> list[tuple[int, int, int]]:
    """(mask, a class with the demand, pods) of each group of pods that need a place."""
    counts: dict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0])
    for pod, number in enumerate(cluster.class_of.tolist()):
        if not cluster.pods[pod].goes_with_node:
            class_ = cluster.classes[number]
            entry = counts[class_.mask, class_.shape]
            entry[0], entry[1] = number, entry[1] + 1
    return [(mask, number, count) for (mask, _), (number, count) in counts.items()]


def _solve(
    cluster: CompiledCluster,
    kinds: list[tuple[int, Ints]],
    counts: list[int],
    kept: list[int],
    groups: list[tuple[int, int, int]],
    pairs: list[tuple[int, int]],
) -> Bound:
    """Unknowns: nodes kept of each kind, then pods of each (group, kind)."""
    resources, first = len(cluster.resources), len(kinds)
    rows, columns, values = list[int](), list[int](), list[float]()
    scale = np.maximum(cluster.allocatable.max(axis=1), 1).astype(float)
    for kind, (_, free) in enumerate(kinds):
        for number, amount in enumerate(free.tolist()):
            rows.append(kind * resources + number)
            columns.append(kind)
            values.append(-amount / scale[number])
    for unknown, (group, kind) in enumerate(pairs, first):
        demand = cluster.demand[groups[group][1]]
        for number in np.flatnonzero(demand).tolist():
            rows.append(kind * resources + number)
            columns.append(unknown)
            values.append(demand[number] / scale[number])
    shape = (len(kinds) * resources, first + len(pairs))
    placed = sorted({group for group, _ in pairs})
    place_of = {group: row for row, group in enumerate(placed)}
    whole = coo_array(
        (np.ones(len(pairs)), ([place_of[group] for group, _ in pairs], range(first, first + len(pairs)))),
        shape=(len(placed), shape[1]),
    )
    found = linprog(
        np.concatenate([np.ones(first), np.zeros(len(pairs))]),
        A_ub=coo_array((values, (rows, columns)), shape=shape).tocsr(),
        b_ub=np.zeros(shape[0]),
        A_eq=whole.tocsr() if placed else None,
        b_eq=[groups[group][2] for group in placed] if placed else None,
        bounds=[*zip(kept, counts, strict=True), *((0, None) for _ in pairs)],
        method="highs",
    )
    if found.status == INFEASIBLE:
        return Bound(reason="the pods request more than the nodes have now")
    if found.status != 0:
        return Bound(reason=f"the linear program has no answer: {found.message}")
    return Bound(nodes=max(1, math.ceil(found.fun - ROUNDING)))
