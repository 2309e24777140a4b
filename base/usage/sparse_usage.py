"""Usage of very many pods that lived a short time each: only the slots of each pod's life are stored. Pure.

A cluster that is rolled out every two days has eight pods for each that runs: as a matrix of pods and slots, seven
eighths of its history are gaps. `SparseUsage` stores each row from its first to its last sample, and returns dense rows
of as many series as a caller can hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Generic, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from cotenant.base.resource import MeasuredResource
from cotenant.base.usage.usage import FloatMatrix, RefT, Statistic, TimeGrid, Usage

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class SparseUsage(Generic[RefT]):
    """Series of one signal; series i has the values `cells[bounds[i]:bounds[i + 1]]` from slot `first[i]` on.

    Shapes: `first` (n,), `bounds` (n + 1,), `cells` (bounds[-1],) float32 in the unit; NaN and other slots are gaps.
    """

    refs: tuple[RefT, ...]
    grid: TimeGrid
    first: Integers
    bounds: Integers
    cells: npt.NDArray[np.float32]
    resource: MeasuredResource | None
    statistic: Statistic

    def __post_init__(self) -> None:
        if len(self.first) != len(self.refs) or len(self.bounds) != len(self.refs) + 1:
            raise ValueError(f"{len(self.first)} first slots, {len(self.bounds)} bounds for {len(self.refs)} series")

    @cached_property
    def row_of(self) -> dict[RefT, int]:
        """The row of each series by its reference."""
        return {ref: row for row, ref in enumerate(self.refs)}

    def rows(self, index: slice | npt.NDArray[Any]) -> FloatMatrix:
        """Return dense values of these series, a row each; `index` is a numpy index: slice, positions or flags."""
        return self._dense(np.arange(len(self.refs))[index], 0)

    def at(self, rows: Integers, slots: Integers) -> FloatMatrix:
        """Return the values of these series in these slots, a row for each series; NaN outside of its samples."""
        if not len(self.cells):
            return np.full((len(rows), len(slots)), np.nan, dtype=np.float32)
        begin, end = self.bounds[rows, None], self.bounds[rows + 1, None]
        place = begin - self.first[rows, None] + slots
        inside = (place >= begin) & (place < end)
        return np.where(inside, self.cells[np.where(inside, place, 0)], np.float32(np.nan))

    def select(self, index: npt.NDArray[Any]) -> Usage[RefT]:
        """Return the series at `index`, as dense Usage."""
        positions = np.arange(len(self.refs))[index]
        refs = tuple(self.refs[row] for row in positions.tolist())
        return Usage(refs, self.grid, self._dense(positions, 0), self.resource, self.statistic)

    def take(self, index: npt.NDArray[Any]) -> SparseUsage[RefT]:
        """Return the series at `index`, as SparseUsage."""
        positions = np.arange(len(self.refs))[index]
        lengths = np.diff(self.bounds)[positions]
        bounds = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])
        cells = np.empty(int(bounds[-1]), dtype=self.cells.dtype)
        # stretches of neighbouring series are copied whole: positions of all cells would take four times their memory
        edges = [0, *(np.flatnonzero(np.diff(positions) != 1) + 1).tolist(), len(positions)]
        for begin, end in pairwise(edges):
            if begin < end:
                source = slice(self.bounds[positions[begin]], self.bounds[positions[end - 1] + 1])
                cells[bounds[begin] : bounds[end]] = self.cells[source]
        refs = tuple(self.refs[row] for row in positions.tolist())
        return replace(self, refs=refs, first=self.first[positions], bounds=bounds, cells=cells)

    def filled(self, other: SparseUsage[RefT]) -> SparseUsage[RefT]:
        """Return the series of both usages (same grid), `other`'s first; values of `other` fill gaps of this usage."""
        refs = (*other.refs, *(ref for ref in self.refs if ref not in other.row_of))
        lines = [_merge_spans(self._span(ref), other._span(ref)) for ref in refs]
        bounds = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum([len(line) for _, line in lines])])
        cells = np.concatenate([line for _, line in lines]) if lines else self.cells
        return replace(
            self, refs=refs, first=np.array([first for first, _ in lines], np.int64), bounds=bounds, cells=cells
        )

    def _span(self, ref: RefT) -> Span:
        """Return the first slot and the values of a series; no values if there is no such series."""
        row = self.row_of.get(ref)
        if row is None:
            return self.grid.size, self.cells[:0]
        return int(self.first[row]), self.cells[self.bounds[row] : self.bounds[row + 1]]

    def sums(self) -> npt.NDArray[np.float64]:
        """Return the sum of each series' samples; 0 for a series without samples."""
        sums, some = np.zeros(len(self.refs)), np.diff(self.bounds) > 0
        if some.any():
            present = np.where(np.isnan(self.cells), np.float32(0), self.cells)
            sums[some] = np.add.reduceat(present, self.bounds[:-1][some], dtype=np.float64)
        return sums

    def highest(self) -> npt.NDArray[np.float64]:
        """Return the highest sample of each series; NaN for a series without samples."""
        highest, some = np.full(len(self.refs), np.nan), np.diff(self.bounds) > 0
        if some.any():
            highest[some] = np.fmax.reduceat(self.cells, self.bounds[:-1][some])
        return highest

    def dense(self) -> Usage[RefT]:
        """Return all series as one dense matrix."""
        return Usage(self.refs, self.grid, self.rows(slice(None)), self.resource, self.statistic)

    def tail(self, slots: int) -> Usage[RefT]:
        """Return the last `slots` slots of all series, as dense Usage."""
        grid = self.grid.last(slots)
        values = self._dense(np.arange(len(self.refs)), self.grid.size - grid.size)
        return Usage(self.refs, grid, values, self.resource, self.statistic)

    def _dense(self, positions: npt.NDArray[np.integer[Any]], from_slot: int) -> FloatMatrix:
        values = np.full((len(positions), self.grid.size - from_slot), np.nan, dtype=np.float32)
        begins, ends = self.bounds[positions], self.bounds[positions + 1]
        places = self.first[positions] - from_slot
        # of series that begin before the slot, what comes after it
        begins = begins + np.minimum(np.maximum(-places, 0), ends - begins)
        lasts = places + ends - self.bounds[positions]
        firsts = lasts - (ends - begins)
        columns = (column.tolist() for column in (firsts, lasts, begins, ends))
        for row, first, last, begin, end in zip(values, *columns, strict=True):
            row[first:last] = self.cells[begin:end]
        return values


