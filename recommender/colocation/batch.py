"""The batch capacity of each node over the next day, and the times at which a job's pod fits. Pure, vectorised.

The batch capacity of a half hour is read from the stored analysis, which applies the formula of the present batch
amount to the forecast of prod's usage. A job fits at a start time if its pod finds free capacity in every half hour of
its run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import parse_qs

import numpy as np
import numpy.typing as npt

from cotenant.base.errors import UsageError
from cotenant.base.resource import GIB, MILLICORES_PER_CORE, Resource
from cotenant.base.table import Table
from cotenant.base.tables.queries import Relation
from cotenant.base.usage.usage import HOUR_SECONDS
from cotenant.recommender.colocation.model.batch_totals import batch_pods
from cotenant.recommender.colocation.model.lendable import LEVELS, LIKELY, NODE_HISTORY, SURE
from cotenant.recommender.model.views import NODES, PODS

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

STEP_SECONDS: Final = 1800
PATHS: Final = {LIKELY: "batch_likely", SURE: "batch_sure"}
"""Columns of NODE_HISTORY that capacity is given by: as likely as not, and 95 % sure of each node by itself."""
AHEAD: Final = replace(
    NODE_HISTORY, columns=tuple(NODE_HISTORY.column(name) for name in ("node", "resource", "ahead", *PATHS.values()))
)
"""NODE_HISTORY without the past, which is much longer."""
NOT_DRAWN: Final = "Past hours that depend on a forecast are not drawn, because past forecasts are not stored."
MOST_WINDOWS: Final = 6
MOST_HOURS: Final = 24.0
MOST_CORES: Final = 4096.0
MOST_GIB: Final = 65_536.0


@dataclass(frozen=True, slots=True, eq=False)
class LendableCapacity:
    """Batch capacity of n nodes in T half hours from `start_seconds`, in the resource's unit; NaN if not known.

    `capacity`, (n, T) by (resource, certainty), is all that batch pods may use; `used`, (n,), is what they use now.
    """

    nodes: tuple[str, ...]
    start_seconds: int
    capacity: Mapping[tuple[Resource, str], Floats]
    used: Mapping[Resource, Floats]

    @property
    def slots(self) -> int:
        """Number of half hours that the forecasts cover."""
        return int(self.capacity[Resource.CPU, SURE].shape[1])

    @property
    def end_seconds(self) -> int:
        """End of the forecasts, in Unix seconds."""
        return self.start_seconds + STEP_SECONDS * self.slots

    @property
    def known(self) -> int:
        """Number of nodes whose capacity is known for both CPU and memory in at least one half hour."""
        finite = np.isfinite(self.capacity[Resource.CPU, SURE]) & np.isfinite(self.capacity[Resource.MEMORY, SURE])
        return int(finite.any(axis=1).sum())

    @property
    def unknown(self) -> int:
        """Number of nodes without a half hour in which their capacity is known for both CPU and memory."""
        return len(self.nodes) - self.known

    def free(self, resource: Resource, level: str) -> Floats:
        """Return capacity of certainty `level` minus batch pods' usage, (nodes, half hours), in the resource's unit."""
        return np.maximum(self.capacity[resource, level] - self.used[resource][:, None], 0.0)

    def first_slot(self, now_seconds: float) -> int:
        """Return the index of the first half hour that has not yet begun."""
        return max(0, math.ceil((now_seconds - self.start_seconds) / STEP_SECONDS - 1e-9))


def batch_capacity(tables: Mapping[str, Relation], ahead: Table) -> LendableCapacity | None:
    """Build the batch capacity from a snapshot's tables and the nodes' forecast amounts; None without any forecast."""
    names = tuple(str(name) for name in tables[NODES.name].read("node").columns["node"])
    starts = ahead.columns["ahead"][np.isfinite(ahead.columns["ahead"])] if len(ahead) else np.empty(0)
    place = {name: i for i, name in enumerate(names)}
    capacity = {(r, level): _paths(ahead, place, r, level) for r in Resource for level in LEVELS}
    if not names or not starts.size or not any(np.isfinite(path).any() for path in capacity.values()):
        return None
    used = {}
    for resource in Resource:
        columns = tables[PODS.name].read("node", f"{resource}_usage", where=batch_pods()).columns
        at = np.array([place.get(str(node), -1) for node in columns["node"]], dtype=np.int64)
        amounts = np.nan_to_num(columns[f"{resource}_usage"])
        summed = np.bincount(at[at >= 0], weights=amounts[at >= 0], minlength=len(place))
        used[resource] = np.asarray(summed, dtype=np.float64)
    return LendableCapacity(names, int(starts.max()), capacity, used)


def _paths(ahead: Table, place: Mapping[str, int], resource: Resource, level: str) -> Floats:
    """Return the capacity that batch can use, (n, T), in the resource's unit; NaN if it is not known."""
    columns = ahead.columns
    rows = np.flatnonzero(columns["resource"] == resource.value)
    paths = [np.asarray(columns[PATHS[level]][row], dtype=np.float64) for row in rows]
    by_node = np.full((len(place), max((p.size for p in paths), default=0)), np.nan)
    for row, path in zip(rows, paths, strict=True):
        at = place.get(str(columns["node"][row]))
        if at is not None:
            by_node[at, : path.size] = path
    return by_node


