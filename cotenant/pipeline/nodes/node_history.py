"""Highest totals of prod's pods on each node for the days before the analysed window, which peaks are calibrated on.

A total needs the pods' nodes and classes, and the inventory forgets a gone pod after `profiler.window_days`. So each
analysis stores the six-hour maxima of its window, and later ones go on from them: they stay when the usage behind them
is removed. Days that no analysis has seen are read from stored usage, one day at a time, and only maxima are kept.
Blocks lie on UTC borders of six hours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.base.identity import NodeRef
from cotenant.base.resource import Resource
from cotenant.base.store import Store
from cotenant.base.usage.plausible import plausible_of_pods
from cotenant.base.usage.usage import DAY_SECONDS, FIVE_MINUTES_SECONDS, TimeGrid, Usage
from cotenant.forecasting.node_peaks.peak_records import RECORD_DAYS, block_maxima
from cotenant.forecasting.settings import NodePeakSettings
from cotenant.pipeline.analysis import BLOCK_SECONDS, History, NodeMaxima, next_border
from cotenant.pipeline.nodes.pod_hours import PROD
from cotenant.pipeline.nodes.reclaimable import POD_SIGNAL, node_refs, of_classes
from cotenant.profiler.pool import by_node, total

Floats = npt.NDArray[np.floating[Any]]

TOLERATED_UNPLACED: Final = 0.02
"""Share of a block's usage that may come from pods nobody remembers; above it the nodes' totals are unknown."""
_FOLDER: Final = "node-maxima"
_SLOTS: Final = BLOCK_SECONDS // FIVE_MINUTES_SECONDS


def maxima_of_nodes(
    store: Store, history: History, totals: Mapping[Resource, Usage[NodeRef]], settings: NodePeakSettings
) -> dict[Resource, NodeMaxima]:
    """Return the maxima of nodes by resource.

    They join stored maxima, those of older usage that none were stored for, and those of the window's totals.
    """
    return {r: _append_new_maxima(_older(store, history, r, settings), of) for r, of in totals.items()}


def write(store: Store, maxima: Mapping[Resource, NodeMaxima]) -> None:
    """Store them for the next analysis."""
    for resource, of in maxima.items():
        if of.values.size:
            block = {"node": np.array([ref.name for ref in of.refs], dtype=object), "maxima": of.values}
            store.write_block(_FOLDER, resource.value, block, {"start_seconds": str(of.start_seconds)})


def _older(store: Store, history: History, resource: Resource, settings: NodePeakSettings) -> NodeMaxima:
    """Up to the first whole block of the window, as many days as decisions and their records need."""
    refs = node_refs(history.inventory)
    window, days = history.window, settings.calibration_days + RECORD_DAYS
    end = next_border(window.start_seconds)
    since = end if history.since_seconds is None else next_border(history.since_seconds)
    stored = _read(store, resource) or NodeMaxima((), end, np.empty((0, 0), dtype=np.float32))
    start = min(end, max(min(since, stored.start_seconds), next_border(window.end_seconds - days * DAY_SECONDS)))
    older = NodeMaxima(refs, start, np.full((len(refs), (end - start) // BLOCK_SECONDS), np.nan, dtype=np.float32))
    older.take(stored)
    for first, last in ((start, min(end, stored.start_seconds)), (max(start, stored.end_seconds), end)):
        for grid in _days(max(first, since), last):
            # Maxima of one stored day; unknown where `stored_totals` are.
            prod = stored_totals(store, history, resource, grid)
            older.take(NodeMaxima(prod.refs, grid.start_seconds, block_maxima(prod.values, grid.slots_per_day)))
    return older


def stored_totals(store: Store, history: History, resource: Resource, grid: TimeGrid) -> Usage[NodeRef]:
    """Totals of prod's pods from stored usage, whole blocks of six hours.

    A block in which too much was used by pods that the inventory does not hold is NaN.
    """
    usage = plausible_of_pods(store.read(POD_SIGNAL[resource], grid), history.inventory)
    members = by_node(usage.refs, history.inventory, node_refs(history.inventory))
    prod = total(usage, of_classes(members, usage.refs, history.inventory, PROD))
    unplaced = np.isnan(members.start_seconds)
    used = np.nan_to_num(usage.values).reshape(len(usage.refs), -1, _SLOTS).sum(axis=2, dtype=np.float64)
    lost = used[unplaced].sum(axis=0) > TOLERATED_UNPLACED * used.sum(axis=0)
    return replace(prod, values=np.where(np.repeat(lost, _SLOTS), np.float32(np.nan), prod.values))


def _append_new_maxima(older: NodeMaxima, totals: Usage[NodeRef]) -> NodeMaxima:
    """The older maxima and those of the window's whole blocks behind them."""
    grid = totals.grid
    first = older.end_seconds
    last = max(first, grid.end_seconds // BLOCK_SECONDS * BLOCK_SECONDS)
    inside = slice(grid.index_of(first), grid.index_of(last))
    newer = block_maxima(totals.values[:, inside], grid.slots_per_day)
    return NodeMaxima(older.refs, older.start_seconds, np.concatenate([older.values, newer], axis=1))


def _read(store: Store, resource: Resource) -> NodeMaxima | None:
    stored = store.read_block(_FOLDER, resource.value)
    if stored is None:
        return None
    block, stamp = stored
    refs = tuple(NodeRef(name) for name in block["node"].tolist())
    return NodeMaxima(refs, int(stamp["start_seconds"]), block["maxima"])


def _days(start: int, end: int) -> Iterator[TimeGrid]:
    """Whole blocks of [start, end), cut at midnights."""
    while start < end:
        until = min(end, (start // DAY_SECONDS + 1) * DAY_SECONDS)
        yield TimeGrid.from_span(start, until, FIVE_MINUTES_SECONDS)
        start = until
