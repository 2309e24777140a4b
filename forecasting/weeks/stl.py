"""Seasonal-trend decomposition by loess (STL), and by several periods one after another (MSTL). Pure.

Cleveland, Cleveland, McRae and Terpenning 1990, "STL: A Seasonal-Trend Decomposition Procedure Based on Loess", without
robustness weights: five rounds of the inner loop, local lines. Bandara, Hyndman and Bergmeir 2021 (MSTL). On a regular
grid each smoother is one fixed set of weights, so a decomposition is a few weighted sums. statsmodels gives the same
numbers; importing it costs more time and memory than the decompositions of a scan.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_ROUNDS: Final = 5  # of the inner loop: as many as statsmodels takes by default, so that numbers can be compared
_WINDOW: Final = 7  # loess window of a single seasonal component, in periods
_WINDOW_STEP: Final = 4
"""Of several components the k-th, from 1 on, has a window of _WINDOW + _WINDOW_STEP x k periods (Bandara et al.)."""


class Parts(NamedTuple):
    """A series (n,) as trend (n,) + seasonal components (periods, n) + the rest."""

    trend: Floats
    seasonal: Floats


def stl(series: Floats, period: int, window: int = _WINDOW) -> Parts:
    """Split a series (n >= 2 x period,) without gaps into trend and season; `window` (odd) smooths over periods."""
    trend = np.zeros_like(series)
    seasonal = np.zeros_like(series)
    across_seasons = _odd(1.5 * period / (1 - 1.5 / window))
    for _ in range(_ROUNDS):
        # Each slot of the period smoothed from period to period, with one more before and after, (n + 2 x period,).
        values = series - trend
        cycles = np.empty(values.size + 2 * period)
        for phase in range(period):
            cycles[phase::period] = _loess(values[phase::period], window, beyond=1)
        passing = _moving_mean(_moving_mean(_moving_mean(cycles, period), period), 3)
        seasonal = cycles[period:-period] - _loess(passing, _odd(period))
        trend = _loess(series - seasonal, across_seasons)
    return Parts(trend, seasonal[None])


def mstl(series: Floats, periods: Sequence[int]) -> Parts:
    """Split a series by several periods, the shortest first; each season is estimated without the earlier ones."""
    rest, seasons, trend = series, [], np.zeros_like(series)
    for number, period in enumerate(periods, 1):
        trend, seasonal = stl(rest, period, _WINDOW + _WINDOW_STEP * number)
        seasons.append(seasonal[0])
        rest = rest - seasonal[0]
    return Parts(trend, np.stack(seasons))


def _odd(length: float) -> int:
    rounded = math.ceil(length)
    return rounded + 1 - rounded % 2


def _moving_mean(values: Floats, width: int) -> Floats:
    total = np.concatenate([np.zeros(1), np.cumsum(values)])
    means: Floats = (total[width:] - total[:-width]) / width
    return means


def _loess(values: Floats, window: int, beyond: int = 0) -> Floats:
    """Return local lines at each slot and at `beyond` slots before and after the series, (n + 2 x beyond,)."""
    index, weights = _local_lines(values.size, window, beyond)
    smooth: Floats = np.einsum("pw,pw->p", values[index], weights)
    return smooth


@lru_cache(maxsize=32)
def _local_lines(size: int, window: int, beyond: int) -> tuple[npt.NDArray[np.intp], Floats]:
    """Return the slots that count at each place, and their weights, both (places, width).

    They are tricube weights of the distance relative to the farthest slot of the window, then those of the weighted
    line.
    """
    width = min(window, size)
    places = np.arange(-beyond, size + beyond)
    index = np.clip(places - (window + 1) // 2 + 1, 0, size - width)[:, None] + np.arange(width)
    away = np.abs(index - places[:, None])
    reach = away.max(axis=1, keepdims=True) + max(0, window - size) // 2
    weights = np.where(away <= 0.999 * reach, (1 - np.minimum(away / np.maximum(reach, 1), 1) ** 3) ** 3, 0.0)
    weights = np.where(away <= 0.001 * reach, 1.0, weights)
    weights /= weights.sum(axis=1, keepdims=True)
    centre = (weights * index).sum(axis=1, keepdims=True)
    variance = (weights * (index - centre) ** 2).sum(axis=1, keepdims=True)
    slanted = np.sqrt(variance) > 0.001 * (size - 1)
    slope = np.divide(places[:, None] - centre, variance, out=np.zeros_like(variance), where=slanted)
    return index, weights * (slope * (index - centre) + 1)
