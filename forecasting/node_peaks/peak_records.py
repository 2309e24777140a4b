"""Statistics of a node's past as predictors of its next 24-hour peak, for all past decisions at once. Pure.

Usage becomes maxima of six-hour blocks counted back from the end; a decision stands at each border of blocks. From a
decision's record (at most 14 days before it) come a few plain statistics; a `PeakShape` joins them into a base and a
spread, both per unit of the node's limit. Which shape serves and how much of its spread is added is not known here:
`cotenant.forecasting.node_peaks.peak_risk` calibrates it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.base.resource import Resource

Floats = npt.NDArray[np.floating[Any]]

BLOCKS_PER_DAY: Final = 4
RECORD_DAYS: Final = 14
_LEAST_SPREAD: Final = 1e-3
"""Of the limit: a base is never believed more exactly."""


def block_maxima(usage: Floats, slots_per_day: int) -> Floats:
    """Highest value of each six hours counted back from the end, (n, blocks), newest last; NaN when half is missing."""
    size = slots_per_day // BLOCKS_PER_DAY
    blocks = usage.shape[1] // size
    cut = usage[:, usage.shape[1] - blocks * size :].reshape(len(usage), blocks, size)
    present = np.isfinite(cut)
    highest = np.where(present, cut, -np.inf).max(axis=2, initial=-np.inf)
    result: Floats = np.where(2 * present.sum(axis=2) >= size, highest, np.nan).astype(np.float32)
    return result


@dataclass(frozen=True, slots=True, eq=False)
class Records:
    """Statistics of n nodes at E decisions, (n, E) each, oldest decision first, the last one now; NaN = no record.

    highest, week, day: maximum of all, of the newest seven and of the newest known day; second, third: the next highest
    days; middle: median of daily maxima; days: number of known days; after: the peak that came, NaN = not yet known.
    """

    highest: Floats
    week: Floats
    day: Floats
    second: Floats
    third: Floats
    middle: Floats
    days: npt.NDArray[np.intp]
    after: Floats

    def take(self, rows: npt.NDArray[Any]) -> Records:
        """Return the records of some nodes only."""
        return Records(*(getattr(self, name)[rows] for name in self.__slots__))


def records(blocks: Floats, decisions: int) -> Records:
    """Records at the newest `decisions` borders of blocks (n, B), each from what stood before it alone."""
    size = blocks.shape[1]
    ends = np.arange(max(0, size - decisions + 1), size + 1)
    daily = _day_before(blocks)
    back = ends[:, None] - BLOCKS_PER_DAY * np.arange(RECORD_DAYS)
    days = np.where(back >= 0, daily[:, np.maximum(back, 0)], -np.inf)
    present = np.isfinite(days)
    count = present.sum(axis=2)
    rank = present.cumsum(axis=2)
    ordered = np.sort(days, axis=2)[:, :, ::-1]
    after = np.full((len(blocks), len(ends)), np.nan)
    later = ends + BLOCKS_PER_DAY
    after[:, later <= size] = daily[:, later[later <= size]]
    return Records(
        highest=_or_gap(ordered[:, :, 0]),
        week=_or_gap(np.where(rank <= 7, days, -np.inf).max(axis=2)),
        day=_or_gap(np.where(rank <= 1, days, -np.inf).max(axis=2)),
        second=_or_gap(np.where(count > 1, ordered[:, :, 1], ordered[:, :, 0])),
        third=_or_gap(ordered[np.arange(len(blocks))[:, None], np.arange(len(ends)), np.clip(count - 1, 0, 2)]),
        middle=_median(ordered, count),
        days=count,
        after=_or_gap(after),
    )


@dataclass(frozen=True, slots=True)
class PeakShape:
    """base = sum of weights x statistics; spread = sum of weights x (statistics, `one` = the limit, `range`)."""

    name: str
    base: Mapping[str, float]
    spread: Mapping[str, float]

    def base_and_spread(self, of: Records, limits: Floats) -> tuple[Floats, Floats]:
        """Both in limits (n,), shape (n, E)."""
        return _weighted_record_sum(self.base, of, limits), np.maximum(
            _weighted_record_sum(self.spread, of, limits), _LEAST_SPREAD
        )


SHAPES: Final = (
    PeakShape("highest of 14 days", {"highest": 1.0}, {"one": 1.0}),
    PeakShape("record", {"highest": 0.55, "week": 0.3, "second": 0.15}, {"one": 0.5, "range": 0.5}),
    PeakShape("second highest", {"second": 0.8, "week": 0.1, "highest": 0.1}, {"one": 0.5, "range": 0.5}),
    PeakShape("highest of 7 days", {"week": 1.0}, {"one": 0.7, "range": 0.3}),
    PeakShape(
        "mean of records",
        {"highest": 0.25, "week": 0.25, "day": 0.25, "middle": 0.25},
        {"one": 0.5, "range": 0.5},
    ),
    PeakShape("last day", {"day": 0.5, "third": 0.15, "middle": 0.1}, {"one": 0.55, "range": 0.25, "day": 0.2}),
    PeakShape("class level", {"middle": 0.4}, {"one": 1.0}),
)
"""From records that stand to records that a class regains in a day; the back-test says which a class resembles."""

_HALF: Final = {"highest": 0.5, "week": 0.5}
_SINCE: Final = {"highest": 0.5, "day": 0.5}
MEMORY_SHAPES: Final = (
    PeakShape("highest of 14 days x factor", {"highest": 1.0}, {"highest": 1.0}),
    PeakShape("14 and 7 days x factor", _HALF, {"highest": 1.0}),
    PeakShape("14 days and last day x factor", _SINCE, {"highest": 1.0}),
    PeakShape("last day x factor", {"day": 1.0}, {"highest": 1.0}),
)
"""Of memory, which stands until it is released: how far it may rise goes with what is there, not with the limit."""


def shapes_of(resource: Resource) -> tuple[PeakShape, ...]:
    """The shapes that one resource's peaks are calibrated on."""
    return MEMORY_SHAPES if resource is Resource.MEMORY else SHAPES


