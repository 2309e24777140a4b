"""All pods of a cluster and their reported usage as columns, kept up to date pod by pod, summed by node with bincount.

A slot is one (node, namespace, name): the pod object and the metric of that node meet there. A slot with a metric and
no active pod is "dangling" (the pod is gone or has ended, its usage is still reported) and counts with its usage.
Source: koord-manager, batchresource and midresource. High-priority (HP): the defaulted class is not batch or free.

One difference: under `maxUsageRequest` upstream leaves HP pods without a metric out on the node level (its NUMA level
counts their request). Here their request counts on the node too: a pod that was not measured may still need something.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final

import numpy as np
import numpy.typing as npt

from cotenant.core.model.cluster import Pod
from cotenant.core.model.colocation.nodemetric import NodeMetric
from cotenant.core.model.kubernetes.qos import PriorityClass, QosClass
from cotenant.core.model.resource import Resource
from recommender.colocation.columns import AMOUNT_CAP, Booleans, Floats

CLASSES: Final = tuple(PriorityClass)
CLASS_CODE: Final[Mapping[PriorityClass, int]] = {c: i for i, c in enumerate(CLASSES)}
QOS_CODE: Final[Mapping[QosClass, int]] = {q: i for i, q in enumerate(QosClass)}
_RECLAIMER: Final = np.array([c.is_reclaimer for c in CLASSES])
_PROD: Final = np.array([c in (PriorityClass.PROD, PriorityClass.NONE) for c in CLASSES])
_ROW: Final[Mapping[Resource, int]] = {r: i for i, r in enumerate(Resource)}
_ZONES_KNOWN: Final = 52
"""Zones are bits of a number that passes through a double."""

Key = tuple[str, str, str]
"""Node, namespace, name."""
Measured = tuple[str, str, PriorityClass, Sequence[float]]
"""Namespace, name, the reporter's class, usage per resource (NaN = none)."""


@dataclass(frozen=True, slots=True, eq=False)
class PodTerms:
    """Share of each of m slots in the sums of its node, (m,) each, floats in the resource's unit.

    node: its number; zones: bits of the NUMA zones it was given, 0 = any.
    """

    node: npt.NDArray[np.int64]
    zones: npt.NDArray[np.int64]
    all_used: Floats
    hp_used: Floats
    hp_request: Floats
    hp_max: Floats
    prod_request: Floats
    prod_used: Floats

    def columns(self) -> Iterator[tuple[str, Floats]]:
        """Name and values of every term."""
        return ((f.name, getattr(self, f.name)) for f in fields(self)[2:])


