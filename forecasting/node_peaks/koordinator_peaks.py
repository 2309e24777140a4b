"""Koordinator's predictors of peaks, which are used if a node's own record is too short. Pure."""

from __future__ import annotations

from typing import Final

import numpy as np

from cotenant.base.resource import Resource
from cotenant.base.usage.usage import Floats
from cotenant.forecasting.empirical import weighted_quantiles

MARGIN: Final = 1.1
"""Of Koordinator's predictors over the percentile."""
_PERCENTILE: Final = {Resource.CPU: 0.95, Resource.MEMORY: 0.98}
_HALF_LIFE_DAYS: Final = {Resource.CPU: 0.5, Resource.MEMORY: 1.0}
_HALF_LIVES_KEPT: Final = 10


def koordinator_peaks(usage: Floats, slots_per_day: int, resource: Resource) -> Floats:
    """Return each node's peak: 1.1 x the decayed percentile of its totals in (n, slots); NaN without samples.

    Source: koordlet's peak predictor: p95 and a half-life of 12 h for CPU, p98 and 24 h for memory.
    """
    peaks: Floats = MARGIN * _decaying_peak(usage, slots_per_day, resource)
    return peaks


def pod_peaks(usage: Floats, requests: Floats, slots_per_day: int, resource: Resource) -> Floats:
    """Return each pod's peak: 1.1 x the decayed percentile of its usage, or its request if it is younger than 24 h."""
    cold = np.isfinite(usage).sum(axis=1) < slots_per_day
    peaks = MARGIN * _decaying_peak(usage, slots_per_day, resource)
    result: Floats = np.where(cold | np.isnan(peaks), requests, peaks)
    return result


def _decaying_peak(usage: Floats, slots_per_day: int, resource: Resource) -> Floats:
    half_life = _HALF_LIFE_DAYS[resource] * slots_per_day
    recent = usage[:, -int(_HALF_LIVES_KEPT * half_life) :]
    weights = np.exp2(-np.arange(recent.shape[1])[::-1] / half_life)
    return weighted_quantiles(recent, weights, np.array([_PERCENTILE[resource]]))[:, 0]
