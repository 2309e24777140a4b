"""A lower bound of the number of nodes that can hold a cluster's pods, by linear programming. Pure.

Equal nodes are one kind, pods with equal demands are one group. The program may keep a fraction of a kind's nodes and
split a group over all kinds that its selector, taints and volumes allow; rules between pods do not count. Each node
costs 1, and nodes that cannot leave are kept:

  minimise   sum of costs * kept
  subject to for each kind and resource: requests placed on the kind <= kept * what pods may use of each node
             for each group: all of its pods are placed
             least <= kept <= most, for each kind

Every real placement satisfies these constraints too, so the minimum, rounded up, is a lower bound. Pods that no node
could hold are ignored, and so are the pods in `uncounted`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

from cotenant.scheduler_ext.arrays import Floats, Ints
from cotenant.scheduler_ext.cluster_size.constraints import CompiledCluster, compile_cluster
from cotenant.scheduler_ext.cluster_size.decide import find_stays
from cotenant.scheduler_ext.cluster_size.model import SizedCluster

INFEASIBLE: Final = 2  # the status of SciPy's `linprog` that no values obey the constraints
MOST_UNKNOWNS: Final = 200_000  # beyond them the program takes too long: there is no bound then
TOO_LITTLE: Final = "the pods request more than the present nodes have"
ROUNDING: Final = 1e-6  # what a solver's sum may be above a whole number that it means


@dataclass(frozen=True, slots=True)
class Bound:
    """A lower bound of the number of nodes that the pods need; `reason` says why there is none, "" if there is one."""

    nodes: int = 0
    reason: str = ""


def fewest_nodes(state: SizedCluster, uncounted: Collection[str] = ()) -> Bound:
    """Return the lower bound of the number of nodes, without any reserve, or the reason why there is none.

    `uncounted` are waiting pods (NAMESPACE/NAME) to ignore, because they fit on no node today (`ClusterSize.waiting`).
    """
    counted = tuple(pod for pod in state.pods if pod.address not in uncounted)
    cluster = compile_cluster(replace(state, pods=counted))
    if not cluster.nodes:
        return Bound(reason="the cluster has no nodes")
    # A node's kind is its amounts without DaemonSets' and static pods', and which masks have it.
    beside = free_beside_daemons(cluster)
    masks = np.array(cluster.masks, dtype=np.bool_).reshape(len(cluster.masks), len(cluster.nodes))
    stays = find_stays(cluster)
    numbers: dict[bytes, int] = {}
    kinds: list[tuple[int, Ints]] = []  # a node of each kind, and what pods may take of it
    counts, fixed = list[int](), list[int]()  # nodes of each kind, and those that cannot leave
    for node in range(len(cluster.nodes)):
        key = beside[:, node].tobytes() + masks[:, node].tobytes()
        number = numbers.setdefault(key, len(kinds))
        if number == len(kinds):
            kinds.append((node, beside[:, node]))
            counts.append(0)
            fixed.append(0)
        counts[number] += 1
        fixed[number] += node in stays
    groups = demand_groups(cluster, (n for n, pod in enumerate(cluster.pods) if not pod.goes_with_node))
    pairs = [
        (group, kind)
        for group, (mask, shape, _) in enumerate(groups)
        for kind, (node, free) in enumerate(kinds)
        if cluster.masks[mask][node] and (free >= cluster.demand[shape]).all()
    ]
    scale = np.maximum(cluster.allocatable.max(axis=1), 1).astype(float)
    demands = [(cluster.demand[number], count) for _, number, count in groups]
    program = [NodeKind(free, 1.0, least, most) for (_, free), least, most in zip(kinds, fixed, counts, strict=True)]
    solved = solve_program(program, demands, pairs, scale)
    return Bound(reason=solved.reason) if solved.reason else Bound(max(1, math.ceil(solved.value - ROUNDING)))


def free_beside_daemons(cluster: CompiledCluster) -> Ints:
    """Return each node's allocatable less the requests of DaemonSet and static pods, (resources, nodes), at least 0."""
    free = cluster.allocatable.copy()
    for pod, node in enumerate(cluster.node_of.tolist()):
        if node >= 0 and cluster.pods[pod].goes_with_node:
            free[:, node] -= cluster.demand[cluster.class_of[pod]]
    return np.maximum(free, 0)


