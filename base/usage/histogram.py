"""Decaying histograms of usage, as the Vertical Pod Autoscaler's recommender keeps them, for many series at once.

Part of every portrait; the recommender's percentiles come from here. A batch is one float64 matrix, series x buckets.
Rules restated from VPA (`recommender/util/{histogram,histogram_options,decaying_histogram}.go`):

- bucket 0 is [0, first); bucket b starts at first * (growth^b - 1) / (growth - 1); the last bucket has no end;
- a sample at time t weighs w * 2^((t - reference) / half life); the reference is a multiple of the half life (counted
  from year 1, as Go does) and moves forward when a sample is more than 100 half lives ahead of it;
- a bucket below epsilon counts as empty; a percentile is the END of the bucket where the sum of weights reaches
  fraction * total (the START of the last one).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.base.resource import DeviceResource, MeasuredResource, Resource

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

CPU_SAMPLE_WEIGHT: Final = 0.1
"""Weight of one CPU sample; a memory peak weighs 1."""

_MAX_DECAY_EXPONENT: Final = 100
_MAX_SPAN_HALF_LIVES: Final = 500
_YEAR_ONE: Final = datetime(1, 1, 1, tzinfo=UTC)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
YEAR_ONE_SECONDS: Final = int((_YEAR_ONE - _EPOCH).total_seconds())
"""Unix time of 0001-01-01: the reference time of a histogram that never saw a sample."""
_CELLS_PER_BLOCK: Final = 1 << 18  # samples that are binned in one go: small enough for the processor's cache


def _go_power(base: float, exponent: int) -> float:
    """base^exponent by repeated squaring, rounded where Go's math.Pow rounds: bucket borders agree to the bit."""
    power = 1.0
    while exponent:
        power *= base if exponent & 1 else 1.0
        base *= base
        exponent >>= 1
    return power


@dataclass(frozen=True, slots=True)
class Buckets:
    """An exponential bucket layout in the resource's unit; a bucket with less weight than `epsilon` counts as empty."""

    first: float
    growth: float
    maximum: float
    epsilon: float = 0.001 * 0.1
    starts: Floats = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.first <= 0 or self.growth <= 1 or self.maximum <= 0 or self.epsilon <= 0:
            raise ValueError(f"not a bucket layout: first {self.first}, growth {self.growth}, maximum {self.maximum}")
        ratio = self.growth - 1
        count = math.ceil(math.log(self.maximum * ratio / self.first + 1) / math.log(self.growth)) + 1
        starts = self.first * (np.array([_go_power(self.growth, b) for b in range(count)]) - 1) / ratio
        object.__setattr__(self, "starts", starts)

    @property
    def count(self) -> int:
        """Number of buckets."""
        return len(self.starts)

    def find(self, values: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.intp]:
        """Return each finite value's bucket: the first one for values below `first`, the last one above `maximum`."""
        wide = np.maximum(values, 0.0, dtype=np.float64)
        position = np.log(wide * (self.growth - 1) / self.first + 1) / math.log(self.growth)
        position += 1e-12  # numpy's logarithm may fall a rounding error short of a border; the border belongs above
        index: npt.NDArray[np.intp] = np.minimum(position, self.count - 1).astype(np.intp)
        index[wide < self.first] = 0
        return index


CPU_BUCKETS: Final = Buckets(first=10.0, growth=1.05, maximum=1_000_000.0)
"""Millicores: 0.01 core, growing 5 %, up to 1,000 cores."""
MEMORY_BUCKETS: Final = Buckets(first=1e7, growth=1.05, maximum=1e12)
"""Bytes: 10 MB, growing 5 %, up to 1 TB."""
PERCENT_BUCKETS: Final = Buckets(first=1.0, growth=1.05, maximum=10_000.0)
"""Percent of one device: 1 %, growing 5 %, up to 100 devices."""
_TOTAL_OF: Final = 1000
"""Containers at the maximum of their layout that one layout of totals has room for: a million cores, 1 PB."""


def buckets_of(resource: MeasuredResource) -> Buckets:
    """Return VPA's bucket layout for a container's resource; resources unknown to VPA have one of the same growth."""
    if isinstance(resource, DeviceResource):
        return PERCENT_BUCKETS
    return CPU_BUCKETS if resource is Resource.CPU else MEMORY_BUCKETS


