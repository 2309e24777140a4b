"""Evidence: the input of every strategy, as columns over n containers. The recommender's first stage, pure.

The pipeline calls `assemble` once per run with data from profiler and store; every strategy reads the same object.
Amounts are in the resource's unit; NaN in a float column means "not known" or "not set".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from dataclasses import field as attribute
from typing import Final

import numpy as np
import numpy.typing as npt

from cotenant.base.cluster import ContainerRole, Event, EventKind, Inventory, Workload
from cotenant.base.identity import ContainerRef, PodContainerRef, WorkloadRef
from cotenant.base.resource import Resource
from cotenant.base.usage.lives import Lives, SourceSilence
from cotenant.base.usage.portrait import Portraits
from cotenant.base.usage.samples import PodGap, measured
from cotenant.base.usage.server_quantiles import ServerQuantiles
from cotenant.base.usage.unshown import UnshownUse
from cotenant.base.usage.usage import HOUR_SECONDS, FloatMatrix, Signal, TimeGrid, Usage, exact_amount
from cotenant.recommender.model.recommendation import Field
from cotenant.recommender.model.sibling import Siblings

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
MEASURED: Final = {Resource.CPU: Signal.CPU_USAGE_MEAN, Resource.MEMORY: Signal.MEMORY_WORKING_SET_MAX}
"""Signal that shows whether a container's use of a resource was measured."""
RowSummary = Callable[[FloatMatrix], Floats]
"""From (m, T) values with gaps to one number a row, NaN where a row has none."""


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """All data about n containers. Row i of every column, and `workloads[i]`, belong to `containers[i]`.

    `requests` and `limits` are the template's, (n,), NaN = not set. `portraits` are of one pod: CPU of its demand
    (usage + throttled), memory of its working set; `portrait_rows` has each container's row in them, (n,), -1 = none.
    `usage` has one series per pod; `usage_rows` has by signal the container index of each series, -1 = a container
    outside of this evidence. `oom_kills` are per container, oldest first. `server` has the metric server's answers,
    `server_rows` their containers. `inventory` has nodes, quotas, LimitRanges and running DaemonSet pods of the whole
    cluster, and at least these containers' workloads, pods and events. `least_margins`, (n,), are lower bounds of the
    margins of `day_risk`, derived from those of the previous analysis, NaN = none. `siblings` is what the previous
    analysis knew of containers that may be siblings of these.
    """

    containers: tuple[ContainerRef, ...]
    workloads: tuple[Workload, ...]
    window: TimeGrid
    requests: Mapping[Resource, Floats]
    limits: Mapping[Resource, Floats]
    portraits: Mapping[Resource, Portraits[ContainerRef]]
    portrait_rows: Mapping[Resource, Integers]
    usage: Mapping[Signal, Usage[PodContainerRef]]
    usage_rows: Mapping[Signal, Integers]
    oom_kills: tuple[tuple[Event, ...], ...]
    server: ServerQuantiles | None = None
    server_rows: Mapping[PodContainerRef, int] = attribute(default_factory=dict)
    inventory: Inventory = attribute(default_factory=lambda: Inventory("", 0, (), (), ()))
    least_margins: Floats = attribute(default_factory=lambda: np.full(1, np.nan))
    coverage: Mapping[Resource, Floats] = attribute(default_factory=dict)
    """Share, (n,), of the pods' running time with samples, for each resource with a portrait; 0 = no sample."""
    gaps: Mapping[Resource, Mapping[ContainerRef, PodGap]] = attribute(default_factory=dict)
    """Of each measured container, the longest time without a sample of a living pod while some node reported."""
    unshown: UnshownUse | None = None
    siblings: Siblings = attribute(default_factory=dict)

    def __len__(self) -> int:
        return len(self.containers)

    def take(self, index: npt.NDArray[np.integer]) -> Evidence:
        """Return the evidence of the containers at these positions alone; matrices are shared, not copied."""
        place = np.full(len(self) + 1, -1, dtype=np.int64)
        place[index] = np.arange(len(index))
        return replace(
            self,
            containers=tuple(self.containers[i] for i in index),
            workloads=tuple(self.workloads[i] for i in index),
            requests={r: column[index] for r, column in self.requests.items()},
            limits={r: column[index] for r, column in self.limits.items()},
            portrait_rows={r: rows[index] for r, rows in self.portrait_rows.items()},
            usage_rows={s: place[rows] for s, rows in self.usage_rows.items()},
            oom_kills=tuple(self.oom_kills[i] for i in index),
            server_rows={pod: int(place[row]) for pod, row in self.server_rows.items()},
            least_margins=np.broadcast_to(self.least_margins, len(self))[index],
            coverage={r: column[index] for r, column in self.coverage.items()},
        )

    def now(self, index: int, resource: Resource, field: Field) -> int | None:
        """Return the amount in the container's template as an exact integer; None if it is not set."""
        container = self.workloads[index].container(self.containers[index].container)
        if container is None:
            return None
        return (container.requests if field is Field.REQUEST else container.limits).get(resource)

    def effective_request(self, resource: Resource) -> Floats:
        """Return the request of each container that the scheduler counts: the request, else the limit, else NaN."""
        return counted_requests(self.requests[resource], self.limits[resource])

    def replicas(self, index: int) -> int:
        """Return the number of running pods with the container, or of all running pods if the template lacks it."""
        workload = self.workloads[index]
        container = workload.container(self.containers[index].container)
        return workload.replicas if container is None else workload.pods_with(container)

    def role(self, index: int) -> ContainerRole:
        """Return the role of the container in its pods; the role of a main container if the template lacks it."""
        container = self.workloads[index].container(self.containers[index].container)
        return container.role if container else ContainerRole.MAIN

    def from_portrait(self, resource: Resource, column: Floats) -> Floats:
        """Return a column of the resource's portraits in the order of `containers`; NaN without a portrait."""
        rows = self.portrait_rows[resource]
        return np.append(column, np.nan)[rows]

    def highest(self, signal: Signal) -> Floats:
        """Return by container the highest stored value of a signal over pods and time slots; NaN if none is finite."""
        return self.highest_of_pods(signal, row_maximum)

    def highest_seen(self, resource: Resource) -> Floats:
        """Return by container the highest stored usage of any pod, from the resource's finest signals, or NaN."""
        if resource is Resource.MEMORY:
            return self.highest(Signal.MEMORY_WORKING_SET_MAX)
        return np.fmax(self.highest(Signal.CPU_USAGE_MEAN), self.highest(Signal.CPU_USAGE_MAX))

    def highest_of_pods(self, signal: Signal, summary: RowSummary) -> Floats:
        """Summarize each pod's series by `summary`; return the highest result by container, NaN if none is finite."""
        highest = np.full(len(self) + 1, -np.inf)
        if signal in self.usage and self.usage[signal].values.size:
            each = summary(self.usage[signal].values)
            np.maximum.at(highest, self.usage_rows[signal], np.where(np.isfinite(each), each, -np.inf))
        return np.where(np.isfinite(highest), highest, np.nan)[:-1]

    def lone_sample_ratio(self, signal: Signal) -> Floats:
        """Return by container the highest sample divided by the second highest; NaN without two samples above 0."""
        ratios = np.full(len(self), np.nan)
        for container, values in self.by_container(signal):
            samples = values[np.isfinite(values) & (values > 0)]
            if samples.size > 1:
                second, first = np.partition(samples, -2)[-2:].tolist()
                ratios[container] = first / second
        return ratios

    def observed_seconds(self, signal: Signal) -> Floats:
        """Return the seconds in which at least one pod of each container was measured; simultaneous pods count once."""
        sampled_slots = np.zeros(len(self))
        for container, values in self.by_container(signal):
            sampled_slots[container] = np.isfinite(values).any(axis=0).sum()
        return sampled_slots * (self.usage[signal].grid.step_seconds if signal in self.usage else 0)

    def by_container(self, signal: Signal) -> Iterator[tuple[int, FloatMatrix]]:
        """Yield (container's position, its pods' series) for every container with series."""
        if signal not in self.usage:
            return
        rows = self.usage_rows[signal]
        order = np.argsort(rows, kind="stable")
        for owner, start, count in zip(*np.unique(rows[order], return_index=True, return_counts=True), strict=True):
            if owner >= 0:
                yield int(owner), self.usage[signal].values[order[start : start + count]]

    def by_workload(self) -> Iterator[tuple[Workload, list[int]]]:
        """Return (workload, positions of its containers) for each workload, in the order of their first containers."""
        positions: dict[WorkloadRef, list[int]] = defaultdict(list)
        for index, container in enumerate(self.containers):
            positions[container.workload].append(index)
        return ((self.workloads[own[0]], own) for own in positions.values())

    def pods_seen(self, signal: Signal) -> Integers:
        """Return each container's number of pods with a series, including pods that are gone."""
        rows = self.usage_rows.get(signal, np.empty(0, dtype=np.int64))
        return np.bincount(rows[rows >= 0], minlength=len(self))

    def at(self, signal: Signal, pod: PodContainerRef, seconds: int) -> float:
        """Return the newest stored value of one pod's series at or before a Unix time; NaN if there is none."""
        usage = self.usage.get(signal)
        if usage is None or pod not in usage.row_of:
            return np.nan
        row = usage.values[usage.row_of[pod], : max(0, usage.grid.index_of(seconds) + 1)]
        samples = row[np.isfinite(row)]
        return float(samples[-1]) if samples.size else np.nan

    def limit_at(self, index: int, kill: Event) -> float:
        """Return the memory limit at an OOM kill: the recorded one, else the event's, else the template's; else NaN.

        The limit recorded for the hour before is used first, because that of the kill's hour may be a reaction to the
        kill.
        """
        hour_before = kill.time_seconds // HOUR_SECONDS * HOUR_SECONDS - 1
        recorded = (self.at(Signal.MEMORY_LIMIT, kill.subject, when) for when in (hour_before, kill.time_seconds))
        amounts = (float(exact_amount(limit)) for limit in recorded if np.isfinite(limit))
        limits = (*amounts, float(kill.memory_limit_bytes or np.nan), float(self.limits[Resource.MEMORY][index]))
        return next((limit for limit in limits if np.isfinite(limit) and limit > 0), np.nan)

    def last_seconds(self, seconds: float) -> Evidence:
        """Return the evidence of the same containers with only the last `seconds` of stored usage and of OOM kills."""
        tails = {s: u.tail(int(seconds // u.grid.step_seconds)) for s, u in self.usage.items()}
        start = self.window.end_seconds - seconds
        kills = tuple(tuple(e for e in k if e.time_seconds >= start) for k in self.oom_kills)
        window = self.window.last(int(seconds // self.window.step_seconds))
        return replace(self, usage=tails, oom_kills=kills, window=window)

    def scaled_by_autoscaler(self, resource: Resource) -> npt.NDArray[np.bool_]:
        """Return for each container whether a HorizontalPodAutoscaler follows the utilization of this resource."""
        scaled = (w.autoscaler is not None and w.autoscaler.follows(resource) for w in self.workloads)
        return np.fromiter(scaled, dtype=np.bool_, count=len(self))


def assemble(
    inventory: Inventory,
    window: TimeGrid,
    usage: Mapping[Signal, Usage[PodContainerRef]],
    portraits: Mapping[Resource, Portraits[ContainerRef]],
    *,
    server: ServerQuantiles | None = None,
    silence: SourceSilence | None = None,
) -> Evidence:
    """Join all data about every container of the inventory's workloads, in the inventory's order.

    `silence` has the gaps of the whole cluster's metrics source. If it is None, a pod is assumed to have lived from the
    first to the last sample of any pod of its container.
    """
    pairs = [(ContainerRef(w.ref, c.name), w, c) for w in inventory.workloads for c in w.containers]
    containers = tuple(ref for ref, _, _ in pairs)
    place = {ref: index for index, ref in enumerate(containers)}
    owners = inventory.owners()

    def index_of(series: PodContainerRef) -> int:
        ref = inventory.container_of(series, owners)
        return -1 if ref is None else place.get(ref, -1)

    kills: list[list[Event]] = [[] for _ in containers]
    for event in sorted(inventory.events, key=lambda e: e.time_seconds):
        if event.kind is EventKind.OOM_KILL and (index := index_of(event.subject)) >= 0:
            kills[index].append(event)
    rows: dict[Signal, Integers] = {}
    looked_up: list[tuple[tuple[PodContainerRef, ...], Integers]] = []
    for signal, series in usage.items():  # most signals have the same series, which are looked up once
        found_rows = next((rows_known for refs, rows_known in looked_up if refs == series.refs), None)
        if found_rows is None:
            found_rows = np.array([index_of(ref) for ref in series.refs], dtype=np.int64)
            looked_up.append((series.refs, found_rows))
        rows[signal] = found_rows
    by_portrait: dict[Resource, Integers] = {}
    covered: dict[Resource, Floats] = {}
    for resource, portrait in portraits.items():
        row_of = {ref: row for row, ref in enumerate(portrait.refs)}
        by_portrait[resource] = np.array([row_of.get(ref, -1) for ref in containers], dtype=np.int64)
        covered[resource] = np.nan_to_num(np.append(portrait.coverage, np.nan)[by_portrait[resource]])
    gaps: dict[Resource, dict[ContainerRef, PodGap]] = {}
    if silence is not None:
        own = Lives.of(silence, inventory, usage)
        for resource, signal in MEASURED.items():
            if resource in portraits and signal in usage:
                series_found = measured(own, usage[signal], rows[signal], index_of, len(containers))
                covered[resource] = series_found.shares
                gaps[resource] = {containers[index]: gap for index, gap in series_found.gaps.items()}
    return Evidence(
        containers=containers,
        workloads=tuple(w for _, w, _ in pairs),
        window=window,
        requests={r: _amounts([c.requests.get(r) for _, _, c in pairs]) for r in Resource},
        limits={r: _amounts([c.limits.get(r) for _, _, c in pairs]) for r in Resource},
        portraits=portraits,
        portrait_rows=by_portrait,
        usage=usage,
        usage_rows=rows,
        oom_kills=tuple(tuple(k) for k in kills),
        server=server,
        server_rows={pod: index_of(pod) for pod in (server.pods if server else ())},
        inventory=inventory,
        coverage=covered,
        gaps=gaps,
    )


def counted_requests(requests: Floats, limits: Floats) -> Floats:
    """Return the requests that the scheduler counts for containers: the request, else the limit, else NaN."""
    return np.where(np.isfinite(requests), requests, limits)


def row_maximum(values: FloatMatrix) -> Floats:
    """Return the highest finite value of each row; NaN without a finite value."""
    highest = np.where(np.isfinite(values), values, -np.inf).max(axis=1, initial=-np.inf)
    return np.where(np.isfinite(highest), highest, np.nan).astype(np.float64)


def row_percentile(fraction: float) -> RowSummary:
    """Return a function that computes a percentile of each row's finite values, interpolated as in Prometheus."""

    def percentile(values: FloatMatrix) -> Floats:
        finite = np.where(np.isfinite(values), values, np.nan)
        ordered = np.sort(np.pad(finite, ((0, 0), (0, 1)), constant_values=np.nan), axis=1)  # NaN sorts last
        count = np.isfinite(ordered).sum(axis=1)
        rank = fraction * np.maximum(count - 1, 0)
        low = np.floor(rank).astype(np.int64)
        pairs = np.stack([low, np.minimum(low + 1, np.maximum(count - 1, 0))], axis=1)
        ends = np.take_along_axis(ordered, pairs, axis=1)
        between = ends[:, 0].astype(np.float64) * (1 - (rank - low)) + ends[:, 1].astype(np.float64) * (rank - low)
        return np.where(count > 0, between, np.nan)

    return percentile


def _amounts(amounts: list[int | None]) -> Floats:
    return np.array([np.nan if amount is None else amount for amount in amounts], dtype=np.float64)
