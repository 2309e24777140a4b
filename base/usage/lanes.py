"""Many short series in few rows: series of one group that never overlap share a row, their lane. Pure.

If a workload is rolled out every two days, seven pods of eight are gone: with a row per pod almost all cells are gaps.
Statistics over a group do not depend on which pod a sample is of, so lanes are enough, and cost grows with the samples.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cotenant.base.usage.usage import FloatMatrix

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Lanes:
    """The assignment of m series over T slots to L lanes, which are rows that several series share.

    `lane`, `first` and `end` have the shape (m,): a series has the slots [first, end) of its lane to itself, none if it
    has no sample. `groups`, of shape (L,), is the group of each lane, ascending unless every series has its own lane.
    `size` is T.
    """

    lane: Integers
    first: Integers
    end: Integers
    groups: Integers
    size: int

    @classmethod
    def of(
        cls, present: npt.NDArray[np.bool_], groups: npt.NDArray[np.integer[Any]], width: int = 1, lead: int = 0
    ) -> Lanes:
        """Return lanes for m series by their groups, of shape (m,); `present`, of shape (m, T), flags their samples.

        Two series of a lane share no block of `width` slots; the first block begins `lead` slots before the first slot.
        """
        count, size = present.shape
        some = present.any(axis=1)
        first = np.where(some, present.argmax(axis=1) if size else 0, 0)
        end = np.where(some, size - present[:, ::-1].argmax(axis=1) if size else 0, 0)
        if len(np.unique(groups)) == count:
            return cls(np.arange(count), first, end, groups.astype(np.int64), size)
        begins, ends = _in_blocks(first, end, width, lead)
        lane, group_of_lane = np.zeros(count, dtype=np.int64), list[int]()
        free: list[tuple[int, int]] = []  # heap of the group's lanes: (block from which on it is free, lane)
        rows = np.flatnonzero(some)
        rows = rows[np.lexsort((begins[rows], groups[rows]))]
        columns = (rows, groups[rows], begins[rows], ends[rows])
        for row, group, begin, stop in zip(*(column.tolist() for column in columns), strict=True):
            if not group_of_lane or group_of_lane[-1] != group:
                free = []
            if free and free[0][0] <= begin:
                lane[row] = free[0][1]
                heapq.heapreplace(free, (stop, free[0][1]))
            else:
                lane[row] = len(group_of_lane)
                heapq.heappush(free, (stop, len(group_of_lane)))
                group_of_lane.append(group)
        return cls(lane, first, end, np.array(group_of_lane, dtype=np.int64), size)

    def pack(self, values: FloatMatrix, rows: Integers | None = None) -> FloatMatrix:
        """Return the values of the L lanes, of shape (L, T), with NaN between series.

        `rows`, of shape (m,), is each series' row in `values`, -1 if it has none; None stands for 0..m-1.
        """
        if rows is None and len(self.groups) == len(self.lane) and (self.lane == np.arange(len(self.lane))).all():
            return values
        packed = np.full((len(self.groups), self.size), np.nan, dtype=np.float32)
        source = range(len(self.lane)) if rows is None else rows.tolist()
        for row, lane, first, end in zip(
            source, self.lane.tolist(), self.first.tolist(), self.end.tolist(), strict=True
        ):
            if row >= 0 and first < end:
                packed[lane, first:end] = values[row, first:end]
        return packed

    def blocks(self, of_lanes: npt.NDArray[Any], width: int, lead: int) -> npt.NDArray[Any]:
        """Return each series' blocks from `of_lanes` (L, blocks), padded with NaN; `width`, `lead`: as in `of`."""
        first, end = _in_blocks(self.first, self.end, width, lead)
        own = np.full((len(self.lane), int((end - first).max(initial=0))), np.nan)
        columns = zip(self.lane.tolist(), first.tolist(), end.tolist(), strict=True)
        for row, (lane, begin, stop) in zip(own, columns, strict=True):
            if begin < stop:
                row[: stop - begin] = of_lanes[lane, begin:stop]
        return own


def _in_blocks(first: Integers, end: Integers, width: int, lead: int) -> tuple[Integers, Integers]:
    """Return the blocks [first, end) that contain each series' slots [first, end); none for an empty series."""
    begin = (first + lead) // width
    return begin, np.where(first < end, -(-(end + lead) // width), begin)
