"""Pods of all seats, running and gone, with names as in Kubernetes, and the events of their lives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cotenant.base.cluster import Event, EventKind, Node, Pod, Workload
from cotenant.base.identity import PodContainerRef
from cotenant.base.resource import Resource
from cotenant.base.usage.usage import TimeGrid
from cotenant_lab.synthetic.lifetimes import FOREVER, Lives
from cotenant_lab.synthetic.seats import Seats
from cotenant_lab.synthetic.size import Sized

_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""What Kubernetes draws random name suffixes from."""


@dataclass(frozen=True, slots=True)
class ContainerSeries:
    """A container of one pod: row `seat_row` of the seats' matrices, in slots [start, end) of the grid."""

    ref: PodContainerRef
    seat_row: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SyntheticPods:
    """All pods, their containers' series sorted by reference, and their events."""

    pods: tuple[Pod, ...]
    series: tuple[ContainerSeries, ...]
    events: tuple[Event, ...]


def populate(
    fleet: Sequence[Sized],
    lives: Sequence[Lives],
    seats: Seats,
    nodes: Sequence[Node],
    drawn: tuple[TimeGrid, np.random.Generator],
) -> SyntheticPods:
    """Return a pod for every run of every placed seat; `drawn` has the grid and the generator of random names."""
    grid, rng = drawn
    pods: list[Pod] = []
    series: list[ContainerSeries] = []
    events: list[Event] = []
    parts = _rows_by_seat(seats)
    for (workload, seat), rows in parts.items():
        sized, life = fleet[workload], lives[workload].seats[seat]
        for start, end in life.runs:
            if end <= 0 or start >= grid.size:
                continue
            name = _name(sized, lives[workload], (seat, start), grid, rng)
            pods.append(_pod(sized, name, nodes[int(seats.node[rows[0]])].name, (start, end), grid))
            pod_series = [_series(sized, name, int(row), seats, (start, end), grid) for row in rows]
            series += pod_series
            events += _events(sized, lives[workload], seat, pod_series[0], grid)
    return SyntheticPods(
        tuple(sorted(pods, key=lambda pod: (pod.namespace, pod.name))),
        tuple(sorted(series, key=lambda series: series.ref)),
        tuple(sorted(events, key=lambda event: (event.time_seconds, event.kind, event.subject))),
    )


def workloads(fleet: Sequence[Sized], pods: Sequence[Pod]) -> tuple[Workload, ...]:
    """Return the controllers with their templates; `replicas` counts running pods."""
    running: dict[object, int] = {}
    for pod in pods:
        running[pod.workload] = running.get(pod.workload, 0) + pod.running
    controllers = [
        Workload(
            sized.blueprint.ref, running.get(sized.blueprint.ref, 0), sized.template, sized.blueprint.qos,
            sized.blueprint.priority, sized.blueprint.autoscaler, dict(sized.blueprint.labels),
            dict(sized.blueprint.annotations),
        )
        for sized in fleet
    ]  # fmt: skip
    return tuple(sorted(controllers, key=lambda workload: workload.ref))


def _rows_by_seat(seats: Seats) -> dict[tuple[int, int], list[int]]:
    rows: dict[tuple[int, int], list[int]] = {}
    for row, key in enumerate(zip(seats.workload.tolist(), seats.seat.tolist(), strict=True)):
        rows.setdefault(key, []).append(row)
    return rows


def _name(sized: Sized, lives: Lives, which: tuple[int, int], grid: TimeGrid, rng: np.random.Generator) -> str:
    """The pod's name by its kind; the ReplicaSet's hash changes with every deploy."""
    (seat, start), ref = which, sized.blueprint.ref
    if ref.kind == "Pod":
        return ref.name
    if ref.kind == "StatefulSet":
        return f"{ref.name}-{seat}"
    if ref.kind == "Deployment":
        generation = sum(slot <= start for slot in lives.deploys)
        return f"{ref.name}-{_template_hash(str(ref), generation)}-{_suffix(5, rng)}"
    if ref.kind == "CronJob":
        return f"{ref.name}-{(grid.start_seconds + start * grid.step_seconds) // 60}-{_suffix(5, rng)}"
    return f"{ref.name}-{_suffix(5, rng)}"


def _template_hash(name: str, generation: int) -> str:
    """Nine letters that stand for a pod template, the same for all pods of one generation."""
    draw = np.random.default_rng([generation, *name.encode()])
    return _suffix(9, draw)


def _suffix(length: int, rng: np.random.Generator) -> str:
    return "".join(_LETTERS[i] for i in rng.integers(0, len(_LETTERS), length))


def _pod(sized: Sized, name: str, node: str, run: tuple[int, int], grid: TimeGrid) -> Pod:
    blueprint = sized.blueprint
    start, end = (grid.start_seconds + slot * grid.step_seconds for slot in run)
    requests = {resource: amount for resource, amount in sized.request.items() if amount}
    ended = None if run[1] >= FOREVER else end
    return Pod(
        blueprint.ref.namespace, name, blueprint.ref, node, start, ended,
        qos=blueprint.qos, priority=blueprint.priority, requests=requests,
    )  # fmt: skip


def _series(sized: Sized, pod: str, row: int, seats: Seats, run: tuple[int, int], grid: TimeGrid) -> ContainerSeries:
    container = sized.containers[int(seats.part[row])].name
    ref = PodContainerRef(sized.blueprint.ref.namespace, pod, container)
    return ContainerSeries(ref, row, max(run[0], 0), min(run[1], grid.size))


def _events(sized: Sized, lives: Lives, seat: int, main: ContainerSeries, grid: TimeGrid) -> list[Event]:
    """Kills and restarts of the pod's main container; a deploy is told once, by the first seat's new pod."""
    events: list[Event] = []
    limit = sized.containers[0].limits.get(Resource.MEMORY)
    for restart in lives.seats[seat].restarts:
        if main.start < restart.slot < main.end:
            moment = grid.start_seconds + restart.slot * grid.step_seconds
            if restart.oom:
                events.append(Event(moment, EventKind.OOM_KILL, main.ref, limit))
            events.append(Event(moment, EventKind.RESTART, main.ref))
    in_place = sized.blueprint.ref.kind == "StatefulSet"
    deploy_slots = (
        [s for s in lives.deploys if s == main.start or (in_place and main.start < s < main.end)] if seat == 0 else []
    )
    return events + [
        Event(grid.start_seconds + s * grid.step_seconds, EventKind.DEPLOY, main.ref) for s in deploy_slots
    ]
