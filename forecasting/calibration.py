"""Conformal calibration of upper quantiles: pooled by class, corrected for each series. Pure.

Rehearsed (back-tested) days show, for each upper level, how far actual values were from the forecast quantile, in units
of each series' own scale. The quantile of these distances, pooled over the series of a class, is the lift that would
have given the promised coverage (split-conformal prediction with a scale-free score; exchangeable days assumed). A
class is how strongly the series repeats by day; a class with few series is shrunk to all series, and few series in all
to a typical lift.

Days are not exchangeable for a series whose level moves: each rehearsed day changes the level that this series takes
from the pooled distances, up after too many misses, down after too few (adaptive conformal inference, Gibbs and Candes
2021: level += step x (misses - promised)).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.base.usage.forecast import LEVELS
from cotenant.base.usage.usage import FloatMatrix, Floats
from cotenant.forecasting.base import Array, in_order
from cotenant.forecasting.empirical import known_mean
from cotenant.forecasting.settings import ForecastingSettings

_LIFTED: Final = {LEVELS.index(0.95): 0.1, LEVELS.index(0.98): 0.3}
"""Upper levels, and the lift that pools of series typically need, in scales: few series lean on it."""
_SEASONAL_FROM: Final = (0.2, 0.5)
"""Autocorrelation at a day's lag from which a series counts as weakly, as strongly daily."""
_PRIOR_SERIES: Final = 6  # series that the typical lift counts for among all, and that all count for in each class
_FEWEST_MISSES, _MOST_MISSES = 0.1, 1.5
"""How far the correction of one series goes, in promised misses."""


@dataclass(frozen=True, slots=True, eq=False)
class Rehearsed:
    """Forecasts of R past days for n series as they were served, the newest day first, and the measured values.

    actual: (R, n, H) values of H half hours, NaN if not measured; paths: (R, n, H, L) quantiles at LEVELS; scales: (R,
    n) the unit in which a series' distances are counted, as an amount of its resource.
    """

    actual: FloatMatrix
    paths: Array
    scales: Floats

    def older_than(self, day: int) -> Rehearsed:
        """Return the rehearsed days that are older than index `day`; index 0 is the newest day."""
        return Rehearsed(self.actual[day + 1 :], self.paths[day + 1 :], self.scales[day + 1 :])


def daily_classes(history: FloatMatrix, day: int) -> npt.NDArray[np.intp]:
    """Return how strongly each series repeats by day, by its autocorrelation: 0 hardly, 1 weakly, 2 strongly."""
    if history.shape[1] <= day:
        return np.zeros(len(history), dtype=np.intp)
    present = ~np.isnan(history)
    away = np.where(present, history - known_mean(history, 0.0)[:, None], 0.0)
    both = (present[:, day:] & present[:, :-day]).sum(axis=1)
    shared = (away[:, day:] * away[:, :-day]).sum(axis=1) / np.maximum(both, 1)
    variance = (away**2).sum(axis=1) / np.maximum(present.sum(axis=1), 1)
    acf = np.divide(shared, variance, out=np.zeros(len(history)), where=variance > 0)
    classes: npt.NDArray[np.intp] = np.searchsorted(_SEASONAL_FROM, acf, side="right")
    return classes


def compute_lifts(
    rehearsed: Rehearsed, classes: npt.NDArray[np.intp], settings: ForecastingSettings
) -> npt.NDArray[np.float64]:
    """Return an array (n, L): how far each quantile must be raised to reach its coverage, in `scales`; 0 below p95.

    classes: the class of each series, (n,), by `daily_classes`. The lift is the conformal quantile of the distances by
    which the rehearsed days exceeded the forecast quantile. It is a weighted mean of this quantile over the
    class, over all series, and a constant: the fewer series there are, the less their quantile counts. A series that
    exceeded its forecast too often or too seldom gets a higher or lower quantile (`settings.coverage_step`).
    """
    lifts = np.zeros((len(classes), len(LEVELS)))
    for index, typical in _LIFTED.items():
        distances = (rehearsed.actual - rehearsed.paths[..., index]) / rehearsed.scales[..., None]
        everyone = _sorted_distances(distances)
        shard_trust = _trust(len(classes) if len(everyone) else 0)
        for name in np.unique(classes):
            rows = np.flatnonzero(classes == name)
            own, trust = _sorted_distances(distances[:, rows]), _trust(len(rows))

            def pool(level: Any, own: Floats = own, trust: float = trust, all_: Floats = everyone) -> Any:
                return trust * _conformal_quantile(own, level) + (1 - trust) * _conformal_quantile(all_, level)

            target_levels = _adapted_levels(
                distances[:, rows], float(pool(LEVELS[index])), LEVELS[index], settings.coverage_step
            )
            lifts[rows, index] = shard_trust * pool(target_levels) + (1 - shard_trust) * typical
    return lifts


def apply_lift(path: Array, by: Floats, scale: Floats, most: Floats) -> Array:
    """Return the path (n, H, L), each level raised by `by` (n, L) x `scale` (n,), but by no more than `most` (n,)."""
    move = np.minimum(scale[:, None] * by, most[:, None])
    moved = path + move[:, None, :].astype(np.float32)
    return in_order(moved)


def _trust(series: int) -> float:
    """Return the weight, in [0, 1), of a pool of this many series; the wider pool has the rest."""
    return series / (series + _PRIOR_SERIES)


def _adapted_levels(distances: Floats, nominal: float, level: float, step: float) -> Floats:
    """Return the level that each series takes from the pooled distances, (n,), adapted day by day, oldest first.

    `distances`: (R, n, H) in scales, the newest day first; `nominal`: the pooled distance at `level`, beyond which a
    value is a miss; `step`: how far one day moves the level per excess miss.
    """
    promised = 1 - level
    misses = np.full(distances.shape[1], promised)
    for day in distances[::-1]:
        present = ~np.isnan(day)
        count = present.sum(axis=1)
        missed = np.where(present, day > nominal, False).sum(axis=1) / np.maximum(count, 1)
        misses = np.where(count > 0, misses + step * (promised - missed), misses)
        misses = misses.clip(_FEWEST_MISSES * promised, _MOST_MISSES * promised)
    return 1 - misses


def _sorted_distances(distances: Floats) -> Floats:
    return np.sort(distances[~np.isnan(distances)])


def _conformal_quantile(ordered: Floats, level: float | Floats) -> Any:
    """Return the value at rank ceil((count + 1) x level) of sorted values, else the highest; 0 if there is none."""
    if not len(ordered):
        return np.zeros(np.shape(level))
    rank = np.ceil((len(ordered) + 1) * np.asarray(level)).astype(np.intp) - 1
    return ordered[np.clip(rank, 0, len(ordered) - 1)]
