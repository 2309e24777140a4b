"""Statistics of a node's past as predictors of its next 24-hour peak, for all past decisions at once. Pure.

Usage becomes maxima of six-hour blocks counted back from the end; there is a decision at each block border. The record
before a decision (at most 14 days) gives three plain statistics, from which `peak_rule` computes a peak.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from cotenant.base.usage.usage import Floats

BLOCKS_PER_DAY: Final = 4
RECORD_DAYS: Final = 14


def block_maxima(usage: Floats, slots_per_day: int) -> Floats:
    """Return an array (n, blocks): the maximum of each six hours, counted back from the end; NaN if < half is known."""
    size = slots_per_day // BLOCKS_PER_DAY
    blocks = usage.shape[1] // size
    cut = usage[:, usage.shape[1] - blocks * size :].reshape(len(usage), blocks, size)
    present = np.isfinite(cut)
    highest = np.where(present, cut, -np.inf).max(axis=2, initial=-np.inf)
    result: Floats = np.where(2 * present.sum(axis=2) >= size, highest, np.nan).astype(np.float32)
    return result


@dataclass(frozen=True, slots=True, eq=False)
class Records:
    """Statistics of n nodes at E decisions, (n, E) each, oldest decision first, the present one last; NaN = no record.

    days: number of known days among the last 14; highest, week, day: the maximum of all of these days, of the newest
    seven and of the newest one; after: the actual peak of the next 24 hours, NaN = not yet known.
    """

    highest: Floats
    week: Floats
    day: Floats
    days: npt.NDArray[np.intp]
    after: Floats


@dataclass(frozen=True, slots=True, eq=False)
class PastPeaks:
    """Arrays (n, T): decided peak and highest usage of n nodes in the newest T blocks of six hours, the newest last.

    Both are in the unit of usage, NaN = not tested or not known; `limits` (n,) are in the same unit.
    """

    peaks: Floats
    highest: Floats
    limits: Floats


def records(blocks: Floats, decisions: int) -> Records:
    """Return nodes' records at the newest `decisions` ends of six-hour blocks (n, B); only `after` uses later ones."""
    size = blocks.shape[1]
    ends = np.arange(max(0, size - decisions + 1), size + 1)
    # Highest of the day that ends at each border, (n, B + 1); -inf when fewer than half of its blocks are known.
    wide = np.concatenate([np.full((len(blocks), BLOCKS_PER_DAY), np.nan), blocks], axis=1)
    is_known = np.isfinite(wide)
    filled = np.where(is_known, wide, -np.inf)
    parts = [slice(i, i + size + 1) for i in range(BLOCKS_PER_DAY)]
    known_blocks = np.sum([is_known[:, part] for part in parts], axis=0)
    highest = np.max([filled[:, part] for part in parts], axis=0)
    daily = np.where(2 * known_blocks >= BLOCKS_PER_DAY, highest, -np.inf)
    back = ends[:, None] - BLOCKS_PER_DAY * np.arange(RECORD_DAYS)
    days = np.where(back >= 0, daily[:, np.maximum(back, 0)], -np.inf)
    present = np.isfinite(days)
    count = present.sum(axis=2)
    rank = present.cumsum(axis=2)
    after = np.full((len(blocks), len(ends)), np.nan)
    later = ends + BLOCKS_PER_DAY
    after[:, later <= size] = daily[:, later[later <= size]]
    return Records(
        highest=_or_gap(days.max(axis=2)),
        week=_or_gap(np.where(rank <= 7, days, -np.inf).max(axis=2)),
        day=_or_gap(np.where(rank <= 1, days, -np.inf).max(axis=2)),
        days=count,
        after=_or_gap(after),
    )


def _or_gap(values: Floats) -> Floats:
    result: Floats = np.where(np.isfinite(values), values, np.nan)
    return result
