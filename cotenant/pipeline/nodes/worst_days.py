"""The worst 24 hours of each resource's tested peaks, and how long they lasted by the usage that is kept of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from cotenant.base.identity import NodeRef
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.base.store import Store
from cotenant.base.usage.peak import WorstDay
from cotenant.base.usage.usage import TimeGrid, Usage
from cotenant.forecasting.backtest.worst_day import seconds_above, worst_day, worst_span
from cotenant.forecasting.node_peaks.node_peak import NodePeaks
from cotenant.forecasting.node_peaks.peak_records import PastPeaks
from cotenant.pipeline.analysis import BLOCK_SECONDS, History, NodeMaxima
from cotenant.pipeline.nodes.node_history import stored_totals

Floats = npt.NDArray[np.floating[Any]]


def worst_days(
    store: Store,
    history: History,
    totals: Mapping[Resource, Usage[NodeRef]],
    maxima: Mapping[Resource, NodeMaxima],
    peaks: Mapping[Resource, NodePeaks[NodeRef]],
) -> dict[Resource, WorstDay]:
    """Return the worst day by resource. totals: of prod's pods in the window; maxima: what peaks are calibrated on."""
    return {r: _worst_day(store, history, of, maxima[r], peaks[r]) for r, of in totals.items()}


def _worst_day(
    store: Store, history: History, totals: Usage[NodeRef], maxima: NodeMaxima, peaks: NodePeaks[NodeRef]
) -> WorstDay:
    (risk, *_), tested = peaks.risks, peaks.tested
    if tested is None:
        return WorstDay(risk, 0, reason=Reason.FEW_TESTED_DAYS)
    starts = _starts(totals.grid, maxima)[-tested.peaks.shape[1] :]
    span = worst_span(tested)
    known = None if span is None else _seconds_above(store, history, totals, tested, (span, starts))
    return worst_day(tested, starts, risk, known)


def _starts(window: TimeGrid, maxima: NodeMaxima) -> tuple[int, ...]:
    """Begin of each block that peaks are calibrated on: whole ones before the window, and those back from its end."""
    inside = window.size * window.step_seconds // BLOCK_SECONDS
    newest = (window.end_seconds - BLOCK_SECONDS * back for back in range(inside, 0, -1))
    return (*maxima.starts_before(window.start_seconds), *newest)


def _seconds_above(
    store: Store, history: History, totals: Usage[NodeRef], tested: PastPeaks, span: tuple[slice, tuple[int, ...]]
) -> Floats:
    """Return how long each node used more than its peaks in force within a span, (n,), in seconds; NaN = not known."""
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