def demand_groups(cluster: CompiledCluster, pods: Iterable[int]) -> list[tuple[int, int, int]]:
    """Group pods with equal allowed nodes and requests: (index of nodes' mask, index of a class, number of pods)."""
    counts: dict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0])
    for pod in pods:
        number = int(cluster.class_of[pod])
        class_ = cluster.classes[number]
        entry = counts[class_.mask, class_.shape]
        entry[0], entry[1] = number, entry[1] + 1
    return [(mask, number, count) for (mask, _), (number, count) in counts.items()]


@dataclass(frozen=True, slots=True)
class NodeKind:
    """A kind of equal nodes: the amounts of each that pods may use, its cost, and the least number of them to keep.

    `most` is the largest number to keep, None for any number.
    """

    free: Ints
    cost: float
    least: float
    most: float | None


@dataclass(frozen=True, slots=True)
class Solved:
    """The linear program's least cost (`value`) and number of nodes `kept` of each kind; or why it has no solution."""

    value: float = 0.0
    kept: Floats | None = None
    reason: str = ""


def solve_program(
    kinds: Sequence[NodeKind], groups: Sequence[tuple[Ints, int]], pairs: Sequence[tuple[int, int]], scale: Floats
) -> Solved:
    """Return the cheapest numbers of nodes that hold all `groups`: (amounts of one pod, number of pods).

    `pairs` are (index of a group, index of a kind) where the pods fit; a group without a pair is not placed. Amounts of
    each resource are divided by `scale`. The unknowns are the nodes kept of each kind, then the pods of each pair.
    """
    if len(pairs) + len(kinds) > MOST_UNKNOWNS:
        return Solved(reason=f"the linear program would have {len(pairs):,} unknowns, too many to solve")
    resources, first = len(scale), len(kinds)
    rows, columns, values = list[int](), list[int](), list[float]()
    for number, kind in enumerate(kinds):
        for resource, amount in enumerate(kind.free.tolist()):
            rows.append(number * resources + resource)
            columns.append(number)
            values.append(-amount / scale[resource])
    for unknown, (group, number) in enumerate(pairs, first):
        demand = groups[group][0]
        for resource in np.flatnonzero(demand).tolist():
            rows.append(number * resources + resource)
            columns.append(unknown)
            values.append(demand[resource] / scale[resource])
    shape = (len(kinds) * resources, first + len(pairs))
    placed = sorted({group for group, _ in pairs})
    place_of = {group: row for row, group in enumerate(placed)}
    equalities = coo_array(
        (np.ones(len(pairs)), ([place_of[group] for group, _ in pairs], range(first, first + len(pairs)))),
        shape=(len(placed), shape[1]),
    )
    solution = linprog(
        np.concatenate([[kind.cost for kind in kinds], np.zeros(len(pairs))]),
        A_ub=coo_array((values, (rows, columns)), shape=shape).tocsr(),
        b_ub=np.zeros(shape[0]),
        A_eq=equalities.tocsr() if placed else None,
        b_eq=[groups[group][1] for group in placed] if placed else None,
        bounds=[*((kind.least, kind.most) for kind in kinds), *((0, None) for _ in pairs)],
        method="highs",
    )
    if solution.status == INFEASIBLE:
        return Solved(reason=TOO_LITTLE)
    if solution.status != 0:
        return Solved(reason=f"the linear program has no solution: {solution.message}")
    return Solved(float(solution.fun), np.asarray(solution.x[:first]))