class PodColumns:
    """Slots as numpy arrays, (resources, slots) for amounts; grows by doubling, reuses what was freed.

    `upsert` and `remove` follow pods, `report` and `forget` follow NodeMetrics, `sums` adds up. Amounts are clipped to
    AMOUNT_CAP; a usage that is no finite number counts as not measured.
    """

    def __init__(self, size: int = 1024) -> None:
        """Empty; `size` slots are set aside."""
        self._slots: dict[Key, int] = {}
        self._home: dict[tuple[str, str], Key] = {}
        self._reported: dict[str, list[Key]] = {}
        self._numbers: dict[str, int] = {}
        self._free = list(range(size))[::-1]
        self._node = np.full(size, -1, dtype=np.int64)
        self._active = np.zeros(size, dtype=bool)
        self._listed = np.zeros(size, dtype=bool)
        self._class = np.zeros(size, dtype=np.int8)
        self._metric_class = np.zeros(size, dtype=np.int8)
        self._qos = np.full(size, QOS_CODE[QosClass.NONE], dtype=np.int8)
        self._zones = np.zeros(size, dtype=np.int64)
        self._request = np.zeros((len(Resource), size))
        self._usage = np.full((len(Resource), size), np.nan)

    def __len__(self) -> int:
        """Slots in use: active pods and dangling metrics."""
        return len(self._slots)

    def upsert(self, pods: Iterable[Pod]) -> None:
        """Pods as they are now. One that has ended or has no node holds nothing; its metric may stay, dangling."""
        slots, rows = [], []
        for ref, pod in {(pod.namespace, pod.name): pod for pod in pods}.items():
            key = (pod.node, *ref)
            if self._home.get(ref, key) != key or not (pod.running and pod.node):
                self.remove(*ref)
            if pod.running and pod.node:
                self._home[ref] = key
                slots.append(self._slot(key))
                rows.append(_row(pod))
        if slots:
            table = np.array(rows, dtype=np.float64)
            self._active[slots] = True
            self._class[slots], self._qos[slots] = table[:, 0], table[:, 1]
            self._zones[slots] = table[:, 2]
            self._request[:, slots] = table[:, 3:].T

    def remove(self, namespace: str, name: str) -> None:
        """Take a pod's request away; unknown pods are ignored.

        Its last measured usage stays as a dangling metric until the node reports without it.
        """
        key = self._home.pop((namespace, name), None)
        if key is not None:
            slot = self._slots[key]
            self._active[slot] = False
            self._request[:, slot] = 0
            self._zones[slot] = 0
            self._qos[slot] = QOS_CODE[QosClass.NONE]
            self._tidy(key)

    def report(self, metrics: Iterable[NodeMetric]) -> None:
        """New reports; each replaces its node's last one."""
        self.use({m.node: [(p.namespace, p.name, p.priority, _usages(p.usage)) for p in m.pods] for m in metrics})

    def use(self, measured: Mapping[str, Sequence[Measured]]) -> None:
        """Replace the pods' measured usage of some nodes; nodes that are not named keep theirs.

        measured: node -> rows (namespace, pod, reported priority class, usage by resource in millicores and bytes).
        """
        before = [key for node in measured for key in self._reported.get(node, ())]
        if before:
            old = [self._slots[key] for key in before]
            self._usage[:, old], self._listed[old] = np.nan, False
        rows = [row for measurements in measured.values() for row in measurements]
        for node, measurements in measured.items():
            self._reported[node] = [(node, row[0], row[1]) for row in measurements]
        if rows:
            slots = [self._slot(key) for node in measured for key in self._reported[node]]
            usage = np.array([row[3] for row in rows], dtype=np.float64)
            self._usage[:, slots] = np.where(np.isfinite(usage), np.clip(usage, 0, AMOUNT_CAP), np.nan).T
            self._metric_class[slots] = [CLASS_CODE[row[2]] for row in rows]
            self._listed[slots] = True
        for key in before:
            self._tidy(key)

    def forget(self, node: str) -> None:
        """The node's report is gone."""
        self.use({node: ()})
        del self._reported[node]

    def sums(self, nodes: Sequence[str], resource: Resource) -> dict[str, Floats]:
        """Sum of every term over the pods of each node, (nodes,); 0 for a node that has none."""
        numbers = np.array([self._numbers.get(name, len(self._numbers)) for name in nodes], dtype=np.int64)
        terms, size = self.terms(resource), len(self._numbers) + 1
        return {name: _sum(terms.node, column, size)[numbers] for name, column in terms.columns()}

    def terms(self, resource: Resource, node: str | None = None) -> PodTerms:
        """Every used slot's terms, or only those on one node."""
        used = np.flatnonzero(self._node >= 0 if node is None else self._node == self._numbers.get(node, -2))
        return self._terms(used, resource)

    def _terms(self, used: npt.NDArray[np.int64], resource: Resource) -> PodTerms:
        """What each of these slots adds to every term of the formulas, (slots,), in the resource's unit.

        An active pod has the class of its spec, a dangling metric that of the report. high: every class but batch and
        free. hp_used counts the request instead of the usage where `_by_request` says so: a pod without a measurement,
        and the CPU of LSE pods.
        """
        row, active = _ROW[resource], self._active[used]
        request, raw = self._request[row, used], self._usage[row, used]
        measured = np.isfinite(raw)
        usage = np.where(measured, raw, 0.0)
        classes = np.where(active, self._class[used], self._metric_class[used])
        high, prod = ~_RECLAIMER[classes], _PROD[classes]
        return PodTerms(
            node=self._node[used],
            zones=np.where(active, self._zones[used], 0),
            all_used=usage,
            hp_used=np.where(active & self._by_request(used, measured, resource), request, usage) * high,
            hp_request=request * high,
            hp_max=np.maximum(request, usage) * high,
            prod_request=request * prod,
            prod_used=usage * prod,
        )

    def _by_request(self, used: npt.NDArray[np.int64], measured: Booleans, resource: Resource) -> Booleans:
        """Whether the request counts as the pod's usage: it has no metric, or its CPUs are exclusive and never lent."""
        exclusive = self._qos[used] == QOS_CODE[QosClass.LSE]
        return ~measured | exclusive if resource is Resource.CPU else ~measured

    def _slot(self, key: Key) -> int:
        slot = self._slots.get(key)
        if slot is None:
            if not self._free:
                self._grow()
            slot = self._slots[key] = self._free.pop()
            self._node[slot] = self._numbers.setdefault(key[0], len(self._numbers))
        return slot

    def _tidy(self, key: Key) -> None:
        """Free a slot that neither a pod nor a metric holds."""
        slot = self._slots.get(key)
        if slot is not None and not (self._active[slot] or self._listed[slot]):
            self._node[slot] = -1
            self._free.append(self._slots.pop(key))

    def _grow(self) -> None:
        size = len(self._node)
        self._free = list(range(size, 2 * size))[::-1]
        self._node = np.append(self._node, np.full(size, -1, dtype=np.int64))
        self._active = np.append(self._active, np.zeros(size, dtype=bool))
        self._listed = np.append(self._listed, np.zeros(size, dtype=bool))
        self._class = np.append(self._class, np.zeros(size, dtype=np.int8))
        self._metric_class = np.append(self._metric_class, np.zeros(size, dtype=np.int8))
        self._qos = np.append(self._qos, np.full(size, QOS_CODE[QosClass.NONE], dtype=np.int8))
        self._zones = np.append(self._zones, np.zeros(size, dtype=np.int64))
        self._request = np.append(self._request, np.zeros((len(Resource), size)), axis=1)
        self._usage = np.append(self._usage, np.full((len(Resource), size), np.nan), axis=1)


def _sum(nodes: npt.NDArray[np.int64], amounts: Floats, size: int) -> Floats:
    return np.bincount(nodes, amounts, minlength=size).astype(np.float64, copy=False)


def _row(pod: Pod) -> tuple[float, ...]:
    """Class code, QoS code, zone bits, request per resource."""
    bits = 0
    for zone in pod.zones:
        bits |= 1 << zone if 0 <= zone < _ZONES_KNOWN else 0
    requests = (min(max(pod.requests.get(r, 0), 0), AMOUNT_CAP) for r in Resource)
    return CLASS_CODE[pod.effective_priority], QOS_CODE[pod.qos], bits, *requests


def _usages(usage: Mapping[Resource, int]) -> tuple[float, ...]:
    return tuple(usage.get(r, np.nan) for r in Resource)
