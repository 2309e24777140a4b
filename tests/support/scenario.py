"""A small cluster over some days, as matrices: history for the strategies, the days after it for the judgement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from cotenant.base.cluster import Event, EventKind, Inventory, LimitRange, Node, Pod, Quota, Workload
from cotenant.base.identity import PodContainerRef, WorkloadRef
from cotenant.base.resource import GIB, Resource
from cotenant.base.usage.usage import DAY_SECONDS, Signal, TimeGrid, Usage
from cotenant.profiler.pool import by_container, demand
from cotenant.profiler.portrait import build
from cotenant.profiler.settings import PortraitSettings
from cotenant.recommender.base import load_strategy
from cotenant.recommender.evidence import Evidence, assemble
from cotenant.recommender.model.recommendation import Field, Recommendation, Value
from cotenant.recommender.model.sibling import Sibling
from cotenant.recommender.settings import RecommenderSettings
from cotenant.recommender.siblings import related_families

CPU, MEMORY = Resource.CPU, Resource.MEMORY
STEP = 300
DAY = DAY_SECONDS // STEP
HOUR = 12
MONDAY = 1_791_158_400
"""2026-10-05 00:00 UTC: every scenario begins here."""
SIGNALS = {
    "cpu": Signal.CPU_USAGE_MEAN,
    "throttled": Signal.CPU_THROTTLED_MEAN,
    "memory": Signal.MEMORY_WORKING_SET_MAX,
}
NODE = Node("node-1", {CPU: 16_000, MEMORY: 64 * GIB}, {CPU: 15_600, MEMORY: 62 * GIB})


def steady(amount: float, days: float) -> np.ndarray:
    """The same amount in every slot."""
    return np.full(round(days * DAY), float(amount))


@dataclass
class Track:
    """A container of one pod from slot `begins` on; arrays in millicores and bytes, None = no series."""

    workload: WorkloadRef
    pod: str
    cpu: Any = None
    memory: Any = None
    throttled: Any = None
    container: str = "app"
    begins: int = 0
    node: str = "node-1"
    kills: Sequence[int] = ()
    """Slots with an OOM kill under the template's limit."""

    @property
    def ref(self) -> PodContainerRef:
        return PodContainerRef(self.workload.namespace, self.pod, self.container)

    @property
    def length(self) -> int:
        return max(len(a) for a in (self.cpu, self.memory) if a is not None)


