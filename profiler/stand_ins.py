"""Values that stand in for samples that are missing inside of a pod's life, of many series at once. Pure.

Whether a silent member of a total stands in, and for how long, follows from its own samples and its pod's life alone
(the rule: `cotenant.profiler.pool`). So it is found once for all series, in one pass over their samples, and a total
only adds stretches of neighbouring slots.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from cotenant.base.usage.sparse_usage import AnyUsage, as_sparse
from cotenant.base.usage.usage import HOUR_SECONDS, TimeGrid

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]

_HOLD_SECONDS: Final = HOUR_SECONDS
"""How long a member stands in for itself after its last sample."""


@dataclass(frozen=True, slots=True, eq=False)
class FilledSeries:
    """Samples of n series and what stands in for them, on a grid of `size` slots.

    Series i has the cells [bounds[i], bounds[i + 1]) from slot first[i] on. values: (cells,) float32, samples and what
    stands in between two of them, 0 for nothing; present: (cells,), whether it is a sample. After its last sample
    series i stands in with last_values[i] in the slots [hold_from[i], hold_until[i]).
    """

    size: int
    first: Integers
    bounds: Integers
    values: npt.NDArray[np.float32]
    present: Flags
    last_values: npt.NDArray[np.float32]
    hold_from: Integers
    hold_until: Integers

    def sums(self, rows: slice) -> tuple[Floats, Flags]:
        """Sum of these neighbouring series by slot, float64, and whether any of them has a sample, (size,) each."""
        sums, reported = np.zeros(self.size), np.zeros(self.size, dtype=bool)
        begins, ends = self.bounds[:-1][rows], self.bounds[1:][rows]
        firsts = self.first[rows]
        lines = (firsts, firsts + ends - begins, begins, ends, self.last_values[rows])
        columns = (column.tolist() for column in (*lines, self.hold_from[rows], self.hold_until[rows]))
        for first, last, begin, end, last_value, hold_from, hold_until in zip(*columns, strict=True):
            sums[first:last] += self.values[begin:end]
            reported[first:last] |= self.present[begin:end]
            if hold_from < hold_until:
                sums[hold_from:hold_until] += last_value
        return sums, reported


def fill(usage: AnyUsage[Any], start_seconds: Floats, end_seconds: Floats) -> FilledSeries:
    """Return the series with what stands in for missing samples.

    start_seconds, end_seconds: (n,) of each series' pod, Unix time: start of the newest one of its name (NaN =
    unknown), and end of the last one (inf = it runs).
    """
    usage = as_sparse(usage)
    first, bounds, cells = usage.first, usage.bounds, usage.cells
    present, grid = np.isfinite(cells), usage.grid
    values = cells
    ended = np.ceil((end_seconds - grid.start_seconds) / grid.step_seconds)
    if not present.all():
        values = np.where(present, cells, np.float32(0))
        gaps = _gaps(first, bounds, present)
        until = _substitute_ends(gaps, start_seconds, ended, grid)
        count = until - gaps.begin
        offset = np.arange(count.sum()) - np.repeat(count.cumsum() - count, count)
        values[np.repeat(gaps.last_cell + 1, count) + offset] = np.repeat(cells[gaps.last_cell], count)
    newest = _last_samples(bounds, present)
    some = newest >= 0
    hold_from = np.where(some, first + newest - bounds[:-1] + 1, 0)
    hold_until = np.minimum(hold_from + _HOLD_SECONDS // grid.step_seconds, ended).clip(hold_from, grid.size)
    return FilledSeries(
        size=grid.size,
        first=first,
        bounds=bounds,
        values=values,
        present=present,
        last_values=np.append(cells, np.float32(0))[newest],
        hold_from=hold_from,
        hold_until=np.where(some, hold_until, 0).astype(np.int64),
    )


class _Gaps(NamedTuple):
    """Gaps between two samples of one series, (gaps,) each.

    row: of the series; last_cell: cell of the sample before it; begin, end: its slots, [begin, end).
    """

    row: Integers
    last_cell: Integers
    begin: Integers
    end: Integers


def _gaps(first: Integers, bounds: Integers, present: Flags) -> _Gaps:
    """Return the gaps of all series, in order."""
    changes = present[:-1] != present[1:]
    borders = bounds[1:-1]
    changes[borders[(borders > 0) & (borders < len(present))] - 1] = False  # one series' last cell and another's first
    edges = np.flatnonzero(changes)
    falls, rises = edges[present[edges]], edges[~present[edges]]
    rows = np.searchsorted(bounds, falls, side="right") - 1
    back = np.append(rises, len(present))[np.searchsorted(rises, falls)] + 1
    closed = back < bounds[rows + 1]
    falls, rows, back = falls[closed], rows[closed], back[closed]
    begin = first[rows] + falls + 1 - bounds[rows]
    return _Gaps(rows, falls, begin, begin + back - falls - 1)


def _substitute_ends(gaps: _Gaps, start_seconds: Floats, ended: Floats, grid: TimeGrid) -> Integers:
    """Slot until which the sample before each gap stands in: all of it, or an hour where another pod began in it."""
    moment = grid.start_seconds + grid.step_seconds * gaps.begin
    same_life = ~(start_seconds[gaps.row] >= moment)
    hold_end = np.minimum(gaps.begin + _HOLD_SECONDS // grid.step_seconds, ended[gaps.row])
    until: Integers = np.where(same_life, gaps.end, hold_end.clip(gaps.begin, gaps.end)).astype(np.int64)
    return until


def _last_samples(bounds: Integers, present: Flags) -> Integers:
    """Cell of each series' last sample, (n,); -1 for a series without any."""
    begins, last = bounds[:-1], bounds[1:] - 1
    whole = (last >= begins) & np.append(present, False)[last]
    if whole.all():
        return last
    sampled = np.flatnonzero(present)
    place = np.searchsorted(sampled, bounds[1:]) - 1
    found = np.append(sampled, -1)[place]
    return np.where(found >= begins, found, -1)
