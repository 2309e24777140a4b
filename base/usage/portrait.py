"""Portrait: a fixed-size summary of a series, stored as columns over many series.

One portrait describes a container of a workload (all its pods pooled), a workload's total, or a node. The same code
(`profiler.portrait`) updates it incrementally and rebuilds it; a batch keeps one numpy row per series so that 100,000
portraits are a few matrices. Start-up samples (the first minutes of a pod's life) are kept separately, because a JVM's
warm-up says nothing about its steady request. Sums and counts are stored, so that newer usage can be added; means and
the like are derived.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from cotenant.base.identity import SeriesRef
from cotenant.base.resource import MeasuredResource
from cotenant.base.usage.histogram import HistogramBatch

Floats = npt.NDArray[np.float64]
RefT = TypeVar("RefT", bound=SeriesRef)

SLOTS_PER_DAY: Final = 48
"""Half hours of the UTC day."""


class Pattern(StrEnum):
    """The pattern of usage over time, derived from the portrait (the stored summary of a series) alone."""

    IDLE = "idle"
    FLAT = "flat"
    DAILY = "daily"
    WEEKLY = "weekly"
    BURSTY = "bursty"
    TREND = "trend"
    UNKNOWN = "unknown"


@dataclass(frozen=True, eq=False)
class Portraits(Generic[RefT]):
    """Portraits of n series of one resource; every array's first axis is n. Amounts are in the resource's unit.

    The `daily_*` arrays are (n, days kept), by UTC day, the newest (with the last slot) last; `daily_maxima` is NaN
    without samples. `slot_sums` and `slot_counts` are (n, 2, 48), by workday/weekend x half hour of the UTC day;
    `slot_maxima` is (n, 7, 48), by day of week (0 = Monday), NaN if never seen. All of these exclude start-up samples,
    of which `startup_max` is the highest and `startup_samples` the number. `first_seconds` and `last_seconds` are the
    starts of the first and last slot with any sample, NaN for none; `seen` is the number of slots with any sample.
    """

    refs: tuple[RefT, ...]
    resource: MeasuredResource
    step_seconds: int
    end_seconds: int
    histograms: HistogramBatch
    startup_max: Floats
    startup_samples: Floats
    first_seconds: Floats
    last_seconds: Floats
    seen: Floats
    square_sums: Floats
    daily_maxima: Floats
    daily_sums: Floats
    daily_counts: Floats
    slot_sums: Floats
    slot_counts: Floats
    slot_maxima: Floats
    pattern: tuple[Pattern, ...]

    @cached_property
    def samples(self) -> Floats:
        """Number of samples of each series outside the start-up phase, of all its pods together."""
        counts: Floats = self.slot_counts.sum(axis=(1, 2))
        return counts

    @cached_property
    def mean(self) -> Floats:
        """Mean of each series' samples; NaN if there is none."""
        return ratio(self.slot_sums.sum(axis=(1, 2)), self.samples)

    @cached_property
    def maximum(self) -> Floats:
        """Highest sample of each series in the days kept; NaN if there is none."""
        highest: Floats = np.fmax.reduce(self.daily_maxima, axis=1, initial=np.nan)
        return highest

    @cached_property
    def daily_means(self) -> Floats:
        """Mean of each series and day kept, in an array of shape (n, days); NaN without samples."""
        return ratio(self.daily_sums, self.daily_counts)

    @cached_property
    def span_days(self) -> Floats:
        """Days between the first and the last sample of each series; 0 without samples."""
        return np.nan_to_num((self.last_seconds - self.first_seconds) / 86_400.0)

    @cached_property
    def coverage(self) -> Floats:
        """Share (0..1) of each series' slots, from its first to its last sample, that have one; 0 without samples."""
        slots = np.nan_to_num((self.last_seconds - self.first_seconds) / self.step_seconds + 1)
        return np.nan_to_num(ratio(self.seen, slots))

    def percentile(self, fraction: float) -> Floats:
        """Return the decaying percentile at `fraction` (0..1) of each series; NaN without samples."""
        return self.percentiles((fraction,))[:, 0]

    def percentiles(self, fractions: Sequence[float]) -> Floats:
        """Return decaying percentiles of each series, at most its maximum, as an array (n, len(fractions))."""
        return self.histograms.percentiles(fractions, self.maximum)


def ratio(amount: Floats, count: npt.NDArray[Any]) -> Floats:
    """Return amount / count, NaN where the count is 0."""
    quotient: Floats = np.divide(amount, count, out=np.full(amount.shape, np.nan), where=count > 0)
    return quotient
