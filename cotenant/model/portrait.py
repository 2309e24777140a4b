"""Portrait: the fixed-size memory of a series, as columns over many series.

One portrait describes a container of a workload (all its pods pooled), a workload's total, or a node. It is updated
incrementally and rebuilt by the same code (`profiler.portrait`); a batch keeps one numpy row per series so that 100,000
portraits are a few matrices. Start-up samples (the first minutes of a container's life) are kept apart, because a JVM's
warm-up says nothing about its steady request.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from cotenant.model.histogram import HistogramBatch
from cotenant.model.identity import SeriesRef
from cotenant.model.resource import Resource

Floats = npt.NDArray[np.float64]
RefT = TypeVar("RefT", bound=SeriesRef)


class Pattern(StrEnum):
    """How usage moves, by the portrait alone."""

    IDLE = "idle"
    FLAT = "flat"
    DAILY = "daily"
    WEEKLY = "weekly"
    BURSTY = "bursty"
    TREND = "trend"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, eq=False)
class Portraits(Generic[RefT]):
    """Portraits of n series of one resource; every array's first axis is n. Amounts in the resource's unit.

    daily_maxima: (n, days kept), newest last, NaN where no sample; slots: (n, 2, 48) mean by weekday/weekend x half hour
    of the UTC day, NaN where never seen; slot_maxima: (n, 7, 48), the maximum by day of week (0 = Monday) x half hour.
    """

    refs: tuple[RefT, ...]
    resource: Resource
    end_seconds: int
    histograms: HistogramBatch
    startup_max: Floats
    samples: Floats
    startup_samples: Floats
    first_seconds: Floats
    last_seconds: Floats
    mean: Floats
    maximum: Floats
    daily_maxima: Floats
    slots: Floats
    slot_maxima: Floats
    coverage: Floats
    pattern: tuple[Pattern, ...]

    @property
    def span_days(self) -> Floats:
        """Days between the first and the last sample of each series; 0 for none."""
        return np.nan_to_num((self.last_seconds - self.first_seconds) / 86_400.0)

    def percentile(self, fraction: float) -> Floats:
        """Decaying percentile of each series by the histogram's rule; NaN without samples."""
        return self.histograms.percentile(fraction)
