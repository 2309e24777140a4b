"""Generates a cluster from a spec; the last module of the flow, read it first.

nodes, blueprints -> loads -> lives -> sizes -> places -> seats -> CPU and memory -> pods -> usage by signal
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cotenant.base.cluster import EventKind, Inventory, Node
from cotenant.base.identity import NodeRef, PodContainerRef
from cotenant.base.resource import GIB, Resource
from cotenant.base.usage.usage import DAY_SECONDS, HOUR_SECONDS, Signal, TimeGrid, Usage
from cotenant_lab.synthetic import bounds, demand, fleet, gpus, lifetimes, patterns, placement, pods, seats
from cotenant_lab.synthetic import size as sizing
from cotenant_lab.synthetic.demand import Crowd, Matrix
from cotenant_lab.synthetic.pods import ContainerSeries, SyntheticPods
from cotenant_lab.synthetic.seats import Seats
from cotenant_lab.synthetic.size import Sized
from cotenant_lab.synthetic.spec import SyntheticCluster, SyntheticSpec, Truth

NAME = "demo"
SERVER_VERSION = "1.35.4"


def generate(spec: SyntheticSpec, nodes: Sequence[Node] | None = None) -> SyntheticCluster:
    """Return the cluster of a spec, on `nodes` if given; the same spec gives the same bytes."""
    grid = spec.grid
    nodes = tuple(nodes) if nodes is not None else fleet.nodes(spec)
    plan = fleet.blueprints(spec, _stream(spec, 1))
    # One holiday in four weeks, on a working day two thirds in; none in a window under ten days.
    day = (grid.start_seconds // DAY_SECONDS + spec.days * 2 // 3) * DAY_SECONDS
    weekday = (day // DAY_SECONDS + 3) % 7
    holidays = (day - max(0, weekday - 4) * DAY_SECONDS,) if spec.days >= 10 else ()
    load = patterns.loads(plan, grid, holidays, _stream(spec, 2))
    lives = lifetimes.lives(plan, load, grid, _stream(spec, 3))
    running = np.array([life.running(grid.size - 1) for life in lives], dtype=float)
    sized = sizing.size(spec, plan, running, nodes)
    places = placement.assign_seats(sized, nodes)
    rows = seats.seats(spec, sized, lives, places, nodes)
    people = pods.populate(sized, lives, rows, nodes, (grid, _stream(spec, 4)))
    # Load that one replica carries: an autoscaled workload's is shared by those that run.
    for row in (row for row, blueprint in enumerate(plan) if blueprint.scaled):
        replicas = np.zeros(load.shape[1], dtype=np.float32)
        for start, end in (run for life in lives[row].seats for run in life.runs):
            replicas[max(start, 0) : max(end, 0)] += 1
        load[row] *= float(replicas.mean()) / np.maximum(replicas, 1.0)
    crowd = Crowd(plan, lives, load)
    usage, outages = _usage(spec, (rows, crowd, people), nodes, sized)
    if spec.rush:
        usage |= _gpu_usage(plan, people, usage[Signal.CPU_USAGE_MEAN], _stream(spec, 10))
    workloads = pods.workloads(sized, people.pods)
    inventory = Inventory(
        NAME, grid.end_seconds, nodes, workloads, people.pods, people.events,
        limit_ranges=bounds.limit_ranges(workloads), quotas=bounds.quotas(workloads), server_version=SERVER_VERSION,
    )  # fmt: skip
    truth = Truth({b.ref: b.shape for b in plan}, {b.ref: b.memory for b in plan}, holidays, outages)
    return SyntheticCluster(spec, inventory, usage, truth)


def _gpu_usage(
    plan: Sequence[fleet.Blueprint], people: SyntheticPods, cpu: Usage[PodContainerRef], rng: np.random.Generator
) -> dict[Signal, Usage[Any]]:
    """Usage and requests of GPUs, which the main container of each pod has."""
    uses, main = gpus.uses(plan), {b.ref: b.parts[0].name for b in plan}
    owner = {(pod.namespace, pod.name): pod.workload for pod in people.pods}

    def use_of(ref: PodContainerRef) -> gpus.GpuUse | None:
        workload = owner[ref.namespace, ref.pod]
        return uses.get(workload) if main[workload] == ref.container else None

    return gpus.usage(cpu, use_of, rng)


def _stream(spec: SyntheticSpec, stage: int) -> np.random.Generator:
    """A stage's own random numbers, so that a change in one stage leaves the others' draws alone."""
    return np.random.default_rng([spec.seed, stage])


def _usage(
    spec: SyntheticSpec, populated: tuple[Seats, Crowd, SyntheticPods], nodes: Sequence[Node], sized: Sequence[Sized]
) -> tuple[dict[Signal, Usage[Any]], tuple[tuple[int, int], ...]]:
    """All signals; scrape gaps strike every 5-minute signal of a node alike."""
    rows, crowd, people = populated
    grid = spec.grid
    gaps, outages = _gaps(grid, len(nodes), _stream(spec, 5))
    node_rows = [np.flatnonzero(rows.node == n) for n in range(len(nodes))]
    cpu = demand.cpu(rows, crowd, grid, _stream(spec, 6))
    node_cpu = _node_totals((cpu.mean, cpu.maximum, cpu.throttled), nodes, Resource.CPU, node_rows, _stream(spec, 7))
    cut = _Cutter(people.series, rows, gaps)
    limited = [
        series for series in people.series
        if Resource.CPU in sized[rows.workload[series.seat_row]].containers[rows.part[series.seat_row]].limits
    ]  # fmt: skip
    usage: dict[Signal, Usage[Any]] = {
        Signal.CPU_USAGE_MEAN: cut(Signal.CPU_USAGE_MEAN, cpu.mean, grid),
        Signal.CPU_USAGE_MAX: cut(Signal.CPU_USAGE_MAX, cpu.maximum, grid),
        Signal.CPU_THROTTLED_MEAN: _Cutter(limited, rows, gaps)(Signal.CPU_THROTTLED_MEAN, cpu.throttled, grid),
        Signal.NODE_CPU_USAGE_MEAN: _of_nodes(Signal.NODE_CPU_USAGE_MEAN, node_cpu, nodes, grid, gaps),
    }
    del cpu
    memory = demand.memory(rows, crowd, grid, _stream(spec, 8))
    node_memory = _node_totals((memory,), nodes, Resource.MEMORY, node_rows, _stream(spec, 9))
    usage[Signal.MEMORY_WORKING_SET_MAX] = cut(Signal.MEMORY_WORKING_SET_MAX, memory, grid)
    usage[Signal.NODE_MEMORY_WORKING_SET_MAX] = _of_nodes(
        Signal.NODE_MEMORY_WORKING_SET_MAX, node_memory, nodes, grid, gaps
    )
    usage |= _hourly_declared_amounts(people, rows, sized, spec.hours) | _hourly_event_counts(people, spec.hours)
    return usage, outages


class _Cutter:
    """Cuts the seats' matrices into the series of pods; everything outside a pod's life and in scrape gaps is NaN."""

    def __init__(self, series: Sequence[ContainerSeries], rows: Seats, gaps: npt.NDArray[np.bool_]) -> None:
        self.series, self.rows, self.gaps = series, rows, gaps

    def __call__(self, signal: Signal, values: Matrix, grid: TimeGrid) -> Usage[PodContainerRef]:
        """The series of one signal."""
        out = np.full((len(self.series), grid.size), np.nan, dtype=np.float32)
        for row, series in enumerate(self.series):
            out[row, series.start : series.end] = values[series.seat_row, series.start : series.end]
            out[row, self.gaps[self.rows.node[series.seat_row]]] = np.nan
        refs = tuple(series.ref for series in self.series)
        return Usage(refs, grid, out, signal.spec.resource, signal.spec.statistic)


def _gaps(
    grid: TimeGrid, nodes: int, rng: np.random.Generator
) -> tuple[npt.NDArray[np.bool_], tuple[tuple[int, int], ...]]:
    """Return the mask of the slots without a scrape, (nodes, grid.size), and the outages of the entire cluster.

    There is an outage of everything every two weeks, and a gap of some single nodes. Outages are [start, end) in Unix
    seconds.
    """
    gaps = rng.random((nodes, grid.size)) < 0.0008
    outages = []
    for _ in range(grid.size // (14 * grid.slots_per_day)):
        start, length = int(rng.integers(0, grid.size - 24)), int(rng.integers(5, 13))
        gaps[:, start : start + length] = True
        began = grid.start_seconds + start * grid.step_seconds
        outages.append((began, began + length * grid.step_seconds))
    for node in np.flatnonzero(rng.random(nodes) < 0.1):
        start = int(rng.integers(0, grid.size - 1))
        gaps[node, start : start + int(rng.integers(3, 30))] = True
    return gaps, tuple(sorted(outages))


def _node_totals(
    matrices: tuple[Matrix, ...],
    nodes: Sequence[Node],
    resource: Resource,
    node_rows: Sequence[npt.NDArray[np.int64]],
    rng: np.random.Generator,
) -> Matrix:
    """Usage of every node, pods plus system; where it would pass 98 % of capacity, the pods are squeezed in place."""
    total = np.zeros((len(nodes), matrices[0].shape[1]), dtype=np.float32)
    for n, (node, mine) in enumerate(zip(nodes, node_rows, strict=True)):
        level = system_level(node.capacity[resource], resource)  # of kubelet, runtime and kernel, with noise
        system = (level * np.exp(0.08 * rng.standard_normal(matrices[0].shape[1]))).astype(np.float32)
        pods_total = matrices[0][mine].sum(axis=0, dtype=np.float32)
        available = np.maximum(0.98 * node.capacity[resource] - system, 0.0)
        squeeze = np.minimum(available / np.maximum(pods_total, 1.0), 1.0).astype(np.float32)
        if (squeeze < 1.0).any():
            for matrix in matrices:
                matrix[mine] *= squeeze
        total[n] = pods_total * squeeze + system
    return total


def system_level(capacity: float, resource: Resource) -> float:
    """Return the mean usage of kubelet, runtime and kernel, in millicores or bytes.

    It is 1.5 % of the cores and 80m, and 1 % of the memory and 1 GiB.
    """
    return 0.015 * capacity + 80 if resource is Resource.CPU else 0.01 * capacity + GIB


def _of_nodes(
    signal: Signal, values: Matrix, nodes: Sequence[Node], grid: TimeGrid, gaps: npt.NDArray[np.bool_]
) -> Usage[NodeRef]:
    values[gaps] = np.nan
    return Usage(tuple(NodeRef(n.name) for n in nodes), grid, values, signal.spec.resource, signal.spec.statistic)


_DECLARED = {
    Signal.CPU_REQUEST: ("effective_requests", Resource.CPU),
    Signal.CPU_LIMIT: ("limits", Resource.CPU),
    Signal.MEMORY_REQUEST: ("effective_requests", Resource.MEMORY),
    Signal.MEMORY_LIMIT: ("limits", Resource.MEMORY),
}


def _hourly_declared_amounts(
    people: SyntheticPods, rows: Seats, sized: Sequence[Sized], hours: TimeGrid
) -> dict[Signal, Usage[Any]]:
    """Requests and limits by the hour, for the containers of pods that have them: the API server has copied limits."""
    usage: dict[Signal, Usage[Any]] = {}
    for signal, (field, resource) in _DECLARED.items():
        having, amounts = list[ContainerSeries](), list[float]()
        for series in people.series:
            container = sized[rows.workload[series.seat_row]].containers[rows.part[series.seat_row]]
            if (amount := getattr(container, field).get(resource)) is not None:
                having.append(series)
                amounts.append(float(amount))
        refs = tuple(series.ref for series in having)
        usage[signal] = Usage(refs, hours, _hourly(having, amounts, hours), resource, signal.spec.statistic)
    return usage


def _hourly_event_counts(people: SyntheticPods, hours: TimeGrid) -> dict[Signal, Usage[Any]]:
    """Kills and restarts per hour: 0 while a container lives, NaN else."""
    refs = tuple(series.ref for series in people.series)
    index = {ref: row for row, ref in enumerate(refs)}
    usage: dict[Signal, Usage[Any]] = {}
    for signal, kind in ((Signal.OOM_KILLS, EventKind.OOM_KILL), (Signal.RESTARTS, EventKind.RESTART)):
        values = _hourly(people.series, [0.0] * len(refs), hours)
        for event in people.events:
            if event.kind is kind:
                values[index[event.subject], hours.index_of(event.time_seconds)] += 1.0
        usage[signal] = Usage(refs, hours, values, None, signal.spec.statistic)
    return usage


def _hourly(series: Sequence[ContainerSeries], amounts: Sequence[float], hours: TimeGrid) -> Matrix:
    """Rows that hold one amount in every hour the series touches, NaN else."""
    slots = HOUR_SECONDS // 300
    values = np.full((len(series), hours.size), np.nan, dtype=np.float32)
    for row, (pod_series, amount) in enumerate(zip(series, amounts, strict=True)):
        values[row, pod_series.start // slots : -(-pod_series.end // slots)] = amount
    return values