@dataclass(frozen=True, slots=True)
class Job:
    """One pod of a job: its size in cores and GiB, its run time in hours, and its deadline in hours from now."""

    cores: float = 2.0
    gib: float = 4.0
    hours: float = 2.0
    deadline: float = 24.0

    @property
    def slots(self) -> int:
        """Number of half hours that a run of the job occupies if it starts at the beginning of a half hour."""
        return math.ceil(self.hours * HOUR_SECONDS / STEP_SECONDS - 1e-9)

    def size(self, resource: Resource) -> float:
        """Return the size of one pod of the job in the resource's unit."""
        return self.cores * MILLICORES_PER_CORE if resource is Resource.CPU else self.gib * GIB


BOUNDS: Final[Mapping[str, tuple[float, float, str]]] = {
    "cores": (0.0, MOST_CORES, "cores"),
    "gib": (0.0, MOST_GIB, "GiB"),
    "hours": (0.0, MOST_HOURS, "hours"),
    "deadline": (0.0, MOST_HOURS, "hours"),
}
"""Field -> (above, at most, unit)."""


def job_of(search: str) -> Job:
    """Parse a job from a query string such as `cores=4&hours=3`; raise UsageError for an invalid field."""
    fields, values_given = parse_qs(search.lstrip("?")), {}
    for name in (name for name in BOUNDS if name in fields):
        try:
            values_given[name] = float(fields[name][-1])
        except ValueError:
            raise _field_error(name, fields[name][-1]) from None
    return validate_job(Job(**values_given))


def validate_job(job: Job) -> Job:
    """Return the job; raise UsageError if a field is out of its bounds, or the run is longer than the deadline."""
    for name, (above, most, _) in BOUNDS.items():
        if not above < getattr(job, name) <= most:
            raise _field_error(name, f"{getattr(job, name):g}")
    if job.hours > job.deadline:
        fix = "Set a later deadline or a shorter run time."
        raise UsageError(f"A job of {job.hours:g} hours cannot be done within {job.deadline:g} hours.", fix=fix)
    return job


def _field_error(name: str, text: str) -> UsageError:
    above, most, unit = BOUNDS[name]
    return UsageError(
        f"{name}={text!r} is not a number of {unit}.", fix=f"Set {name} above {above:g}, up to {most:,.0f}."
    )