def _day_before(blocks: Floats) -> Floats:
    """Highest of the day that ends at each border, (n, B + 1); -inf when fewer than half of its blocks are known."""
    n, size = blocks.shape
    wide = np.concatenate([np.full((n, BLOCKS_PER_DAY), np.nan), blocks], axis=1)
    present = np.isfinite(wide)
    filled = np.where(present, wide, -np.inf)
    parts = [slice(i, i + size + 1) for i in range(BLOCKS_PER_DAY)]
    highest = np.max([filled[:, part] for part in parts], axis=0)
    block_count = np.sum([present[:, part] for part in parts], axis=0)
    result: Floats = np.where(2 * block_count >= BLOCKS_PER_DAY, highest, -np.inf)
    return result


def _or_gap(values: Floats) -> Floats:
    result: Floats = np.where(np.isfinite(values), values, np.nan)
    return result


def _median(ordered: Floats, count: npt.NDArray[np.intp]) -> Floats:
    """Median of the first `count` of values in falling order."""
    last = np.maximum(count - 1, 0)
    low = np.take_along_axis(ordered, (last // 2)[:, :, None], axis=2)[:, :, 0]
    high = np.take_along_axis(ordered, ((last + 1) // 2)[:, :, None], axis=2)[:, :, 0]
    return _or_gap(np.where(count > 0, (low + high) / 2, np.nan))


def _weighted_record_sum(weights: Mapping[str, float], of: Records, limits: Floats) -> Floats:
    """Weighted sum of records in limits, (n, E): `one` is the limit itself, `range` the highest less the median."""
    total: Floats = np.zeros(of.highest.shape)
    for name, weight in weights.items():
        if name == "one":
            total = total + weight
        elif name == "range":
            total = total + weight * (of.highest - of.middle) / limits[:, None]
        else:
            total = total + weight * getattr(of, name) / limits[:, None]
    return total
