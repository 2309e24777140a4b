"""Which model serves which series: rolling daily back-tests before the origin, judged against the seasonal naive. Pure.

Score of a member on a series = mean over its back-tests, newer ones weighing more, of log(pinball / pinball of the
baseline), as if the mean over all series had been seen on a few days more (few back-tests must not overrule what holds
for most series). The best member serves, or the quantile average of the best two when they are close.

Errors are measured forward: `rehearse` gives each back-test the forecast that the choice made from older back-tests
alone would have given, and `measure` judges those.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from cotenant.model.forecast import LEVELS, MeasuredError
from cotenant.model.usage import FloatMatrix, TimeGrid
from cotenant.settings.forecasting import ForecastingSettings
from forecasting.base import Array, Forecaster
from forecasting.losses import coverage, pinball

Floats = npt.NDArray[np.float64]

_RATIO_LIMIT: Final = np.log(100.0)
_LEVEL_95: Final = LEVELS.index(0.95)


@dataclass(frozen=True, slots=True, eq=False)
class BackTests:
    """Every member on every origin; origin 0 is the newest day. The first member is the baseline.

    actual: (K, n, H); forecasts: (M, K, n, H, L); log_ratio: (M, K, n), log of loss / baseline's, NaN where not judged.
    """

    actual: FloatMatrix
    forecasts: Array
    log_ratio: Floats


def back_test(
    members: Sequence[Forecaster], history: FloatMatrix, grid: TimeGrid, settings: ForecastingSettings
) -> BackTests:
    """Forecast each of the last days from what stood before it; at least one day stands before the oldest origin."""
    day = grid.slots_per_day
    origins = max(0, min(settings.origins, grid.size // day - 1))
    actual = np.empty((origins, len(history), day), dtype=np.float32)
    forecasts = np.empty((len(members), origins, len(history), day, len(LEVELS)), dtype=np.float32)
    judged = np.empty((origins, len(history)), dtype=bool)
    for origin in range(origins):
        cut = grid.size - (origin + 1) * day
        past, past_grid = history[:, :cut], TimeGrid(grid.start_seconds, grid.step_seconds, cut)
        actual[origin] = history[:, cut : cut + day]
        for index, member in enumerate(members):
            forecasts[index, origin] = member.quantiles(past, past_grid, day)
        # Half a day known before and a quarter of a day to compare with, or the comparison says nothing.
        known, seen = (~np.isnan(past)).sum(axis=1), (~np.isnan(actual[origin])).sum(axis=1)
        judged[origin] = (known >= day // 2) & (seen >= day // 4)
    return BackTests(actual, forecasts, _log_ratio(actual, forecasts, judged))


def choose(log_ratio: Floats, settings: ForecastingSettings) -> Floats:
    """Weight of each member for each series, (M, n), summing to 1 over members: one 1, or two halves."""
    scores = _scores(log_ratio, settings)
    weights = np.zeros(scores.shape)
    order = scores.argsort(axis=0, kind="stable")
    column = np.arange(scores.shape[1])
    best, second = order[0], order[min(1, len(scores) - 1)]
    close = scores[second, column] - scores[best, column] <= np.log1p(settings.average_within)
    np.add.at(weights, (best, column), np.where(close, 0.5, 1.0))
    np.add.at(weights, (second, column), np.where(close, 0.5, 0.0))
    return weights


def combine(forecasts: Array, weights: Floats) -> Array:
    """Quantile average of the members' forecasts (M, n, H, L) by weights (M, n)."""
    joined: Array = np.einsum("mnhl,mn->nhl", forecasts, weights.astype(np.float32))
    return joined


def rehearse(tests: BackTests, settings: ForecastingSettings) -> Array:
    """What would have been forecast on each origin but the oldest, chosen from older ones alone, (K - 1, n, H, L)."""
    origins = range(max(0, len(tests.actual) - 1))
    paths = [
        combine(tests.forecasts[:, origin], choose(tests.log_ratio[:, origin + 1 :], settings)) for origin in origins
    ]
    return np.stack(paths) if paths else np.empty((0, *tests.forecasts.shape[2:]), dtype=np.float32)


def measure(tests: BackTests, rehearsed: Array) -> tuple[MeasuredError, ...]:
    """Error of rehearsed forecasts on each series' own past, the pinball loss relative to the baseline's."""
    own, base, covered, count = np.zeros((4, tests.actual.shape[1]))
    for origin, path in enumerate(rehearsed):
        actual, judged = tests.actual[origin], ~np.isnan(tests.log_ratio[0, origin])
        own += np.where(judged, pinball(actual, path), 0.0)
        base += np.where(judged, pinball(actual, tests.forecasts[0, origin]), 0.0)
        covered += np.where(judged, coverage(actual, path[:, :, _LEVEL_95]), 0.0)
        count += judged
    floor = 1e-6 * _level(tests.actual)
    relative = np.exp(np.clip(np.log((own + floor) / (base + floor)), -_RATIO_LIMIT, _RATIO_LIMIT))
    known = count > 0
    relative, covered = np.where(known, relative, np.nan), np.where(known, covered / np.maximum(count, 1), np.nan)
    return tuple(MeasuredError(float(r), float(c), int(k)) for r, c, k in zip(relative, covered, count, strict=True))


def _log_ratio(actual: FloatMatrix, forecasts: Array, judged: npt.NDArray[np.bool_]) -> Floats:
    members, origins, size = forecasts.shape[:3]
    loss = np.empty((members, origins, size))
    for member in range(members):
        for origin in range(origins):
            loss[member, origin] = pinball(actual[origin], forecasts[member, origin])
    # Two losses that are both next to nothing are equal.
    floor = 1e-6 * _level(actual)
    ratio = np.log((loss + floor) / (loss[:1] + floor))
    return np.where(judged, np.clip(ratio, -_RATIO_LIMIT, _RATIO_LIMIT), np.nan)


def _level(actual: FloatMatrix) -> Floats:
    """Mean actual value of each series over all origins, (n,), never 0: what a loss is large or small against."""
    seen = ~np.isnan(actual)
    total = np.where(seen, actual, 0.0).sum(axis=(0, 2), dtype=np.float64)
    return np.asarray(total / np.maximum(seen.sum(axis=(0, 2)), 1) + np.finfo(np.float32).tiny)


def _scores(log_ratio: Floats, settings: ForecastingSettings) -> Floats:
    """Weighted mean over origins, shrunk to the mean over all series, (M, n)."""
    weights = settings.origin_decay ** np.arange(log_ratio.shape[1])[:, None] * ~np.isnan(log_ratio[0])
    mass = weights.sum(axis=0)
    total = (np.nan_to_num(log_ratio) * weights).sum(axis=1)
    tested = mass > 0
    everyone = (total[:, tested] / mass[tested]).mean(axis=1) if tested.any() else np.zeros(len(log_ratio))
    prior = max(settings.prior_days, 1e-9)
    scores: Floats = (total + prior * everyone[:, None]) / (mass + prior)
    return scores
