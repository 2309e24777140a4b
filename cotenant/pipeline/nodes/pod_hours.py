"""Usage and requests of each node's pods at the end of every hour, as the formulas of lent capacity count them. Pure.

A pod's present usage, request and class enter as they do now (`recommender.colocation.pods`): at the end of a past hour
the newest samples of its last ten minutes count, and the request of a pod that ran without any.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import numpy as np
import numpy.typing as npt

from cotenant.base.cluster import Inventory, Pod
from cotenant.base.identity import PodContainerRef
from cotenant.base.kubernetes.qos import PriorityClass, QosClass
from cotenant.base.resource import Resource
from cotenant.base.usage.sparse_usage import AnyUsage, SparseUsage, as_sparse
from cotenant.base.usage.usage import HOUR_SECONDS, TimeGrid
from cotenant.profiler.pool import reduce_rows
from cotenant.recommender.colocation.pods import PodFacts, demand_terms

Floats = npt.NDArray[np.float64]
Slots = npt.NDArray[np.int64]

PRESENT_SLOTS: Final = 2
"""A pod's newest sample counts as present when it lies in the last ten minutes."""
PROD: Final = (PriorityClass.PROD, PriorityClass.NONE)
TERMS: Final = ("all_used", "hp_used", "hp_request", "hp_max", "prod_request", "prod_used")
_PODS_AT_ONCE: Final = 256


@dataclass(frozen=True, slots=True, eq=False)
class PodHours:
    """Sums over the pods of k nodes at the end of H hours, by name of a formula's term, (k, H), in the resource's unit.

    `nodes`, (k,), are distinct positions in the inventory's nodes; other nodes have none of these pods.
    """

    nodes: npt.NDArray[np.int64]
    terms: Mapping[str, Floats]


