"""Highest totals of prod pods on each node for the days before the analysed window, on which peaks are calibrated.

A total needs the pods' nodes and classes, and the inventory forgets a gone pod after `profiler.window_days`. Each
analysis therefore stores the six-hour maxima of its window for later ones, also after the usage behind them is removed.
Days that no analysis has covered are read from stored usage, one day at a time, and only maxima are kept. Blocks begin
at UTC borders of six hours. `worst_days` finds the worst past 24 hours of the tested peaks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.base.identity import NodeRef
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.base.store import Store
from cotenant.base.usage.peak import WorstDay
from cotenant.base.usage.plausible import plausible_of_pods
from cotenant.base.usage.usage import DAY_SECONDS, FIVE_MINUTES_SECONDS, TimeGrid, Usage
from cotenant.forecasting.backtest.worst_day import seconds_above, worst_day, worst_span
from cotenant.forecasting.node_peaks.node_peak import NodePeaks
from cotenant.forecasting.node_peaks.peak_records import RECORD_DAYS, PastPeaks, block_maxima
from cotenant.forecasting.settings import NodePeakSettings
from cotenant.pipeline.analysis import BLOCK_SECONDS, History, NodeMaxima, next_border
from cotenant.pipeline.nodes.pod_hours import PROD
from cotenant.pipeline.nodes.reclaimable import POD_SIGNAL, node_refs, of_classes
from cotenant.profiler.pool import by_node, total

Floats = npt.NDArray[np.floating[Any]]

TOLERATED_UNPLACED: Final = 0.02
"""Share of a block's usage that may come from pods that the inventory lacks; above it the nodes' totals are NaN."""
_FOLDER: Final = "node-maxima"
_SLOTS: Final = BLOCK_SECONDS // FIVE_MINUTES_SECONDS


def maxima_of_nodes(
    store: Store, history: History, totals: Mapping[Resource, Usage[NodeRef]], settings: NodePeakSettings
) -> dict[Resource, NodeMaxima]:
    """Return the six-hour maxima of prod usage on nodes, by resource.

    They combine stored maxima, maxima of older usage for which none are stored, and those of the window's totals.
    """
    maxima = {}
    for resource, of in totals.items():
        older = _older(store, history, resource, settings)
        # Those of the window's whole blocks behind them.
        first, grid = older.end_seconds, of.grid
        last = max(first, grid.end_seconds // BLOCK_SECONDS * BLOCK_SECONDS)
        newer = block_maxima(of.values[:, grid.index_of(first) : grid.index_of(last)], grid.slots_per_day)
        values = np.concatenate([older.values, newer], axis=1)
        maxima[resource] = NodeMaxima(older.refs, older.start_seconds, values)
    return maxima


def write(store: Store, maxima: Mapping[Resource, NodeMaxima]) -> None:
    """Store the six-hour maxima of nodes for the next analysis."""
    for resource, of in maxima.items():
        if of.values.size:
            block = {"node": np.array([ref.name for ref in of.refs], dtype=object), "maxima": of.values}
            store.write_block(_FOLDER, resource.value, block, {"start_seconds": str(of.start_seconds)})


def _older(store: Store, history: History, resource: Resource, settings: NodePeakSettings) -> NodeMaxima:
    """Return the maxima before the first whole block of the window, for as many days as the peaks need."""
    refs = node_refs(history.inventory)
    window, days = history.window, settings.calibration_days + RECORD_DAYS
    end = next_border(window.start_seconds)
    since = end if history.since_seconds is None else next_border(history.since_seconds)
    stored, block = NodeMaxima((), end, np.empty((0, 0), dtype=np.float32)), store.read_block(_FOLDER, resource.value)
    if block is not None:
        names = tuple(NodeRef(name) for name in block[0]["node"].tolist())
        stored = NodeMaxima(names, int(block[1]["start_seconds"]), block[0]["maxima"])
    start = min(end, max(min(since, stored.start_seconds), next_border(window.end_seconds - days * DAY_SECONDS)))
    older = NodeMaxima(refs, start, np.full((len(refs), (end - start) // BLOCK_SECONDS), np.nan, dtype=np.float32))
    older.take(stored)
    for first, last in ((start, min(end, stored.start_seconds)), (max(start, stored.end_seconds), end)):
        # Maxima of one stored day at a time, cut at midnights; unknown where `stored_totals` are.
        day = max(first, since)
        while day < last:
            until = min(last, (day // DAY_SECONDS + 1) * DAY_SECONDS)
            grid = TimeGrid.from_span(day, until, FIVE_MINUTES_SECONDS)
            prod = stored_totals(store, history, resource, grid)
            older.take(NodeMaxima(prod.refs, grid.start_seconds, block_maxima(prod.values, grid.slots_per_day)))
            day = until
    return older


def stored_totals(store: Store, history: History, resource: Resource, grid: TimeGrid) -> Usage[NodeRef]:
    """Return the usage of prod pods on each node, summed from stored usage, in `grid`: whole blocks of six hours.

    A block is all NaN if more than TOLERATED_UNPLACED of its usage is by pods that the inventory lacks.
    """
    usage = plausible_of_pods(store.read(POD_SIGNAL[resource], grid), history.inventory)
    members = by_node(usage.refs, history.inventory, node_refs(history.inventory))
    prod = total(usage, of_classes(members, usage.refs, history.inventory, PROD))
    unplaced = np.isnan(members.start_seconds)
    used = np.nan_to_num(usage.values).reshape(len(usage.refs), -1, _SLOTS).sum(axis=2, dtype=np.float64)
    lost = used[unplaced].sum(axis=0) > TOLERATED_UNPLACED * used.sum(axis=0)
    return replace(prod, values=np.where(np.repeat(lost, _SLOTS), np.float32(np.nan), prod.values))


def worst_days(
    store: Store,
    history: History,
    totals: Mapping[Resource, Usage[NodeRef]],
    maxima: Mapping[Resource, NodeMaxima],
    peaks: Mapping[Resource, NodePeaks[NodeRef]],
) -> dict[Resource, WorstDay]:
    """Return by resource the 24 hours of the past in which the most nodes used more than the peak predicted for them.

    `totals` are of prod pods in the window, `maxima` those from which the peaks were calibrated.
    """
    return {r: _worst_day(store, history, of, maxima[r], peaks[r]) for r, of in totals.items()}


def _worst_day(
    store: Store, history: History, totals: Usage[NodeRef], maxima: NodeMaxima, peaks: NodePeaks[NodeRef]
) -> WorstDay:
    (risk, *_), tested = peaks.risks, peaks.tested
    if tested is None:
        return WorstDay(risk, 0, reason=Reason.FEW_TESTED_DAYS)
    # Begin of each block that peaks are calibrated on: whole ones before the window, and those back from its end.
    window = totals.grid
    inside = window.size * window.step_seconds // BLOCK_SECONDS
    newest = (window.end_seconds - BLOCK_SECONDS * back for back in range(inside, 0, -1))
    starts = (*maxima.starts_before(window.start_seconds), *newest)[-tested.peaks.shape[1] :]
    span = worst_span(tested)
    day_above = None if span is None else _seconds_above(store, history, totals, tested, (span, starts))
    return worst_day(tested, starts, risk, day_above)


def _seconds_above(
    store: Store, history: History, totals: Usage[NodeRef], tested: PastPeaks, span: tuple[slice, tuple[int, ...]]
) -> Floats:
    """Return how long (seconds) each node used more than its current peak within a span, (n,); NaN = not known."""
    blocks, starts = span
    seconds = np.zeros(len(tested.limits))
    for column in range(*blocks.indices(len(starts))):
        in_force = tested.peaks[:, column]
        short = tested.highest[:, column] > in_force
        if short.any():
            # Totals of six hours, of the window or of stored usage before it.
            start_seconds = starts[column]
            grid = totals.grid
            if start_seconds >= grid.start_seconds:
                first = grid.index_of(start_seconds)
                end = first + BLOCK_SECONDS // grid.step_seconds
                inside = TimeGrid(start_seconds, grid.step_seconds, end - first)
                usage = Usage(totals.refs, inside, totals.values[:, first:end], totals.resource, totals.statistic)
            else:
                assert isinstance(totals.resource, Resource)
                block = TimeGrid.from_span(start_seconds, start_seconds + BLOCK_SECONDS, grid.step_seconds)
                usage = stored_totals(store, history, totals.resource, block)
            capped = np.minimum(usage.values, tested.limits[:, None])
            seconds += np.where(short, seconds_above(capped, in_force[:, None], usage.grid.step_seconds), 0.0)
    return seconds
