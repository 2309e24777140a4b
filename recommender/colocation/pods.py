"""All pods of a cluster and their reported usage as columns, updated pod by pod and summed by node with bincount.

A slot is one (node, namespace, name): it joins the pod object and the metric of that node. A slot with a metric and no
active pod is "dangling" (the pod is gone or has ended, its usage is still reported) and counts with its usage. Source:
koord-manager, batchresource and midresource. High-priority (HP): the defaulted class is not batch or free.

Two differences to Koordinator: under `maxUsageRequest` its node level ignores HP pods without a metric (its NUMA level
counts their request); here their request counts on the node too, because an unmeasured pod may still need something.
The mid-cpu and mid-memory that a mid pod requests count here as its cpu and memory; Koordinator counts 0, and so lends
what was promised to mid.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final

import numpy as np
import numpy.typing as npt

from cotenant.base.cluster import Pod
from cotenant.base.colocation.nodemetric import NodeMetric
from cotenant.base.kubernetes.qos import PriorityClass, QosClass
from cotenant.base.resource import Resource
from cotenant.recommender.colocation.columns import AMOUNT_CAP, Booleans, Floats
from cotenant.recommender.colocation.model.prod_peaks import Place, PodCensus, unreplaced_requests

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
    """The amounts that each of m slots (a pod, or a metric whose pod is gone) adds to its node's sums, (m,) floats.

    `node` is the node's number; `zones` is a bit mask of the NUMA zones assigned to the pod, 0 = any.
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
        """Yield the name and the values (m,) of every term, one value for each pod or dangling metric."""
        return ((f.name, getattr(self, f.name)) for f in fields(self)[2:])


@dataclass(frozen=True, slots=True, eq=False)
class PodFacts:
    """The facts about m pods other than usage: (m,) each, or (m, moments); amounts in the resource's unit.

    `active` is true if the pod occupies its node; otherwise only its metric is left, and `request` and `mid_request`
    are 0. `high` marks classes above batch; `prod` the class prod or none; `exclusive` exclusive CPUs, which are never
    lent; `counted_elsewhere` pods without a measurement whose request `announced` counts.
    """

    active: Booleans
    request: Floats
    mid_request: Floats
    high: Booleans
    prod: Booleans
    exclusive: Booleans
    counted_elsewhere: Booleans


def demand_terms(measured: Floats, pods: PodFacts) -> dict[str, Floats]:
    """Return each pod's contribution to the sums of its node, by the name of the sum, in the shape of `measured`.

    `measured` is present usage in the resource's unit, NaN = none. A request replaces usage in `hp_used` for unmeasured
    pods and exclusive CPUs, in `prod_used` for `counted_elsewhere`. A pod's class decides to which sums it contributes.
    """
    is_measured = np.isfinite(measured)
    usage = np.where(is_measured, measured, 0.0)
    request = pods.request + pods.mid_request
    return {
        "all_used": usage,
        "hp_used": np.where(pods.active & (~is_measured | pods.exclusive), request, usage) * pods.high,
        "hp_request": request * pods.high,
        "hp_max": np.maximum(request, usage) * pods.high,
        "prod_request": pods.request * pods.prod,
        "prod_used": np.where(pods.counted_elsewhere, request, usage) * pods.prod,
    }


class KnownPlaces:
    """Numbered places (workloads on nodes), each with its number of pods in the census, which the forecast includes."""

    def __init__(self, census: PodCensus | None) -> None:
        """Start without any place; if `census` is None, each place has 0 census pods."""
        self._census = census or PodCensus(np.inf, {})
        self._numbers: dict[Place, int] = {}
        self._rows: list[tuple[int, int]] = []

    @property
    def time_seconds(self) -> float:
        """Unix time of the census, which excludes pods that started later; infinity without a census."""
        return self._census.time_seconds

    @property
    def names(self) -> tuple[Place, ...]:
        """Known places (node and workload) in the order of their numbers."""
        return tuple(self._numbers)

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        """Two rows, (2, places): the number of each place's node, and the place's count of pods in the census."""
        return np.array(self._rows, dtype=np.int64).reshape(-1, 2).T

    def number(self, place: Place, node: int) -> int:
        """Return the number of a place, assigning the next one to a new place; `node` is the number of its node."""
        number = self._numbers.setdefault(place, len(self._numbers))
        if number == len(self._rows):
            self._rows.append((node, self._census.pods.get(place, 0)))
        return number

    def usual(self, resource: Resource) -> Mapping[str, float]:
        """Return by node the requests of pods that usually come in addition to the census, in the resource's unit."""
        return self._census.usual.get(resource, {})