@dataclass
class Scenario:
    """Everything that happens; strategies see the first `history_days` of `days`."""

    workloads: Sequence[Workload]
    tracks: Sequence[Track]
    days: float
    history_days: float
    nodes: Sequence[Node] = (NODE,)
    limit_ranges: Sequence[LimitRange] = ()
    quotas: Sequence[Quota] = ()
    pods: Sequence[Pod] = field(default_factory=list)
    """Further pods, without usage."""
    siblings: Sequence[Sibling] = ()
    """What an analysis before knew of others."""

    def usage(self) -> dict[Signal, Usage[PodContainerRef]]:
        """All series over all days."""
        grid = TimeGrid(MONDAY, STEP, round(self.days * DAY))
        by_signal = {}
        for name, signal in SIGNALS.items():
            tracks = [t for t in self.tracks if getattr(t, name) is not None]
            values = np.full((len(tracks), grid.size), np.nan, dtype=np.float32)
            for row, track in zip(values, tracks, strict=True):
                samples = np.asarray(getattr(track, name))[: grid.size - track.begins]
                row[track.begins : track.begins + len(samples)] = samples
            spec = signal.spec
            by_signal[signal] = Usage(tuple(t.ref for t in tracks), grid, values, spec.resource, spec.statistic)
        return by_signal

    def inventory(self) -> Inventory:
        """What is known at the end of the history."""
        end = MONDAY + round(self.history_days * DAY) * STEP
        pods = {t.pod: self._pod(t) for t in self.tracks if t.begins < round(self.history_days * DAY)}
        events = [
            Event(MONDAY + slot * STEP, EventKind.OOM_KILL, t.ref)
            for t in self.tracks
            for slot in t.kills
            if MONDAY + slot * STEP < end
        ]
        return Inventory(
            "test",
            end,
            tuple(self.nodes),
            tuple(self.workloads),
            (*pods.values(), *self.pods),
            tuple(events),
            limit_ranges=tuple(self.limit_ranges),
            quotas=tuple(self.quotas),
        )

    def _pod(self, track: Track) -> Pod:
        start = MONDAY + track.begins * STEP if track.begins else MONDAY - 30 * DAY_SECONDS
        last = track.begins + track.length
        end = None if last >= round(self.history_days * DAY) else MONDAY + last * STEP
        return Pod(track.workload.namespace, track.pod, track.workload, track.node, start, end)

    def evidence(self, inventory: Inventory | None = None) -> Evidence:
        """The history as the analysis hands it on: the profiler's portraits, the recommender's evidence."""
        given_inventory = inventory or self.inventory()
        slots = round(self.history_days * DAY)
        usage = {s: _first(u, slots) for s, u in self.usage().items()}
        demanded = demand(usage[Signal.CPU_USAGE_MEAN], usage[Signal.CPU_THROTTLED_MEAN])
        portraits = {}
        for resource, series in ((CPU, demanded), (MEMORY, usage[Signal.MEMORY_WORKING_SET_MAX])):
            members = by_container(series.refs, given_inventory)
            portraits[resource] = build(members.refs, members.rows, series, PortraitSettings(), members.start_seconds)
        own_evidence = assemble(given_inventory, TimeGrid(MONDAY, STEP, slots), usage, portraits)
        return replace(own_evidence, siblings=related_families(self.siblings, own_evidence.containers))

    def held_out(self, resource: Resource, workload: WorkloadRef | None = None) -> np.ndarray:
        """Demand (usage + throttled) or working set after the history, (pods, slots); pods without any are left out."""
        usage, since = self.usage(), round(self.history_days * DAY)
        if resource is MEMORY:
            series = usage[Signal.MEMORY_WORKING_SET_MAX]
        else:
            series = demand(usage[Signal.CPU_USAGE_MEAN], usage[Signal.CPU_THROTTLED_MEAN])
        mine = [i for i, r in enumerate(series.refs) if workload is None or self._owner(r) == workload]
        values = series.values[mine, since:]
        return values[np.isfinite(values).any(axis=1)].astype(np.float64)

    def _owner(self, ref: PodContainerRef) -> WorkloadRef:
        return next(t.workload for t in self.tracks if t.ref == ref)

    def recommendations(self, strategy: str, settings: RecommenderSettings | None = None) -> dict[str, Recommendation]:
        """Recommendations of a strategy by "workload/container"."""
        recommendations = load_strategy(strategy).recommend(self.evidence(), settings or RecommenderSettings())
        return {f"{r.container.workload.name}/{r.container.container}": r for r in recommendations}

    def recommendation(self, strategy: str, settings: RecommenderSettings | None = None) -> Recommendation:
        """The first container's recommendation."""
        return next(iter(self.recommendations(strategy, settings).values()))


def value(recommendation: Recommendation, resource: Resource, which: Field = Field.REQUEST) -> Value:
    """The field's value, which the strategy must have spoken about."""
    field_value = recommendation.value(resource, which)
    assert field_value is not None, f"{recommendation.strategy} says nothing about {resource} {which}"
    return field_value


def amount(recommendation: Recommendation, resource: Resource, which: Field = Field.REQUEST) -> int:
    """The proposed amount, which must be there."""
    field_amount = value(recommendation, resource, which).amount
    assert field_amount is not None, (
        f"{recommendation.strategy} withholds {resource} {which}: {value(recommendation, resource, which).reason}"
    )
    return field_amount


def _first(usage: Usage[PodContainerRef], slots: int) -> Usage[PodContainerRef]:
    grid = TimeGrid(usage.grid.start_seconds, STEP, slots)
    return Usage(usage.refs, grid, usage.values[:, :slots], usage.resource, usage.statistic)
