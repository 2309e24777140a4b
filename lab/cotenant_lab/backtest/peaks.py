"""Predictors of a node's next 24-hour peak that others use today, which cotenant's has to beat. Pure and frozen.

Definitions follow "Take it to the limit: peak prediction-driven resource overcommitment in datacenters" (Bashir et al.,
EuroSys 2021): usage is capped at the pod's limit, a prediction is never above the sum of limits, and a pod with fewer
than two hours of samples counts with its limit. The forecast engine does not use this file: baselines stay as they are
while it improves.

Shapes: every method works on any number of nodes at once, as leading axes of `usage` (..., pods, slots) and `limits`
(..., pods). A pod that a node does not have is a row of gaps with limit 0. Gaps are NaN. Units are those of the usage.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from cotenant.base.usage.usage import DAY_SECONDS, TimeGrid
from cotenant.forecasting.backtest.baselines.crane import CraneDsp
from cotenant.forecasting.empirical import row_quantiles, weighted_quantiles

Floats = npt.NDArray[np.floating[Any]]

MINIMUM_SAMPLES: Final = 24
"""Samples below which a pod counts with its limit: 2 h at 5 minutes."""
_HALF_LIVES_KEPT: Final = 10


class PeakPredictor(Protocol):
    """Predicts the highest usage of a node over the next 24 hours from its pods' past."""

    @property
    def name(self) -> str:
        """The predictor's name in every figure, with its important parameters."""

    def peaks(self, usage: Floats, limits: Floats, slots_per_day: int) -> Floats:
        """Return each node's peak (...), in the unit of usage, from usage (..., pods, slots) up to the forecast."""


def oracle(after: Floats, limits: Floats) -> Floats:
    """Return B12: the pods' highest total over the slots that followed, (...); NaN if nothing was measured."""
    return _highest(node_total(after, limits))


def node_total(usage: Floats, limits: Floats) -> Floats:
    """Return the sum over pods of usage capped at the limit, (..., slots); NaN for a slot without any sample."""
    present = ~np.isnan(usage)
    total: Floats = np.where(present, np.minimum(usage, limits[..., None]), 0.0).sum(axis=-2, dtype=np.float64)
    return np.where(present.any(axis=-2), total, np.nan)


@dataclass(frozen=True, slots=True)
class NoOvercommit:
    """Predictor B13: the sum of limits, so that nothing can be reclaimed."""

    name: str = "B13 no overcommit"

    def peaks(self, usage: Floats, limits: Floats, slots_per_day: int) -> Floats:  # noqa: ARG002 - the contract's
        """Return the sum of the pods' limits, (...), in the unit of usage, whatever the usage is."""
        total: Floats = limits.sum(axis=-1, dtype=np.float64)
        return total


@dataclass(frozen=True, slots=True)
class BorgDefault:
    """Predictor B6: a fixed share of the sum of limits."""

    share: float = 0.9
    name: str = "B6 borg-default 0.9"

    def peaks(self, usage: Floats, limits: Floats, slots_per_day: int) -> Floats:  # noqa: ARG002 - the contract's
        """Return `share` x the sum of the pods' limits, (...), in the unit of usage, whatever the usage is."""
        total: Floats = self.share * limits.sum(axis=-1, dtype=np.float64)
        return total


@dataclass(frozen=True, slots=True)
class MaxOfDays:
    """Predictor B3: the highest node total of the last days x a factor."""

    days: int = 7
    factor: float = 1.0
    name: str = "B3 max of 7 d"

    def peaks(self, usage: Floats, limits: Floats, slots_per_day: int) -> Floats:
        """Return the highest node total of the last `days` x `factor` + the limits of pods with few samples, (...).

        The result is at most the sum of limits, and equals it if nothing was measured.
        """
        recent = usage[..., -self.days * slots_per_day :]
        return _bound_peaks(self.factor * _highest(node_total(recent, limits)), usage, limits)


@dataclass(frozen=True, slots=True)
class VpaLike:
    """Predictor B4: per pod, the percentile of a histogram with a half-life of 24 h, + 15 %; summed over pods."""

    percentile: float = 0.9
    margin: float = 0.15
    name: str = "B4 vpa p90 + 15 %"

    def peaks(self, usage: Floats, limits: Floats, slots_per_day: int) -> Floats:
        """Return the sum over pods of (1 + margin) x weighted percentile, (...); with few samples a pod's limit."""
        per_pod = (1 + self.margin) * _decaying_percentile(
            _cap_at_limits(usage, limits), self.percentile, slots_per_day
        )
        return _sum_of(per_pod, usage, limits, MINIMUM_SAMPLES)