Span: TypeAlias = tuple[int, npt.NDArray[np.float32]]
"""First slot and values of a series."""


def _merge_spans(own: Span, other: Span) -> Span:
    """Join two spans; where both have a value, the first one's counts."""
    spans = [span for span in (other, own) if len(span[1])]
    begin = min((first for first, _ in spans), default=0)
    line = np.full(
        max((first + len(values) for first, values in spans), default=begin) - begin, np.nan, dtype=np.float32
    )
    for first, values in spans:
        np.copyto(line[first - begin : first - begin + len(values)], values, where=~np.isnan(values))
    return begin, line


AnyUsage: TypeAlias = Usage[RefT] | SparseUsage[RefT]
"""Usage that can return some of its series as dense rows."""


def as_sparse(usage: AnyUsage[RefT]) -> SparseUsage[RefT]:
    """Return the same series as SparseUsage; dense ones keep every slot and are not copied."""
    if isinstance(usage, SparseUsage):
        return usage
    count, size = usage.values.shape
    first, bounds = np.zeros(count, dtype=np.int64), size * np.arange(count + 1, dtype=np.int64)
    return SparseUsage(usage.refs, usage.grid, first, bounds, usage.values.ravel(), usage.resource, usage.statistic)


@dataclass(frozen=True, slots=True, eq=False)
class Stretch:
    """Values of some series in consecutive slots: `values` (len(rows), slots), from slot `first` of the grid on."""

    rows: npt.NDArray[np.integer[Any]]
    first: int
    values: FloatMatrix


def of_stretches(
    refs: Sequence[RefT],
    grid: TimeGrid,
    stretches: Iterable[Stretch],
    resource: MeasuredResource | None,
    statistic: Statistic,
) -> SparseUsage[RefT]:
    """Return the usage made of stretches that do not overlap; nothing is stored for a series without values."""
    parts = [part for part in stretches if part.values.size]
    begin, end = np.full(len(refs), grid.size, dtype=np.int64), np.zeros(len(refs), dtype=np.int64)
    for part in parts:
        present = ~np.isnan(part.values)
        some, slots = present.any(axis=1), part.values.shape[1]
        rows = part.rows[some]
        begin[rows] = np.minimum(begin[rows], part.first + present[some].argmax(axis=1))
        end[rows] = np.maximum(end[rows], part.first + slots - present[some][:, ::-1].argmax(axis=1))
    begin = np.minimum(begin, end)
    bounds = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(end - begin)])
    cells = np.full(int(bounds[-1]), np.nan, dtype=np.float32)
    for part in parts:
        rows, slots = part.rows, part.values.shape[1]
        place = bounds[rows] - begin[rows] + part.first
        is_whole = (begin[rows] <= part.first) & (end[rows] >= part.first + slots)
        if is_whole.any():  # rows are copied as they are, many times faster than cell by cell
            sliding_window_view(cells, slots, writeable=True)[place[is_whole]] = part.values[is_whole]
        # Return whether each slot lies in [begin, end) of each row, (rows, slots).
        within_slots = part.first + np.arange(slots)
        row, slot = np.nonzero(
            (within_slots >= begin[rows[~is_whole]][:, None]) & (within_slots < end[rows[~is_whole]][:, None])
        )
        cells[place[~is_whole][row] + slot] = part.values[~is_whole][row, slot]
    return SparseUsage(tuple(refs), grid, begin, bounds, cells, resource, statistic)
