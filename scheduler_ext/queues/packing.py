"""Checks whether pods can be placed together on the free capacity of nodes, or on empty nodes; vectorised. Pure.

The check is a necessary condition, which orders gangs and explains shortages; the scheduler decides. It covers node
selector, required node affinity, taints, cordoned nodes, every requested resource and the number of pods. It is exact
for equal members; different kinds of members are checked one by one, and all together by their sums.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from cotenant.base.kubernetes.pod_request import format_quantities, sum_amounts
from cotenant.base.kubernetes.protocol import REQUIRED_TERMS
from cotenant.base.text import counted
from cotenant.scheduler_ext.extender.metric import ExtenderNode
from cotenant.scheduler_ext.extender.stock_rules import refusals
from cotenant.scheduler_ext.queues.model.queue_pod import Placement, QueuePod
from cotenant.scheduler_ext.queues.view import QueueNode

PODS: Final = "pods"
"""Resource name of the number of pods that a node accepts."""
_SHOWN_GROUPS: Final = 4


@dataclass(frozen=True, slots=True)
class MemberGroup:
    """`count` gang members with equal placement and requests; `requests` are one member's (cpu in millicores)."""

    requests: Mapping[str, int]
    placement: Placement
    count: int

    @property
    def needs(self) -> dict[str, int]:
        """The amounts that one member needs, by resource: its requests above zero, and 1 of the resource "pods"."""
        return {name: amount for name, amount in self.requests.items() if amount > 0} | {PODS: 1}


@dataclass(frozen=True, slots=True)
class CapacityShortage:
    """The reason for which members do not fit on one group of equal nodes.

    `refused` is the rule that excludes all of its nodes, or "". `fitting` of `members` fit. `resource` is the first to
    run out: `free` is available, and all members need `needed`.
    """

    node_group: str
    nodes: int
    members: int
    refused: str = ""
    fitting: int = 0
    resource: str = ""
    needed: int = 0
    free: int = 0

    def __str__(self) -> str:
        """Return the shortage as text: "pool=gpu (4 nodes): capacity for 6 of 16 pods, cpu 6 free of 16 needed"."""
        what = f"{self.node_group} ({counted(self.nodes, 'node')})"
        if self.refused:
            return f"{what}: {self.refused}"
        free, needed = (format_quantities({self.resource: n})[self.resource] for n in (self.free, self.needed))
        fitting = f"capacity for {self.fitting} of {counted(self.members, 'pod')}"
        return f"{what}: {fitting}, {self.resource} {free} free of {needed} needed"