class PodColumns:
    """Pods and their measured usage as numpy arrays with one slot per node and pod name; freed slots are reused.

    Arrays of amounts are (resources, slots). `upsert` and `remove` follow pods, `report` and `forget` follow
    NodeMetrics, `sums` adds up. Amounts are clipped to AMOUNT_CAP; a usage that is not a finite number counts as not
    measured.
    """

    def __init__(self, size: int = 1024) -> None:
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
        self._place = np.zeros(size, dtype=np.int64)
        self._start = np.zeros(size)
        self._placeholder = np.zeros(size, dtype=bool)
        self._request = np.zeros((len(Resource), size))
        self._mid_request = np.zeros((len(Resource), size))
        self._usage = np.full((len(Resource), size), np.nan)
        self._places = KnownPlaces(None)

    def __len__(self) -> int:
        """Return the number of used slots: active pods and dangling metrics."""
        return len(self._slots)

    def upsert(self, pods: Iterable[Pod]) -> None:
        """Add or update pods; remove a pod that has ended or has no node, but keep its metric as a dangling one.

        The request of a placeholder counts in `announced` only.
        """
        slots, rows = [], []
        for ref, pod in {(pod.namespace, pod.name): pod for pod in pods}.items():
            key = (pod.node, *ref)
            present = (pod.running or pod.placeholder) and pod.node
            if self._home.get(ref, key) != key or not present:
                self.remove(*ref)
            if present:
                self._home[ref] = key
                slots.append(self._slot(key))
                place = self._places.number((pod.node, pod.workload), self._numbers[pod.node])
                # Start, whether it is a placeholder, class code, QoS code, zone bits, request and mid request per
                # resource.
                bits = 0
                for zone in pod.zones:
                    bits |= 1 << zone if 0 <= zone < _ZONES_KNOWN else 0
                both = (pod.requests, pod.mid_requests)
                requests = (min(max(amounts.get(r, 0), 0), AMOUNT_CAP) for amounts in both for r in Resource)
                codes = CLASS_CODE[pod.effective_priority], QOS_CODE[pod.qos]
                rows.append((place, *(pod.start_seconds, pod.placeholder, *codes, bits, *requests)))
        if slots:
            table = np.array(rows, dtype=np.float64)
            self._active[slots] = True
            self._place[slots], self._start[slots], self._placeholder[slots] = table[:, :3].T
            self._class[slots], self._qos[slots], self._zones[slots] = table[:, 3:6].T
            self._request[:, slots] = table[:, 6 : 6 + len(Resource)].T
            self._mid_request[:, slots] = table[:, 6 + len(Resource) :].T

    def remove(self, namespace: str, name: str) -> None:
        """Remove a pod's request; an unknown pod is ignored.

        Its last measured usage stays as a dangling metric until the node reports without it.
        """
        key = self._home.pop((namespace, name), None)
        if key is not None:
            slot = self._slots[key]
            self._active[slot] = False
            self._request[:, slot] = self._mid_request[:, slot] = 0
            self._placeholder[slot] = False
            self._zones[slot] = 0
            self._qos[slot] = QOS_CODE[QosClass.NONE]
            self._tidy(key)

    def report(self, metrics: Iterable[NodeMetric]) -> None:
        """Replace the measured usage of the nodes of these NodeMetrics."""
        measured: dict[str, list[Measured]] = {}
        for metric in metrics:
            measured[metric.node] = []
            for pod in metric.pods:
                # Every running pod has memory: one of which 0 bytes are reported was not measured, nor was a CPU of 0.
                unmeasured, usage = pod.usage.get(Resource.MEMORY) == 0, pod.usage
                row = tuple((usage.get(r) or np.nan) if unmeasured else usage.get(r, np.nan) for r in Resource)
                measured[metric.node].append((pod.namespace, pod.name, pod.priority, row))
        self.use(measured)

    def use(self, measured: Mapping[str, Sequence[Measured]]) -> None:
        """Replace the pods' measured usage on the nodes named in `measured`; other nodes' pods keep theirs.

        `measured` maps a node to rows (namespace, pod, reported priority class, usage by resource in millicores and
        bytes).
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
        """Forget the NodeMetric of a node, because the NodeMetric was deleted."""
        self.use({node: ()})
        del self._reported[node]

    def sums(self, nodes: Sequence[str], resource: Resource) -> dict[str, Floats]:
        """Return the sum of every term over the pods of each node, (nodes,); 0 for a node without pods."""
        numbers = np.array([self._numbers.get(name, len(self._numbers)) for name in nodes], dtype=np.int64)
        terms, size = self.terms(resource), len(self._numbers) + 1
        return {name: _sum(terms.node, column, size)[numbers] for name, column in terms.columns()}

    def terms(self, resource: Resource, node: str | None = None) -> PodTerms:
        """Return what each used slot (a pod or dangling metric) adds to its node's sums, on all nodes or one node."""
        used = np.flatnonzero(self._node >= 0 if node is None else self._node == self._numbers.get(node, -2))
        return self._terms(used, resource)

    def know(self, census: PodCensus | None) -> None:
        """Replace the census, the record of the pods that the forecast includes; None if there is no forecast."""
        used = np.flatnonzero(self._active)
        names, self._places = self._places.names, KnownPlaces(census)
        places = [names[number] for number in self._place[used].tolist()]
        self._place[used] = [self._places.number(place, self._numbers[place[0]]) for place in places]

    def announced(self, nodes: Sequence[str], resource: Resource) -> Floats:
        """Return for each node the requests of prod pods and placeholder pods that came after the census.

        Not counted are pods that replace others of their place, a workload on a node (`unreplaced_requests`), the part
        of a request that `hp_used` already counts, and `PodCensus.usual` of the node. The sum is 0 without a census.
        """
        used, usual = np.flatnonzero(self._active), self._places.usual(resource)
        place, new, placeholder = self._place[used], self._new(used), self._placeholder[used]
        prod = _PROD[self._class[used]] & ~placeholder
        came, before = new & (prod | placeholder), prod & ~new
        node, census_count = self._places.rows
        went = np.maximum(census_count - np.bincount(place[before], minlength=len(node)), 0)
        # The part of each prod pod's request that `hp_used` does not count beyond `prod_used`. A placeholder's request
        # is returned in full, because `hp_used` counts nothing of it.
        terms = self._terms(used, resource)
        rest = np.maximum(terms.prod_request - np.maximum(terms.hp_used - terms.prod_used, 0.0), 0.0)
        uncounted_requests = np.where(self._placeholder[used], self._request[_ROW[resource], used], rest)
        requested = np.bincount(place[came], uncounted_requests[came], minlength=len(node))
        beyond = unreplaced_requests(np.bincount(place[came], minlength=len(node)), went, requested)
        by_node = _sum(node, beyond, len(self._numbers) + 1)
        numbers = np.array([self._numbers.get(name, len(self._numbers)) for name in nodes], dtype=np.int64)
        beyond_usual: Floats = np.maximum(by_node[numbers] - np.array([usual.get(name, 0.0) for name in nodes]), 0.0)
        return beyond_usual

    def _new(self, used: npt.NDArray[np.int64]) -> Booleans:
        """Return whether each pod is missing from the census, by its start time.

        Placeholders are always missing, because they use nothing. Without a census no pod counts as missing.
        """
        later = self._start[used] > self._places.time_seconds
        return np.asarray(later | (self._placeholder[used] & np.isfinite(self._places.time_seconds)))

    def _terms(self, used: npt.NDArray[np.int64], resource: Resource) -> PodTerms:
        """Return the contribution of each of these slots to every term, (slots,), in the resource's unit.

        An active pod has the class of its spec, a dangling metric that of the report; `high` is every class but batch
        and free. Requests are those of cpu and memory, and those of the mid resources, except in `prod_request`,
        because the scheduler subtracts them from the amount for mid. `hp_used` has the request instead of the usage of
        a pod without a measurement, and for the CPU of LSE pods; `prod_used` has it for an unmeasured pod that started
        after the census, counted by `announced`.
        """
        row, active = _ROW[resource], self._active[used]
        own, raw = self._request[row, used], self._usage[row, used]
        classes = np.where(active, self._class[used], self._metric_class[used])
        # Whether each pod's CPUs are its own and never lent, so that its request counts whatever it uses.
        exclusive = np.asarray((self._qos[used] == QOS_CODE[QosClass.LSE]) & (resource is Resource.CPU))
        placeholder = self._placeholder[used]
        pods = PodFacts(
            active=active,
            request=own,
            mid_request=self._mid_request[row, used],
            high=~_RECLAIMER[classes] & ~placeholder,
            prod=_PROD[classes] & ~placeholder,
            exclusive=exclusive,
            counted_elsewhere=active & ~np.isfinite(raw) & ~exclusive & self._new(used),
        )
        zones = np.where(active, self._zones[used], 0)
        return PodTerms(node=self._node[used], zones=zones, **demand_terms(raw, pods))

    def _slot(self, key: Key) -> int:
        slot = self._slots.get(key)
        if slot is None:
            if not self._free:
                size = len(self._node)
                self._free = list(range(size, 2 * size))[::-1]
                for name, column in vars(PodColumns(size)).items():
                    if isinstance(column, np.ndarray):
                        setattr(self, name, np.append(getattr(self, name), column, axis=-1))
            slot = self._slots[key] = self._free.pop()
            self._node[slot] = self._numbers.setdefault(key[0], len(self._numbers))
        return slot

    def _tidy(self, key: Key) -> None:
        """Free a slot that has neither a pod nor a metric."""
        slot = self._slots.get(key)
        if slot is not None and not (self._active[slot] or self._listed[slot]):
            self._node[slot] = -1
            self._free.append(self._slots.pop(key))


def _sum(nodes: npt.NDArray[np.int64], amounts: Floats, size: int) -> Floats:
    return np.bincount(nodes, amounts, minlength=size).astype(np.float64, copy=False)