@dataclass(frozen=True, slots=True)
class StartWindow:
    """One possible start of a job: its times, and how many of its pods fit for the whole run, and on how many nodes.

    `pods` and `nodes` are of 95 % certainty, `likely_nodes` of 50 %. `most` has up to five nodes with their numbers of
    such pods, the highest number first.
    """

    start_seconds: int
    end_seconds: int
    nodes: int
    pods: int
    likely_nodes: int
    most: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Fit:
    """The times at which a job fits: `windows` in order of their start; empty if no start has 95 % certainty.

    Each window has capacity for more pods than every earlier one. `likely` is the first start with a certainty of 50 %;
    `largest` is the most capacity that any node has free throughout a run, by resource; `starts` is the number of
    starts that were examined; `late` is true if the deadline is beyond the end of the forecasts.
    """

    windows: tuple[StartWindow, ...]
    likely: StartWindow | None
    largest: Mapping[Resource, float]
    starts: int
    late: bool


def fit(rooms: LendableCapacity, job: Job, now_seconds: float) -> Fit:
    """Find the earliest start from which the job can end by its deadline, and later starts that fit more pods."""
    first = rooms.first_slot(now_seconds)
    begin = max(now_seconds, rooms.start_seconds)
    last = math.floor((begin + job.deadline * HOUR_SECONDS - rooms.start_seconds) / STEP_SECONDS + 1e-9)
    after = min(rooms.slots, last)
    late = last > rooms.slots
    if after - first < job.slots:
        return Fit((), None, dict.fromkeys(Resource, 0.0), 0, late)
    sure, likely = (placeable_pods(rooms, job, level)[:, first : after - job.slots + 1] for level in LEVELS[::-1])
    # The earliest start that fits, then each later one with capacity for more pods.
    totals = sure.sum(axis=0)
    before = np.maximum.accumulate(np.concatenate([[0], totals[:-1]]))
    starts = np.flatnonzero(totals > before)
    if len(starts) > MOST_WINDOWS:
        starts = np.concatenate([starts[: MOST_WINDOWS - 1], starts[-1:]])
    windows = tuple(_window(rooms, job, first, int(k), (sure, likely)) for k in starts)
    largest = {}
    for r in Resource:
        free = rooms.free(r, SURE)[:, first:after]
        through = np.lib.stride_tricks.sliding_window_view(np.nan_to_num(free), job.slots, axis=1).min(axis=2)
        largest[r] = float(through.max(initial=0.0))
    likely_starts = np.flatnonzero((likely >= 1).any(axis=0))
    soonest = _window(rooms, job, first, int(likely_starts[0]), (sure, likely)) if likely_starts.size else None
    return Fit(windows, soonest, largest, sure.shape[1], late)


def placeable_pods(rooms: LendableCapacity, job: Job, level: str) -> Counts:
    """Return how many pods fit on each node for a whole run, by start time: shape (nodes, starts); 0 if not known."""
    most = np.full((len(rooms.nodes), rooms.slots), np.inf)
    for resource in Resource:
        most = np.minimum(most, np.floor(rooms.free(resource, level) / job.size(resource) + 1e-9))
    through = np.lib.stride_tricks.sliding_window_view(np.nan_to_num(most), job.slots, axis=1).min(axis=2)
    pods: Counts = through.astype(np.int64)
    return pods


def _window(rooms: LendableCapacity, job: Job, first: int, at: int, counts: tuple[Counts, Counts]) -> StartWindow:
    sure, likely = (count[:, at] for count in counts)
    start = rooms.start_seconds + STEP_SECONDS * (first + at)
    order = [int(i) for i in np.argsort(-sure, kind="stable")[:5] if sure[i] > 0]
    return StartWindow(
        start_seconds=start,
        end_seconds=start + round(job.hours * HOUR_SECONDS),
        nodes=int((sure >= 1).sum()),
        pods=int(sure.sum()),
        likely_nodes=int((likely >= 1).sum()),
        most=tuple((rooms.nodes[i], int(sure[i])) for i in order),
    )


def unrequested_amount(nodes: Relation, resource: Resource) -> float | None:
    """Return the sum over nodes of max(allocatable - requests, 0) in the resource's unit; None without nodes."""
    free = f"{resource}_allocatable - {resource}_request"
    (amount,) = nodes.sums([f"coalesce(sum({free}) FILTER (WHERE {free} > 0), 0)"])
    return float(amount) if len(nodes) else None