@dataclass(frozen=True, slots=True)
class KoordinatorMin:
    """Predictor B5, Koordinator's: the larger of two peaks + 10 %: the sum of the pods' peaks, and the total's peak.

    A peak is a percentile of a histogram, for CPU p95 with a half-life of 12 h (for memory p98 and 24 h). A pod younger
    than `cold_days` counts with its limit. Percentiles are rounded up to the ends of buckets: the first ends at
    `first_bucket` (25 millicores or 5 MiB in Koordinator), each is 5 % larger than the one before. 0 means exact
    percentiles.
    """

    percentile: float = 0.95
    half_life_days: float = 0.5
    margin: float = 0.10
    cold_days: float = 1.0
    first_bucket: float = 0.0
    name: str = "B5 koordinator min-reclaim"

    def peaks(self, usage: Floats, limits: Floats, slots_per_day: int) -> Floats:
        """Return the larger of two peaks, (...): the sum of the pods' peaks, and the peak of the node's total.

        Both are (1 + margin) x the weighted percentile, in the unit of usage. Koordinator lends the smaller of two
        reclaimable amounts, each limits or allocatable less a peak, and so the larger peak decides.
        """
        half_life, raised = self.half_life_days * slots_per_day, 1 + self.margin
        per_pod = raised * self._bucket_ends(
            _decaying_percentile(_cap_at_limits(usage, limits), self.percentile, half_life)
        )
        pods = _sum_of(per_pod, usage, limits, max(1, round(self.cold_days * slots_per_day)))
        total = raised * self._bucket_ends(_decaying_percentile(node_total(usage, limits), self.percentile, half_life))
        return np.fmax(pods, _bound_peaks(total, usage, limits))

    def _bucket_ends(self, values: Floats) -> Floats:
        """End of the bucket that holds a value: bucket k starts at first x (1.05^k - 1) / 0.05."""
        if not self.first_bucket:
            return values
        growth = 0.05
        bucket = np.floor(np.log1p(values * growth / self.first_bucket) / np.log1p(growth) + 1e-9)
        ends: Floats = self.first_bucket * ((1 + growth) ** (bucket + 1) - 1) / growth
        return ends


@dataclass(frozen=True, slots=True)
class ResourceCentralLike:
    """Predictor B7: per pod, the percentile of usage / limit in the last hours x its present limit; then the sum."""

    percentile: float = 0.99
    hours: float = 10.0
    name: str = "B7 rc-like p99, 10 h"

    def peaks(self, usage: Floats, limits: Floats, slots_per_day: int) -> Floats:
        """Return the sum over pods of the percentile of the last `hours`, (...); with few samples a pod's limit."""
        recent = _cap_at_limits(_last_hours(usage, self.hours, slots_per_day), limits)
        per_pod = row_quantiles(recent, np.array([self.percentile]))[..., 0]
        return _sum_of(per_pod, usage, limits, MINIMUM_SAMPLES)


@dataclass(frozen=True, slots=True)
class NSigma:
    """Predictor B8: mean + N standard deviations of total usage / total limit of the last hours, x present limits."""

    sigmas: float = 5.0
    hours: float = 10.0
    name: str = "B8 n-sigma 5, 10 h"

    def peaks(self, usage: Floats, limits: Floats, slots_per_day: int) -> Floats:
        """Return (mean + sigmas x deviation) of the ratio usage / limits, at most 1, x the present limits, (...).

        The ratio of a slot counts only the limits of pods with a sample in it, so that pods that come and go do not
        look like load. Pods with fewer than MINIMUM_SAMPLES samples add their limit instead.
        """
        warm = _samples(usage) >= MINIMUM_SAMPLES
        recent = np.where(warm[..., None], _last_hours(usage, self.hours, slots_per_day), np.nan)
        reporting_limit = np.where(np.isnan(recent), 0.0, limits[..., None]).sum(axis=-2)
        used = node_total(recent, limits)
        ratio = np.divide(used, reporting_limit, out=np.full(reporting_limit.shape, np.nan), where=reporting_limit > 0)
        # Sample standard deviation; 0 of a single value.
        count = (~np.isnan(ratio)).sum(axis=-1)
        squares = np.nan_to_num((ratio - _mean(ratio)[..., None]) ** 2).sum(axis=-1)
        deviation: Floats = np.sqrt(squares / np.maximum(count - 1, 1))
        peak = np.minimum(1.0, _mean(ratio) + self.sigmas * deviation)
        cold = np.where(warm, 0.0, limits).sum(axis=-1)
        warm_limit = (limits * warm).sum(axis=-1)
        result: Floats = np.where(np.isnan(peak), warm_limit, peak * warm_limit) + cold
        return result


