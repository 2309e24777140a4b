"""The worst 24 hours of a node class's tested decisions: nodes exceed their peaks together, which a mean hides. Pure.

A peak is in force for the six hours until the next decision. It is tested forward: its threshold comes from outcomes
that were known before it. A node is short if it uses more than its peak in force, when all other capacity is lent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from cotenant.base.reasons import Reason
from cotenant.base.usage.peak import WorstDay
from cotenant.base.usage.usage import Floats
from cotenant.forecasting.node_peaks.peak_records import BLOCKS_PER_DAY, PastPeaks

FEWEST_DAYS: Final = 3
"""Tested days below which none is called the worst."""
_ROUNDING: Final = 1e-6  # of a limit, by which usage may be above a peak


def worst_span(of: PastPeaks) -> slice | None:
    """Return the six-hour blocks of the 24 hours in which the most nodes exceeded their peaks; None if no node did.

    Among spans with equally many of these nodes, the one with the largest excess is returned, else the last. A span may
    be cut at the end of the blocks.
    """
    excess = _excess(of)
    short = excess > _ROUNDING
    if not short.any():
        return None
    spans = [slice(first, first + BLOCKS_PER_DAY) for first in range(short.shape[1])]
    keys = [(int(short[:, span].any(axis=1).sum()), float(excess[:, span].max()), span.start) for span in spans]
    return spans[max(range(len(spans)), key=keys.__getitem__)]


def worst_day(
    of: PastPeaks, starts_seconds: Sequence[int], risk: float, seconds_above: Floats | None = None
) -> WorstDay:
    """Return how many nodes exceeded their peaks in the worst 24 hours, how long and how much, and the days tested.

    `risk` is the share of peaks that may be exceeded; the excess is a ratio to the node's limit. `starts_seconds` are
    the Unix times of the T blocks. `seconds_above` (n,) is how long each node exceeded its peaks within `worst_span`,
    NaN or None if not known. No mean time is returned if it is unknown or 0 for one of the nodes that exceeded them.
    """
    tested = np.isfinite(of.peaks) & np.isfinite(of.highest)
    days = int(tested.any(axis=0).sum()) // BLOCKS_PER_DAY
    if days < FEWEST_DAYS:
        return WorstDay(risk, days, reason=Reason.FEW_TESTED_DAYS)
    span = worst_span(of)
    if span is None:
        return WorstDay(risk, days, nodes=int(tested.any(axis=1).sum()))
    excess = _excess(of)[:, span]
    short = (excess > _ROUNDING).any(axis=1)
    above = None if seconds_above is None else seconds_above[short]
    return WorstDay(
        risk_ratio=risk,
        tested_days=days,
        nodes=int(tested[:, span].any(axis=1).sum()),
        short_nodes=int(short.sum()),
        start_seconds=int(starts_seconds[span.start]),
        mean_short_seconds=float(above.mean()) if above is not None and (above > 0).all() else None,
        deepest_ratio=float(excess.max()),
    )


def seconds_above(usage: Floats, peaks: Floats, step_seconds: int) -> Floats:
    """Return for how many seconds each node exceeded its decided peak; NaN for a node without a sample.

    `usage`: (n, slots), samples of whole blocks, NaN = none; `peaks`: (n, blocks) in the same unit, NaN = not tested.
    """
    in_force = np.repeat(peaks, usage.shape[1] // max(1, peaks.shape[1]), axis=1)
    above = np.where(np.isfinite(in_force), usage > in_force, False)
    seconds = above.sum(axis=1).astype(np.float64) * step_seconds
    return np.where(np.isfinite(usage).any(axis=1), seconds, np.nan)


def _excess(of: PastPeaks) -> Floats:
    """Return the usage above the peak in force as a share of the limit, (n, T); 0 if it is below or not known."""
    with np.errstate(invalid="ignore"):
        over = np.maximum(of.highest - of.peaks, 0) / of.limits[:, None]
    result: Floats = np.nan_to_num(over)
    return result
