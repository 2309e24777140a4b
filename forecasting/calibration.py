"""Conformal calibration of upper quantiles: pooled by class, corrected for each series. Pure.

Rehearsed days give, for each upper level, how far actual values lay from the forecast quantile, in units of a scale
that every series has of itself. The pooled quantile of these distances over the series of a class is the lift that
would have given the promised coverage (split-conformal prediction with a scale-free score; exchangeable days assumed).
A class is how strongly the series repeats by day; few series in it lean on all, and few in all on what is typical.

Days are not exchangeable for a series whose level moves: each rehearsed day moves the level that is asked of the pooled
distances for this series, up after too many misses, down after too few (adaptive conformal inference, Gibbs and Candes
2021: level += step x (misses - promised)).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.base.usage.forecast import LEVELS
from cotenant.base.usage.usage import FloatMatrix
from cotenant.forecasting.base import Array, in_order
from cotenant.forecasting.settings import ForecastingSettings

Floats = npt.NDArray[np.floating[Any]]

_LIFTED: Final = {LEVELS.index(0.95): 0.1, LEVELS.index(0.98): 0.3}
"""Upper levels, and the lift that pools of series typically need, in scales: few series lean on it."""
_SEASONAL_FROM: Final = (0.2, 0.5)
"""Autocorrelation at a day's lag from which a series counts as weakly, as strongly daily."""
_PRIOR_SERIES: Final = 6
"""Series that the typical lift counts for among all, and that all count for in each class."""
_FEWEST_MISSES, _MOST_MISSES = 0.1, 1.5
"""How far the correction of one series goes, in promised misses."""


@dataclass(frozen=True, slots=True, eq=False)
class Rehearsed:
    """Served paths (R, n, H, L) on the newest days, newest first, what came (R, n, H), and the scales (R, n)."""

    actual: FloatMatrix
    paths: Array
    scales: Floats

    def older_than(self, day: int) -> Rehearsed:
        """Return the rehearsed days that are older than index `day`; index 0 is the newest day."""
        return Rehearsed(self.actual[day + 1 :], self.paths[day + 1 :], self.scales[day + 1 :])


def daily_classes(history: FloatMatrix, day: int) -> npt.NDArray[np.intp]:
    """Class of each series by its autocorrelation at a day's lag, (n,): 0 hardly, 1 weakly, 2 strongly daily."""
    if history.shape[1] <= day:
        return np.zeros(len(history), dtype=np.intp)
    present = ~np.isnan(history)
    mean = np.where(present, history, 0.0).sum(axis=1, dtype=np.float64) / np.maximum(present.sum(axis=1), 1)
    away = np.where(present, history - mean[:, None], 0.0)
    both = (present[:, day:] & present[:, :-day]).sum(axis=1)
    shared = (away[:, day:] * away[:, :-day]).sum(axis=1) / np.maximum(both, 1)
    variance = (away**2).sum(axis=1) / np.maximum(present.sum(axis=1), 1)
    acf = np.divide(shared, variance, out=np.zeros(len(history)), where=variance > 0)
    classes: npt.NDArray[np.intp] = np.searchsorted(_SEASONAL_FROM, acf, side="right")
    return classes


def lift(rehearsed: Rehearsed, classes: npt.NDArray[np.intp], settings: ForecastingSettings) -> npt.NDArray[np.float64]:
    """Lift of each series and level, (n, L), in its scale; 0 below the upper levels."""
    lifts = np.zeros((len(classes), len(LEVELS)))
    for index, typical in _LIFTED.items():
        away = (rehearsed.actual - rehearsed.paths[..., index]) / rehearsed.scales[..., None]
        everyone = _sorted_distances(away)
        shard_trust = _trust(len(classes) if len(everyone) else 0)
        for name in np.unique(classes):
            rows = np.flatnonzero(classes == name)
            own, trust = _sorted_distances(away[:, rows]), _trust(len(rows))

            def pool(level: Any, own: Floats = own, trust: float = trust, all_: Floats = everyone) -> Any:
                return trust * _at(own, level) + (1 - trust) * _at(all_, level)

            target_levels = _adapted_levels(
                away[:, rows], float(pool(LEVELS[index])), LEVELS[index], settings.coverage_step
            )
            lifts[rows, index] = shard_trust * pool(target_levels) + (1 - shard_trust) * typical
    return lifts


def apply_lift(path: Array, by: Floats, scale: Floats, most: Floats) -> Array:
    """Path (n, H, L) with each level moved by its lift (n, L) x scale (n,), at most by `most` (n,).

    Order of the levels and >= 0 are kept.
    """
    move = np.minimum(scale[:, None] * by, most[:, None])
    moved = path + move[:, None, :].astype(np.float32)
    return in_order(moved)


def _trust(series: int) -> float:
    return series / (series + _PRIOR_SERIES)


def _adapted_levels(away: Floats, nominal: float, level: float, step: float) -> Floats:
    """Level to ask of the pooled distances for each series, (n,), after its days one by one, the oldest first."""
    promised = 1 - level
    misses = np.full(away.shape[1], promised)
    for day in away[::-1]:
        present = ~np.isnan(day)
        count = present.sum(axis=1)
        missed = np.where(present, day > nominal, False).sum(axis=1) / np.maximum(count, 1)
        misses = np.where(count > 0, misses + step * (promised - missed), misses)
        misses = misses.clip(_FEWEST_MISSES * promised, _MOST_MISSES * promised)
    return 1 - misses


def _sorted_distances(away: Floats) -> Floats:
    """Known distances in order."""
    return np.sort(away[~np.isnan(away)])


def _at(ordered: Floats, level: float | Floats) -> Any:
    """Conformal quantile: the value at rank ceil((count + 1) x level), the highest beyond; 0 of nothing."""
    if not len(ordered):
        return np.zeros(np.shape(level))
    rank = np.ceil((len(ordered) + 1) * np.asarray(level)).astype(np.intp) - 1
    return ordered[np.clip(rank, 0, len(ordered) - 1)]
