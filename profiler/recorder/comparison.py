"""Compares a recorder's values with Prometheus', slot by slot, to check that both measure the same. Pure.

Means and memory maxima of both agree, except for readings at other times near a slot's ends. Peaks are not compared,
because their rates span different times.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from cotenant.base.kubernetes.quantity import human_bytes
from cotenant.base.text import share
from cotenant.base.usage.usage import Signal, Usage
from cotenant.profiler.recorder.precedence import RecordedTime

LEAST_SLOTS: Final = 3
"""Least slots of a row that both sources must have: in a single slot, reading times differ by up to an interval."""
LEAST_SHARE: Final = 0.1
"""Share of the larger value below which different reading times explain a difference."""
LEAST_DIFFERENCE: Final = {Signal.CPU_USAGE_MEAN: 10.0, Signal.MEMORY_WORKING_SET_MAX: 16.0 * 2**20}
"""Signals that are compared -> difference, in millicores and bytes, below which none counts."""


@dataclass(frozen=True, slots=True)
class RowDifference:
    """A container whose recorded and scraped values differ, by the median over common slots, in the signal's unit."""

    signal: Signal
    row: str
    slots: int
    recorded: float
    scraped: float

    @property
    def share(self) -> float:
        """Difference of both values divided by the larger value, 0..1."""
        larger = max(self.recorded, self.scraped)
        return abs(self.recorded - self.scraped) / larger if larger else 0.0

    def __str__(self) -> str:
        """Return both medians with the row: `shop/web-1/main CPU 210m recorded, 105m scraped (50.0 % apart, ...)`."""
        of_cpu = self.signal is Signal.CPU_USAGE_MEAN
        ours, theirs = (
            f"{value:.0f}m" if of_cpu else human_bytes(round(value)) for value in (self.recorded, self.scraped)
        )
        what = "CPU" if of_cpu else "memory"
        return f"{self.row} {what} {ours} recorded, {theirs} scraped ({share(self.share)} apart, {self.slots} slots)"


@dataclass(frozen=True, slots=True)
class SourceComparison:
    """Number of rows and slots that both recorder and Prometheus have; rows that differ, largest difference first."""

    rows: int
    slots: int
    differing: tuple[RowDifference, ...]

    def sentence(self, shown: int) -> str:
        """Return a sentence with the number of compared rows and with at most `shown` of the differing rows."""
        count_text = f"{self.rows} rows and {self.slots} slots compared between recorder and Prometheus"
        if not self.differing:
            return f"{count_text}, none differs"
        return f"{count_text}, {len(self.differing)} differ: {'; '.join(map(str, self.differing[:shown]))}"


def compare_sources(pairs: dict[Signal, tuple[Usage[Any], Usage[Any]]], recorded: RecordedTime) -> SourceComparison:
    """Compare usage by signal, (recorded, scraped) on the same time grid, in slots that were recorded completely.

    A row is compared if both have at least LEAST_SLOTS of the same slots; slots that one of them lacks are ignored.
    """
    rows, slots, differing = 0, 0, list[RowDifference]()
    for signal, (own, scraped) in pairs.items():
        covered_slots = recorded.slots(own.grid)
        for ref in own.row_of.keys() & scraped.row_of.keys():
            ours, theirs = own.values[own.row_of[ref]], scraped.values[scraped.row_of[ref]]
            common = covered_slots & np.isfinite(ours) & np.isfinite(theirs)
            if (count := int(common.sum())) < LEAST_SLOTS:
                continue
            rows, slots = rows + 1, slots + count
            medians = (float(np.median(values[common])) for values in (ours, theirs))
            difference = RowDifference(signal, str(ref), count, *medians)
            if difference.share >= LEAST_SHARE and (
                abs(difference.recorded - difference.scraped) >= LEAST_DIFFERENCE[difference.signal]
            ):
                differing.append(difference)
    return SourceComparison(rows, slots, tuple(sorted(differing, key=lambda row: (-row.share, row.row))))
