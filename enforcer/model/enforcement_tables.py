"""The tables of node agents' actions: their columns, and how new actions are merged. Pure.

New actions + stored tables -> merged tables to store: each action once, of the last days, the newest if too many
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from cotenant.base.table import Column, Kind, Schema, Table
from cotenant.base.tables.quantity import Unit
from cotenant.base.usage.usage import DAY_SECONDS
from cotenant.enforcer.model.enforcement import NUMBERS, AgentAction, LaneSample, NodeLanes, row_of

ENFORCEMENT: Final = Schema(
    "enforcement",
    (
        Column("time", "Time", Kind.TIME, "Time of the action; for a series, of its newest action.", essential=True),
        Column("node", "Node", Kind.TEXT, "Name of the node.", essential=True),
        Column("namespace", "Namespace", Kind.TEXT, "Namespace of the pod; empty without a pod.", essential=True),
        Column("pod", "Pod", Kind.TEXT, "Name of the pod; empty for a node or a QoS class.", essential=True),
        Column("lane", "Lane", Kind.TEXT, "suppress, burst, memory-qos, eviction, interference or other."),
        Column("strategy", "Strategy", Kind.TEXT, "Strategy of the agent that requested the action.", essential=True),
        Column("reason", "Reason", Kind.TEXT, "Name of the action, as in Events."),
        Column("before_after", "Before → after", Kind.TEXT, "Values before and after the action, in readable units."),
        Column("why", "Why", Kind.TEXT, "The reason with its numbers."),
        Column("mode", "Mode", Kind.TEXT, "real, or dry-run: nothing was done."),
        Column("knob", "Knob", Kind.TEXT, "Setting that was written.", wide=True),
        Column("target", "Where", Kind.TEXT, "Cgroup, device or kernel setting.", wide=True),
        Column("before", "Before", Kind.TEXT, "Value before the action, in the setting's unit.", wide=True),
        Column("after", "After", Kind.TEXT, "Value after the action, in the setting's unit; -1 = no limit.", wide=True),
        Column("outcome", "Outcome", Kind.TEXT, "written, would-write, restored, asked, refused, ...", wide=True),
        Column("severity", "Severity", Kind.TEXT, "ok, or warning: somebody should check it.", wide=True),
        Column("count", "Times", Kind.INTEGER, "Actions since the previous row of the same Event.", wide=True),
        Column("series", "Event", Kind.TEXT, "Uid of the Event that reports the action, else empty.", wide=True),
        Column("total", "Event count", Kind.INTEGER, "Count of the Event at the time of the action.", wide=True),
        Column("id", "Id", Kind.TEXT, "Id of the action, the same from every source.", wide=True),
    ),
    ("node", "namespace", "pod", "id"),
)

ENFORCEMENT_LANES: Final = Schema(
    "enforcement_lanes",
    (
        Column("node", "Node", Kind.TEXT, "Name of the node."),
        Column("start", "Start", Kind.TIME, "Time of the series' first value."),
        Column("step_seconds", "Step", Kind.NUMBER, "Seconds between two values of the series."),
        Column("capacity", "CPU", Kind.MILLICORES, "CPU capacity of the node."),
        Column("mode", "Mode", Kind.TEXT, "real or dry-run."),
        Column("source", "Source", Kind.TEXT, "Source of the series' values."),
        Column("others", "Others", Kind.LIST, "CPU used by other pods and the system.", unit=Unit.MILLICORES),
        Column("best_effort", "Best effort", Kind.LIST, "CPU used by best effort.", unit=Unit.MILLICORES),
        Column("target", "Target", Kind.LIST, "CPU that best effort may use by policy.", unit=Unit.MILLICORES),
        Column("limit", "Limit", Kind.LIST, "CPU limit of best effort; empty = no limit.", unit=Unit.MILLICORES),
        Column("burst", "Burst", Kind.LIST, "CPU granted to online containers above limits.", unit=Unit.MILLICORES),
    ),
    ("node",),
)


MOST_STEPS: Final = 2880
"""Most steps of a node's time series: a day in half minutes."""


@dataclass(frozen=True, slots=True)
class Retention:
    """The limits on the kept actions: days back from `now_seconds`, rows of actions, and nodes with time series."""

    now_seconds: float
    days: float = 7.0
    rows: int = 50_000
    nodes: int = 200


