"""Divides a cluster's workloads into shards, and the inventory into the parts that belong to each. Pure.

A workload is in one shard with all its pods. Shards are neighbours by (namespace, name), so that their pods, whose
names begin like the workload's, are neighbours in the store. A division is kept for the next analysis while its shards
have a suitable size, because forecasts learn from all series of a shard together.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from cotenant.base.cluster import Event, Inventory, Pod, PodRow, VpaHistory, Workload
from cotenant.base.identity import PodContainerRef, WorkloadRef
from cotenant.base.store.days import Between, Key
from cotenant.pipeline.analysis import Division
from cotenant.recommender.incomplete import gone_workloads

Place = tuple[str, str]
"""(namespace, name) of a workload, or of a pod that belongs to none: where it stands in the order of shards."""
PodName = tuple[str, str]

_OVERSIZE: Final = 1.5
"""How many times as large, and as many, the shards of an earlier division may be as those of a new one."""


@dataclass(frozen=True, slots=True)
class ShardSize:
    """The maximum size of a shard, unless a single workload is larger.

    `workloads` is limited because their forecasts are learned together in one call. `series`, the number of usage
    series of the containers, determines the memory that a shard needs: 8,000 series of two weeks are 0.5 GB.
    """

    workloads: int = 1000
    series: int = 8000


@dataclass(frozen=True, slots=True, eq=False)
class WorkloadShard:
    """The workloads with (namespace, name) from `first` (inclusive) to `last` (exclusive; None: no bound).

    `inventory` has these workloads in order, their pods and events, and all nodes, quotas, LimitRanges and running pods
    of DaemonSets. `deleted` are the workloads that the cluster no longer has. `between` is the range of keys of all
    series of the shard's pods, and of some others. `strangers` are pods of other shards whose names lie in the same
    range.
    """

    index: int
    first: Place | None
    last: Place | None
    inventory: Inventory = field(repr=False)
    deleted: frozenset[WorkloadRef] = field(repr=False)
    between: Between = field(repr=False)
    strangers: frozenset[PodName] = field(repr=False)

    def __str__(self) -> str:
        return f"shard {self.index} from {'workload ' + '/'.join(self.first) if self.first else 'the first workload'}"

    def mine(self, series: Sequence[PodContainerRef]) -> npt.NDArray[np.bool_]:
        """Return a mask of the series that belong to this shard's pods.

        A pod that the inventory lacks belongs to the shard in whose range its name is.
        """
        places, mine = _shard_keys(self.inventory.pods), []
        for ref in series:
            name = ref.namespace, ref.pod
            place = places.get(name, name)
            holds = (self.first is None or place >= self.first) and (self.last is None or place < self.last)
            mine.append(holds and name not in self.strangers)
        return np.array(mine, dtype=bool)

    def own_pods(self) -> list[Pod]:
        """Return the pods of the inventory that belong to this shard only, also those without series."""
        names = [PodContainerRef(pod.namespace, pod.name, "") for pod in self.inventory.pods]
        return [pod for pod, own in zip(self.inventory.pods, self.mine(names), strict=True) if own]


def divide(inventory: Inventory, before: Division | None, size: ShardSize) -> Division:
    """Return the earlier division if its shards still have a suitable size, else a new one."""
    weights = _weights(inventory, size)
    # As few shards as the weights need, of similar size.
    places = sorted(weights)
    each = np.array([weights[place] for place in places], dtype=np.float64)
    # a thousand thousandths are a little more than one in floats, and no second shard
    share = each.sum() / max(1.0, np.ceil(np.round(each.sum(), 6)))
    numbers = np.floor((np.cumsum(each) - each / 2) / max(share, np.finfo(float).tiny))
    new = Division(tuple(places[i] for i in (np.flatnonzero(np.diff(numbers)) + 1).tolist()))
    if before is None:
        return new
    loads = defaultdict[int, float](float)
    for place, weight in weights.items():
        # one that is too large for any shard makes no shard unfair
        loads[bisect_right(before.firsts, place)] += min(weight, 1.0)
    fair = max(loads.values(), default=0.0) <= _OVERSIZE and len(before.firsts) + 1 <= _OVERSIZE * (len(new.firsts) + 1)
    return before if fair else new


def shards(inventory: Inventory, division: Division) -> list[WorkloadShard]:
    """Return the shards of a division, in order."""
    parts = _Parts(inventory, division)
    bare, deleted = replace(inventory, controllers=()), gone_workloads(inventory)
    daemons = [pod for pod in inventory.pods if pod.running and pod.workload.kind == "DaemonSet"]
    bounds: list[Place | None] = [None, *division.firsts, None]
    return [
        WorkloadShard(
            index,
            first,
            last,
            replace(
                bare,
                workloads=tuple(parts.workloads[index]),
                pods=(*parts.pods[index], *(pod for pod in daemons if index not in parts.numbers_of(pod))),
                events=tuple(parts.events[index]),
                pod_rows=tuple(parts.pod_rows[index]),
                vpa_histories=tuple(parts.vpa_histories[index]),
            ),
            deleted.intersection(workload.ref for workload in parts.workloads[index]),
            parts.between(index, first, last),
            frozenset(parts.strangers[index]),
        )
        for index, (first, last) in enumerate(pairwise(bounds))
    ]


class _Parts:
    """The parts of the inventory that belong to each shard of a division, by the shard's number."""

    def __init__(self, inventory: Inventory, division: Division) -> None:
        self._firsts, self._places = division.firsts, _shard_keys(inventory.pods)
        # Names that came back under a workload of another shard.
        numbers = defaultdict[PodName, set[int]](set)
        repeated = Counter((pod.namespace, pod.name) for pod in inventory.pods)
        for pod in inventory.pods:
            name = pod.namespace, pod.name
            if repeated[name] > 1:
                numbers[name] |= {self._number(self._places[name]), self._number(_workload_key(pod.workload))}
        self._shared = dict(numbers)
        self.workloads, self.pods = defaultdict[int, list[Workload]](list), defaultdict[int, list[Pod]](list)
        self.events, self.strangers = defaultdict[int, list[Event]](list), defaultdict[int, set[PodName]](set)
        self.pod_rows = defaultdict[int, list[PodRow]](list)
        self.vpa_histories = defaultdict[int, list[VpaHistory]](list)
        for name, place in self._places.items():
            if (number := self._number(name)) != self._number(place):
                self.strangers[number].add(name)
        for workload in sorted(inventory.workloads, key=lambda w: w.ref.place):
            self.workloads[self._number(_workload_key(workload.ref))].append(workload)
        for pod in inventory.pods:
            for number in self.numbers_of(pod):
                self.pods[number].append(pod)
        for event in inventory.events:
            name = event.subject.namespace, event.subject.pod
            self.events[self._number(self._places.get(name, name))].append(event)
        for row in inventory.pod_rows:
            name = row.namespace, row.name
            self.pod_rows[self._number(self._places.get(name, name))].append(row)
        for history in inventory.vpa_histories:
            self.vpa_histories[self._number(_workload_key(history.container.workload))].append(history)

    def numbers_of(self, pod: Pod) -> set[int]:
        """Return the shards that need a pod: its series' shard, and those of workloads that had a pod of its name."""
        name = pod.namespace, pod.name
        return self._shared.get(name) or {self._number(self._places[name])}

    def between(self, index: int, first: Place | None, last: Place | None) -> Between:
        """Return the range of keys of the shard's pods and of unknown pods whose names would belong to it."""
        names = [(p.namespace, p.name) for p in self.pods[index]]
        own = [name for name in names if self._number(self._places[name]) == index]
        low: Key | None = None if first is None else min([first, *own])
        behind = [(namespace, name + chr(0)) for namespace, name in own]
        high: Key | None = None if last is None else max([last, *behind])
        return low, high

    def _number(self, place: Place) -> int:
        return bisect_right(self._firsts, place)