@cache
def total_buckets_of(resource: MeasuredResource) -> Buckets:
    """Return the bucket layout for totals of many containers: that of one container with further buckets at its end."""
    of_container = buckets_of(resource)
    return replace(of_container, maximum=_TOTAL_OF * of_container.maximum)


@dataclass(frozen=True, slots=True, eq=False)
class HistogramBatch:
    """A batch of n decaying histograms with the same bucket layout; it is immutable.

    The shape of `weights` is (n, buckets.count), that of `total` and `reference_seconds` (n,); a histogram without
    samples has the reference YEAR_ONE_SECONDS.
    """

    buckets: Buckets
    half_life_seconds: int
    weights: Floats
    total: Floats
    reference_seconds: Integers

    @classmethod
    def empty(cls, size: int, buckets: Buckets, half_life_seconds: int) -> HistogramBatch:
        """Return `size` histograms without samples."""
        reference = np.full(size, YEAR_ONE_SECONDS, dtype=np.int64)
        return cls(buckets, half_life_seconds, np.zeros((size, buckets.count)), np.zeros(size), reference)

    def __len__(self) -> int:
        return len(self.total)

    def add(
        self,
        values: npt.NDArray[np.floating[Any]],
        times: Integers,
        rows: npt.NDArray[np.integer[Any]] | None = None,
        weight: float = 1.0,
    ) -> HistogramBatch:
        """Return the batch with these samples added; `values`, of shape (m, T), are in the unit, not finite in gaps.

        `times`, of shape (T,), are ascending Unix seconds. `rows`, of shape (m,), has the histogram of each row of
        values (several may share one; -1 is left out); None means row i to histogram i. Every sample weighs `weight`
        before decay.
        """
        target = np.arange(len(values)) if rows is None else np.asarray(rows)
        values, target = (values, target) if (target >= 0).all() else (values[target >= 0], target[target >= 0])
        if not values.size or not len(self):
            return self
        if times[-1] - times[0] > _MAX_SPAN_HALF_LIVES * self.half_life_seconds and len(times) > 1:
            half = len(times) // 2  # a longer span would leave the range of powers of two
            early = self.add(values[:, :half], times[:half], target, weight)
            return early.add(values[:, half:], times[half:], target, weight)
        moved = self._move_to(self._reference_after(values, times, target))
        base = int(_round_to(times[-1:], self.half_life_seconds)[0])
        decay = weight * np.exp2((times - base) / self.half_life_seconds)
        # Sum of decayed weights per (histogram, bucket), block of rows by block of rows
        buckets = self.buckets
        added = np.zeros(moved.weights.shape)
        step = max(1, _CELLS_PER_BLOCK // max(1, values.shape[1]))
        for start in range(0, len(values), step):
            block = values[start : start + step]
            sampled = np.flatnonzero(np.isfinite(block))  # of pods that come and go most slots are gaps
            row, slot = np.divmod(sampled, block.shape[1])
            cells = buckets.find(block.reshape(-1)[sampled]) + buckets.count * row
            counted = np.bincount(cells, decay[slot], minlength=len(block) * buckets.count)
            np.add.at(added, target[start : start + step], counted.reshape(len(block), buckets.count))
        added *= _power(base - moved.reference_seconds, self.half_life_seconds)[:, None]
        # Sum of each row (n, buckets), (n,): those of a container's layout first, so that wider ones round as it does
        of_container = CPU_BUCKETS.count
        total: Floats = added[:, :of_container].sum(axis=1) + added[:, of_container:].sum(axis=1)
        return replace(moved, weights=moved.weights + added, total=moved.total + total)

    def merge(self, other: HistogramBatch) -> HistogramBatch:
        """Return the sum of both batches, histogram by histogram, at the later reference time of each pair.

        The layouts, half lives and numbers of histograms must be equal.
        """
        if (self.buckets, self.half_life_seconds, len(self)) != (other.buckets, other.half_life_seconds, len(other)):
            raise ValueError("histograms of different layout, half life or number cannot be merged")
        reference = np.maximum(self.reference_seconds, other.reference_seconds)
        ours, theirs = self._move_to(reference), other._move_to(reference)
        return replace(ours, weights=ours.weights + theirs.weights, total=ours.total + theirs.total)

    def select(self, rows: npt.NDArray[np.integer[Any]]) -> HistogramBatch:
        """Return the histograms at these positions; position -1 gives an empty histogram."""
        return replace(
            self,
            weights=np.append(self.weights, np.zeros((1, self.buckets.count)), axis=0)[rows],
            total=np.append(self.total, 0.0)[rows],
            reference_seconds=np.append(self.reference_seconds, YEAR_ONE_SECONDS)[rows],
        )

    def percentile(self, fraction: float) -> Floats:
        """Return the percentile at `fraction` (0..1) of each histogram by VPA's rule; NaN (VPA: 0) if it is empty."""
        return self.percentiles((fraction,))[:, 0]

    def percentiles(self, fractions: Sequence[float], highest: Floats | None = None) -> Floats:
        """Return percentiles of each histogram as an array of shape (n, len(fractions)).

        The last bucket ends at the histogram's highest sample, `highest` (n,); if that is None, NaN or lower than the
        bucket's start, the start is used, as in VPA.
        """
        filled = self.weights >= self.buckets.epsilon
        first = filled.argmax(axis=1)[:, None]
        last = self.buckets.count - 1 - filled[:, ::-1].argmax(axis=1)[:, None]
        position = np.arange(self.buckets.count)
        partial = np.where(position >= first, self.weights, 0.0).cumsum(axis=1)
        ends = np.append(self.buckets.starts[1:], self.buckets.starts[-1])
        values = np.empty((len(self), len(fractions)))
        for column, fraction in enumerate(fractions):
            reached = (partial >= (fraction * self.total)[:, None]) | (position >= last)
            bucket = (reached & (position >= first)).argmax(axis=1)
            values[:, column] = ends[bucket]
            if highest is not None:
                endless = bucket == self.buckets.count - 1
                values[endless, column] = np.fmax(highest[endless], ends[-1])
        values[~filled.any(axis=1)] = np.nan
        return values

    def _move_to(self, reference: Integers) -> HistogramBatch:
        """Return the same histograms at later reference times: every weight times a power of two."""
        if np.array_equal(reference, self.reference_seconds):
            return self
        factor = _power(self.reference_seconds - reference, self.half_life_seconds)
        return replace(
            self, weights=self.weights * factor[:, None], total=self.total * factor, reference_seconds=reference
        )

    def _reference_after(
        self, values: npt.NDArray[np.floating[Any]], times: Integers, target: npt.NDArray[np.integer[Any]]
    ) -> Integers:
        """Return the reference times after all samples: moved to the first sample beyond each limit, until none is."""
        reference = self.reference_seconds.copy()
        while True:
            limit = (reference + _MAX_DECAY_EXPONENT * self.half_life_seconds)[target]
            rows = np.flatnonzero(limit < times[-1])
            beyond = np.isfinite(values[rows]) & (times > limit[rows, None])
            rows, beyond = rows[beyond.any(axis=1)], beyond[beyond.any(axis=1)]
            if not len(rows):
                return reference
            first = np.full(len(reference), np.iinfo(np.int64).max)
            np.minimum.at(first, target[rows], times[beyond.argmax(axis=1)])
            met = np.unique(target[rows])
            reference[met] = _round_to(first[met], self.half_life_seconds)


def _power(elapsed_seconds: Integers, half_life_seconds: int) -> Floats:
    """Return 2^(whole half lives in an elapsed time), kept finite (a reference never set scales only zeros)."""
    exponent = np.floor(elapsed_seconds / half_life_seconds + 0.5)
    return np.ldexp(1.0, np.clip(exponent, -2000, 1000).astype(np.int32))


def _round_to(seconds: Integers, half_life_seconds: int) -> Integers:
    """Return the nearest multiple of the half life counted from year 1, halves rounded up (Go's Time.Round)."""
    since = np.asarray(seconds, dtype=np.int64) - YEAR_ONE_SECONDS
    rounded = (2 * since + half_life_seconds) // (2 * half_life_seconds) * half_life_seconds
    return rounded + YEAR_ONE_SECONDS