def merge_actions(stored: Table | None, acts: Iterable[AgentAction], keep: Retention) -> Table:
    """Return the table with the new actions: each action once, newest first, within the retention."""
    # Acts of Events as what came since the last round: an Event that did not go on is nothing new.
    totals: dict[str, int] = {}
    if stored is not None:
        for series, total in zip(stored.columns["series"], stored.columns["total"], strict=True):
            if series and np.isfinite(total):
                totals[str(series)] = max(totals.get(str(series), 0), int(total))
    news = []
    for act in acts:
        before = totals.get(act.series, 0) if act.series else 0
        if act.series and act.total <= before:
            continue
        if act.series:
            totals[act.series] = act.total
            news.append(replace(act, count=act.total - before))
        else:
            news.append(act)
    table = Table.from_rows(ENFORCEMENT, [row_of(act) for act in news])
    if stored is not None:
        names = [column.name for column in ENFORCEMENT.columns]
        parts = (table.columns, stored.columns)
        table = Table(ENFORCEMENT, {name: np.concatenate([part[name] for part in parts]) for name in names})
    times = table.columns["time"].astype(np.float64)
    order = np.argsort(-times, kind="stable")
    order = order[times[order] >= keep.now_seconds - keep.days * DAY_SECONDS]
    _, first = np.unique(table.columns["id"][order].astype(str), return_index=True)
    return table.take(order[np.sort(first)][: keep.rows])


def joined_lanes(stored: Table | None, lanes: Sequence[NodeLanes], keep: Retention) -> Table:
    """Return a row of CPU time series per node, new ones replacing old: the `keep.nodes` newest of `keep.days`."""
    rows = {str(row["node"]): row for row in stored.rows()} if stored is not None else {}
    rows |= {lane.node: lane_row(lane) for lane in lanes}
    oldest = keep.now_seconds - keep.days * DAY_SECONDS
    alive = [row for row in rows.values() if _end_seconds(row) >= oldest]
    alive.sort(key=lambda row: (-_end_seconds(row), row["node"]))
    rows_kept = [{**row, **{name: floats_of(row[name]).tolist() for name in NUMBERS}} for row in alive[: keep.nodes]]
    return Table.from_rows(ENFORCEMENT_LANES, rows_kept)


def grid_samples(node: str, samples: Sequence[LaneSample], *, dry: bool = False, source: str = "") -> NodeLanes:
    """Return a node's CPU samples on a regular grid of at most MOST_STEPS, oldest first.

    If several samples fall into one step, it gets the lowest target and limit, and the highest of all other values.
    """
    if not samples:
        return NodeLanes(node, 0.0, 1.0, 0.0, {name: [] for name in NUMBERS}, dry, source)
    times = np.array([sample.time_seconds for sample in samples])
    between = np.diff(np.sort(times))
    usual = float(np.median(between[between > 0])) if (between > 0).any() else 1.0
    span = float(times.max() - times.min())
    step = max(round(usual), 1.0, np.ceil(span / (MOST_STEPS - 1)))
    place = np.rint((times - times.min()) / step).astype(np.int64)
    size = int(place.max()) + 1
    values: dict[str, list[float]] = {}
    for name in NUMBERS:
        cells = np.full(size, np.nan)
        highest_or_lowest = np.fmin if name in ("target", "limit") else np.fmax
        highest_or_lowest.at(cells, place, floats_of([getattr(sample, name) for sample in samples]))
        values[name] = [float(v) for v in cells]
    return NodeLanes(node, float(times.min()), float(step), samples[-1].capacity, values, dry, source)


def lane_row(lane: NodeLanes) -> dict[str, Any]:
    """Return a node's CPU time series as a row of the table ENFORCEMENT_LANES."""
    identity = {"node": lane.node, "start": lane.start_seconds, "step_seconds": lane.step_seconds}
    mode = {"capacity": lane.capacity, "mode": "dry-run" if lane.dry else "real", "source": lane.source}
    return identity | mode | {name: lane.values.get(name, []) for name in NUMBERS}


def lanes_of(row: Mapping[str, Any]) -> NodeLanes:
    """Return the node's CPU time series that `lane_row` stored in this row."""
    return NodeLanes(
        node=str(row["node"]),
        start_seconds=float(row["start"] or 0),
        step_seconds=float(row["step_seconds"] or 1),
        capacity=float(row["capacity"] or 0),
        values={name: floats_of(row[name]).tolist() for name in NUMBERS},
        dry=row["mode"] == "dry-run",
        source=str(row["source"]),
    )


def floats_of(cells: Sequence[float | None]) -> npt.NDArray[np.float64]:
    """Return the numbers of cells as an array (n,); NaN for an empty cell."""
    return np.array([np.nan if c is None else c for c in cells], dtype=np.float64)


def _end_seconds(row: Mapping[str, Any]) -> float:
    return float(row["start"] or 0) + float(row["step_seconds"] or 0) * max(len(row[n]) for n in NUMBERS)