def hours_of(window: TimeGrid) -> TimeGrid:
    """Return the whole hours of a window, and the hour in progress at its end."""
    first = -(-window.start_seconds // HOUR_SECONDS) * HOUR_SECONDS
    return TimeGrid(first, HOUR_SECONDS, max(0, -(-(window.end_seconds - first) // HOUR_SECONDS)))


def last_slots(window: TimeGrid) -> Slots:
    """Return the window's time slot at the end of each of its hours, (H,); the last slot for the hour in progress."""
    ends = hours_of(window).times() + HOUR_SECONDS
    return np.minimum((ends - window.start_seconds) // window.step_seconds, window.size) - 1


def pod_hours(usage: AnyUsage[PodContainerRef], inventory: Inventory, pods: Sequence[Pod]) -> PodHours:
    """Return what these pods used and requested on each node at the end of each hour of the usage's window.

    `usage` has series by container, of these pods among others; of `inventory` only the nodes are read.
    """
    assert isinstance(usage.resource, Resource)
    place = {node.name: i for i, node in enumerate(inventory.nodes)}
    lives = []
    ordered = sorted(pods, key=lambda pod: (pod.namespace, pod.name, pod.start_seconds))
    for _, namesakes in groupby(ordered, lambda pod: (pod.namespace, pod.name)):
        one_after_another = list(namesakes)
        borders = [-np.inf, *(float(pod.start_seconds) for pod in one_after_another[1:]), np.inf]
        for i, pod in enumerate(one_after_another):
            if pod.node in place:
                lives.append(_PodLife(pod, borders[i], borders[i + 1]))
    lives.sort(key=lambda life: (life.pod.start_seconds, place[life.pod.node]))
    nodes = np.array([place[life.pod.node] for life in lives], dtype=np.int64)
    met = np.unique(nodes)
    slots = last_slots(usage.grid)
    sums = {name: np.zeros((len(met), len(slots))) for name in TERMS}
    series, stored = defaultdict[tuple[str, str], list[int]](list), as_sparse(usage)
    for row, ref in enumerate(usage.refs):
        series[ref.namespace, ref.pod].append(row)
    for first in range(0, len(lives), _PODS_AT_ONCE):
        part = lives[first : first + _PODS_AT_ONCE]
        own, rows = np.unique(nodes[first : first + _PODS_AT_ONCE], return_inverse=True)
        pairs = [(i, row) for i, life in enumerate(part) for row in series.get((life.pod.namespace, life.pod.name), ())]
        owners, of_series = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        # The hours from the first to the last in which one of the pods lives or has a present sample. In all others
        # their terms are 0. Pods that began at the same time share few hours where pods live short.
        moments = stored.grid.start_seconds + (slots + 1) * stored.grid.step_seconds
        begins = [life.pod.start_seconds for life in part]
        ends = [np.inf if life.pod.end_seconds is None else life.pod.end_seconds for life in part]
        shown = stored.first[of_series], stored.first[of_series] + np.diff(stored.bounds)[of_series] + PRESENT_SLOTS - 1
        hours_first = min(
            np.searchsorted(moments, min(begins)), np.searchsorted(slots, shown[0].min(initial=stored.grid.size))
        )
        last = max(np.searchsorted(moments, max(ends)), np.searchsorted(slots, shown[1].max(initial=0)))
        hours = slice(int(hours_first), int(last))
        at = np.searchsorted(met, own)
        for name, term in _terms(stored, part, (owners, of_series), slots[hours], usage.resource).items():
            sums[name][at, hours] += reduce_rows(np.add, term, rows, len(own), 0.0)
    # The same; equal terms are one array, so that where all pods are prod's a part is half as large to send.
    distinct: list[Floats] = []
    shared: dict[str, Floats] = {}
    for name, term in sums.items():
        same = next((other for other in distinct if np.array_equal(other, term)), None)
        shared[name] = term if same is None else same
        distinct += [term] if same is None else []
    return PodHours(met, shared)


class HoursOfPods:
    """Sums over all pods by node and hour, joined from parts, of one resource in its unit (millicores or bytes)."""

    def __init__(self, nodes: int, window: TimeGrid) -> None:
        """Start with sums of 0 for `nodes` nodes and the hours of `window`."""
        self._sums = {name: np.zeros((nodes, hours_of(window).size)) for name in TERMS}

    def add(self, part: PodHours) -> None:
        """Add the sums over some pods; each pod may be in only one of the added parts."""
        for name, term in part.terms.items():
            self._sums[name][part.nodes] += term

    @property
    def terms(self) -> Mapping[str, Floats]:
        """The sums, (nodes, H), by name of a formula's term (TERMS)."""
        return self._sums


@dataclass(frozen=True, slots=True)
class _PodLife:
    """A pod, and the times between which samples of its name are its own: another pod had the name before or after."""

    pod: Pod
    first_seconds: float
    last_seconds: float


def _terms(
    usage: SparseUsage[PodContainerRef],
    lives: Sequence[_PodLife],
    series: tuple[Slots, Slots],
    slots: Slots,
    resource: Resource,
) -> dict[str, Floats]:
    """Return the terms of m pods at the end of each slot, by name, (m, H); for `series` see `_present_usage`."""
    pods = [life.pod for life in lives]
    moments = usage.grid.start_seconds + (slots + 1) * usage.grid.step_seconds
    begins, ends, requests, mid_requests, high, prod, exclusive, placeholder = np.array(
        [_facts(pod, resource) for pod in pods], dtype=np.float64
    ).T[..., None]
    firsts, lasts = (
        np.array([getattr(life, name) for life in lives])[:, None] for name in ("first_seconds", "last_seconds")
    )
    measured = np.where(
        (firsts < moments) & (moments <= lasts), _present_usage(usage, len(pods), *series, slots), np.nan
    )
    active, counted = (begins <= moments) & (moments < ends), placeholder == 0
    return demand_terms(
        measured,
        PodFacts(
            active=active,
            request=requests * active,
            mid_request=mid_requests * active,
            high=(high > 0) & counted,
            prod=(prod > 0) & counted,
            exclusive=exclusive > 0,
            counted_elsewhere=np.zeros_like(active),
        ),
    )


def _facts(pod: Pod, resource: Resource) -> tuple[float, ...]:
    """Return start, end, both requests, and whether the pod is above batch, prod, CPU-exclusive, a placeholder."""
    priority = pod.effective_priority
    return (
        pod.start_seconds,
        np.inf if pod.end_seconds is None else pod.end_seconds,
        pod.requests.get(resource, 0),
        pod.mid_requests.get(resource, 0),
        not priority.is_reclaimer,
        priority in PROD,
        pod.qos is QosClass.LSE and resource is Resource.CPU,
        pod.placeholder,
    )


def _present_usage(usage: SparseUsage[PodContainerRef], size: int, owners: Slots, rows: Slots, slots: Slots) -> Floats:
    """Return the present usage of each of `size` pods, containers summed, (m, H); NaN if none has a present sample.

    `owners`, `rows`: (series,), the pod of each series, and its row in the usage.
    """
    newest = usage.at(rows, slots)
    for back in range(1, PRESENT_SLOTS):
        newest = np.where(np.isfinite(newest), newest, usage.at(rows, slots - back))
    some = reduce_rows(np.logical_or, np.isfinite(newest), owners, size, False)
    sums = reduce_rows(np.add, np.nan_to_num(newest).astype(np.float64), owners, size, 0.0)
    return np.where(some, sums, np.nan)