@dataclass(frozen=True)
class FreeCapacity:
    """The free capacity of nodes: `free` is an array (nodes, resources), never below 0; `names` are the resources."""

    nodes: tuple[QueueNode, ...]
    names: tuple[str, ...]
    free: NDArray[np.float64]
    _masks: dict[bytes, tuple[NDArray[np.bool_], tuple[_NodeGroup, ...]]] = field(default_factory=dict)

    @classmethod
    def of(cls, nodes: Sequence[QueueNode], names: Iterable[str], pods: Iterable[QueuePod] = ()) -> FreeCapacity:
        """Return allocatable minus the requests of pods bound to the nodes, for the named resources that a node has."""
        columns = tuple(sorted({PODS} | {*names}.intersection(chain.from_iterable(n.allocatable for n in nodes))))
        free = np.array([[n.allocatable.get(name, 0) for name in columns] for n in nodes], dtype=float)
        free = free.reshape(len(nodes), len(columns))
        rows = {node.name: row for row, node in enumerate(nodes)}
        bound = [pod for pod in pods if pod.node in rows]
        at = np.array([rows[pod.node] for pod in bound], dtype=np.intp)
        for column, name in enumerate(columns):
            amounts = [1 if name == PODS else pod.requests.get(name, 0) for pod in bound]
            free[:, column] -= np.bincount(at, weights=amounts, minlength=len(nodes))
        return cls(tuple(nodes), columns, np.maximum(free, 0.0))

    def without(self, nodes_requests: Mapping[str, Mapping[str, int]]) -> FreeCapacity:
        """Return the capacity after subtracting these amounts, by node name and resource."""
        free = self.free.copy()
        for name, requests in nodes_requests.items():
            if name in self._rows:
                free[self._rows[name]] -= [requests.get(column, 0) for column in self.names]
        return FreeCapacity(self.nodes, self.names, np.maximum(free, 0.0), self._masks)

    def shortages(self, members: Sequence[MemberGroup]) -> tuple[CapacityShortage, ...]:
        """Return what keeps the members from being placed together, by node group; () when no check fails."""
        for group in members:
            if self._places(group).sum() < group.count:
                return tuple(self._short(group))
        # resources of which all together ask for more than the nodes have that any of them may use
        totals = sum_amounts({n: a * group.count for n, a in group.needs.items()} for group in members)
        total = sum(group.count for group in members)
        short = []
        for name, needed in totals.items():
            masks = [self._groups(group.placement)[0] for group in members if group.needs.get(name)]
            rows = np.flatnonzero(np.logical_or.reduce(masks))
            free = self._free(name, rows).sum()
            if free < needed:
                label, fitting = "all nodes that the pods may use", int(total * free / needed)
                short.append(CapacityShortage(label, len(rows), total, "", fitting, name, needed, int(free)))
        return tuple(short)

    def placed(self, members: Sequence[MemberGroup]) -> FreeCapacity | None:
        """Return the capacity left after placing all members on as few nodes as possible; None if they do not fit.

        For equal members this is exact; different members may fit although None is returned.
        """
        free = self.free.copy()
        totals = np.maximum(self.free.sum(axis=0), 1.0)
        for group in sorted(members, key=lambda g: float((self._row(g.needs) / totals).max()), reverse=True):
            places = self._places(group, free)
            order = np.argsort(np.where(places > 0, places, np.inf), kind="stable")
            before = np.cumsum(places[order]) - places[order]
            taken = np.zeros(len(self.nodes))
            taken[order] = np.clip(group.count - before, 0, places[order])
            if taken.sum() < group.count:
                return None
            free -= taken[:, None] * self._row(group.needs)[None, :]
        return FreeCapacity(self.nodes, self.names, np.maximum(free, 0.0), self._masks)

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {node.name: row for row, node in enumerate(self.nodes)}

    def _row(self, needs: Mapping[str, int]) -> NDArray[np.float64]:
        return np.array([needs.get(name, 0) for name in self.names], dtype=float)

    def _places(self, group: MemberGroup, free: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """Return how many members each node could take alone, (nodes,), at most all of them."""
        capacity = self.free if free is None else free
        row = self._row(group.needs)
        unknown = any(name not in self.names for name in group.needs)
        needed = row > 0
        fitting = np.floor(capacity[:, needed] / row[needed]).min(axis=1) if len(self.nodes) else np.zeros(0)
        mask, _ = self._groups(group.placement)
        return np.where(mask & (not unknown), np.minimum(fitting, group.count), 0.0)

    def _groups(self, placement: Placement) -> tuple[NDArray[np.bool_], tuple[_NodeGroup, ...]]:
        """Return which nodes admit a pod, (nodes,), and the nodes in groups that are equal for its placement."""
        key = msgspec.json.encode(placement, order="sorted")
        if key not in self._masks:
            groups = tuple(_node_groups(placement, self.nodes))
            mask = np.zeros(len(self.nodes), dtype=bool)
            for group in groups:
                mask[group.rows] = not group.refused
            self._masks[key] = (mask, groups)
        return self._masks[key]

    def _short(self, group: MemberGroup) -> Iterator[CapacityShortage]:
        places, needs = self._places(group), group.needs
        _, node_groups = self._groups(group.placement)
        if not node_groups:
            yield CapacityShortage("the cluster", 0, group.count, "has no node")
        for alike in sorted(node_groups, key=lambda g: (bool(g.refused), -len(g.rows), g.label)):
            if alike.refused:
                yield CapacityShortage(alike.label, len(alike.rows), group.count, alike.refused)
                continue
            free = {name: self._free(name, alike.rows) for name in needs}
            first = min(free, key=lambda name: float(np.floor(free[name] / needs[name]).sum()))
            yield CapacityShortage(
                alike.label,
                len(alike.rows),
                group.count,
                fitting=int(places[alike.rows].sum()),
                resource=first,
                needed=group.count * needs[first],
                free=int(free[first].sum()),
            )

    def _free(self, name: str, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        if name not in self.names:
            return np.zeros(len(rows))
        column: NDArray[np.float64] = self.free[rows, self.names.index(name)]
        return column


@dataclass(frozen=True)
class _NodeGroup:
    """Nodes that are equal for a placement; `label` is what they share, `refused` why no pod may go there, or ""."""

    label: str
    rows: NDArray[np.intp]
    refused: str


def member_groups(pods: Iterable[QueuePod]) -> tuple[MemberGroup, ...]:
    """Group pods by the requests and constraints that decide where they fit."""
    groups: dict[bytes, list[QueuePod]] = {}
    for pod in pods:
        key = msgspec.json.encode((pod.requests, pod.placement), order="sorted")
        groups.setdefault(key, []).append(pod)
    return tuple(MemberGroup(p[0].requests, p[0].placement or Placement(), len(p)) for p in groups.values())


def shortage_text(shortages: Sequence[CapacityShortage]) -> str:
    """Return all shortages in one line; of many node groups only the first ones."""
    lines = [str(shortage) for shortage in shortages[:_SHOWN_GROUPS]]
    more = len(shortages) - len(lines)
    return "; ".join(lines) + (f"; and {more} further node groups" if more > 0 else "")


def _node_groups(placement: Placement, nodes: Sequence[QueueNode]) -> Iterator[_NodeGroup]:
    spec: dict[str, Any] = {
        "nodeSelector": dict(placement.node_selector),
        "affinity": dict(placement.affinity),
        "tolerations": [msgspec.to_builtins(toleration) for toleration in placement.tolerations],
    }
    required = (placement.affinity.get("nodeAffinity") or {}).get(REQUIRED_TERMS)
    terms = [t for t in (required or {}).get("nodeSelectorTerms") or () if isinstance(t, Mapping)]
    expressions = [e for term in terms for e in term.get("matchExpressions") or () if isinstance(e, Mapping)]
    keys = sorted({*placement.node_selector, *(str(e.get("key") or "") for e in expressions)})
    by_name = any(term.get("matchFields") for term in terms)
    rows: dict[object, list[int]] = {}
    for row, node in enumerate(nodes):
        labels = tuple(node.labels.get(key) for key in keys)
        rows.setdefault((labels, node.taints, node.unschedulable, node.name if by_name else ""), []).append(row)
    likes = [nodes[numbers[0]] for numbers in rows.values()]
    reasons = [""] * len(likes)
    alike = [
        ExtenderNode(
            node.name,
            labels=node.labels,
            taints=tuple((taint.key, taint.value, taint.effect) for taint in node.taints),
            unschedulable=node.unschedulable,
        )
        for node in likes
    ]
    for (_, rule), refused in refusals(spec, alike).items():
        reasons = [old or (rule if no else "") for old, no in zip(reasons, refused, strict=True)]
    for node, numbers, reason in zip(likes, rows.values(), reasons, strict=True):
        parts = [f"{key}={node.labels[key]}" for key in keys if key in node.labels]
        parts += [f"without {key}" for key in keys if key not in node.labels]
        parts += [f"taint {t.key}{'=' + t.value if t.value else ''}:{t.effect}" for t in node.taints]
        parts += ["cordoned"] if node.unschedulable else []
        parts += [f"node {node.name}"] if by_name else []
        yield _NodeGroup(", ".join(parts) or "all nodes", np.array(numbers, dtype=np.intp), reason)