@dataclass(frozen=True, slots=True)
class CranePeak:
    """Predictor B10: the highest point of the path that Crane forecasts for the node's total."""

    name: str = "B10 crane dsp (fft + max)"

    def peaks(self, usage: Floats, limits: Floats, slots_per_day: int) -> Floats:
        """Return the highest point of the day that `CraneDsp` forecasts for each node's total, (...), <= the limits."""
        total = node_total(usage, limits)
        flat = total.reshape(-1, total.shape[-1]).astype(np.float32)
        grid = TimeGrid(0, DAY_SECONDS // slots_per_day, flat.shape[1])
        path = CraneDsp().quantiles(flat, grid, slots_per_day)[:, :, -1].max(axis=1)
        has_data = ~np.isnan(flat).all(axis=1)
        return _bound_peaks(np.where(has_data, path, np.nan).reshape(total.shape[:-1]), usage, limits)


@dataclass(frozen=True, slots=True)
class Larger:
    """The largest peak of several predictors, node by node; B9 is the larger of B7 and B8."""

    of: tuple[PeakPredictor, ...]
    name: str

    def peaks(self, usage: Floats, limits: Floats, slots_per_day: int) -> Floats:
        """Return the largest of the predictors' peaks for each node, (...), in the unit of usage."""
        largest: Floats = np.max([p.peaks(usage, limits, slots_per_day) for p in self.of], axis=0)
        return largest


PEAK_BASELINES: Final[tuple[PeakPredictor, ...]] = (
    MaxOfDays(),
    MaxOfDays(factor=1.1, name="B3 max of 7 d x 1.1"),
    MaxOfDays(days=14, name="B3 max of 14 d"),
    VpaLike(),
    VpaLike(percentile=0.95, name="B4 vpa p95 + 15 %"),
    KoordinatorMin(),
    BorgDefault(),
    ResourceCentralLike(),
    NSigma(),
    CranePeak(),
    Larger((ResourceCentralLike(), NSigma()), name="B9 max(n-sigma 5, rc-like p99)"),
    NoOvercommit(),
)
"""Every static predictor at its published parameters; B12 is `oracle`, which knows the future."""


def _cap_at_limits(usage: Floats, limits: Floats) -> Floats:
    return np.minimum(usage, limits[..., None])


def _samples(usage: Floats) -> npt.NDArray[np.intp]:
    count: npt.NDArray[np.intp] = (~np.isnan(usage)).sum(axis=-1)
    return count


def _last_hours(usage: Floats, hours: float, slots_per_day: int) -> Floats:
    return usage[..., -max(1, round(hours * slots_per_day / 24)) :]


def _highest(values: Floats) -> Floats:
    """Maximum of the last axis without NaN; NaN where there is nothing."""
    highest: Floats = np.where(np.isnan(values), -np.inf, values).max(axis=-1, initial=-np.inf)
    return np.where(np.isneginf(highest), np.nan, highest)


def _bound_peaks(peak: Floats, usage: Floats, limits: Floats) -> Floats:
    """Cap predicted peaks at the sum of limits; cold pods add their limit.

    peak (...): the prediction for warm pods, NaN where nothing is known, which yields the sum of limits. A pod is
    cold with fewer than MINIMUM_SAMPLES samples in `usage` (..., pods, slots).
    """
    warm = _samples(usage) >= MINIMUM_SAMPLES
    cold, everything = np.where(warm, 0.0, limits).sum(axis=-1), limits.sum(axis=-1, dtype=np.float64)
    result: Floats = np.where(np.isnan(peak), everything, np.minimum(peak + cold, everything))
    return result


def _sum_of(per_pod: Floats, usage: Floats, limits: Floats, samples: int) -> Floats:
    """Sum over pods of their peak, at most their limit; the limit itself where samples are too few."""
    usable = (_samples(usage) >= samples) & ~np.isnan(per_pod)
    total: Floats = np.where(usable, np.minimum(per_pod, limits), limits).sum(axis=-1, dtype=np.float64)
    return total


def _decaying_percentile(values: Floats, percentile: float, half_life: float) -> Floats:
    """Percentile of the last axis, a sample's weight halving every `half_life` slots."""
    recent = values[..., -int(np.ceil(_HALF_LIVES_KEPT * half_life)) :]
    weights = np.exp2(-np.arange(recent.shape[-1])[::-1] / half_life)
    flat = weighted_quantiles(recent.reshape(-1, recent.shape[-1]), weights, np.array([percentile]))
    return flat.reshape(values.shape[:-1])


def _mean(values: Floats) -> Floats:
    present = ~np.isnan(values)
    count = present.sum(axis=-1)
    total = np.where(present, values, 0.0).sum(axis=-1, dtype=np.float64)
    mean: Floats = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
    return mean