def _weights(inventory: Inventory, size: ShardSize) -> dict[Place, float]:
    """Return the fraction of a shard that each `Place` fills.

    It is the larger of its fractions of workloads and of series, as far as known.
    """
    containers = {w.ref: max(1, len(w.containers)) for w in inventory.workloads}
    places = _shard_keys(inventory.pods)
    series, workloads = Counter[Place](), Counter(_workload_key(w.ref) for w in inventory.workloads)
    for pod in inventory.pods:
        series[places[pod.namespace, pod.name]] += containers.get(pod.workload, 1)
    return {
        place: max(series[place] / size.series, workloads[place] / size.workloads) for place in {*series, *workloads}
    }


def _workload_key(ref: WorkloadRef) -> Place:
    return ref.namespace, ref.name


def _shard_keys(pods: Sequence[Pod]) -> dict[PodName, Place]:
    """Return the place of each pod name: that of the newest pod's workload, or its own if in another namespace."""
    newest: dict[PodName, Pod] = {}
    for pod in pods:
        name = pod.namespace, pod.name
        if name not in newest or pod.start_seconds >= newest[name].start_seconds:
            newest[name] = pod
    return {
        name: _workload_key(pod.workload) if pod.namespace == pod.workload.namespace else name
        for name, pod in newest.items()
    }
