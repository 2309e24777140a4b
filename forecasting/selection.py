"""Weights of models for each series, by rolling daily back-tests against the seasonal naive. Pure.

Score of a member on a series = mean over its back-tests, newer ones weighing more, of log(pinball / pinball of the
baseline), shrunk as if the mean over all series had been seen on a few more days (few back-tests must not overrule what
holds for most series), plus a share of the near test: the same ratio on the last two hours, forecast two hours ago.
Only the near test shows a level that changed this morning; small differences in it are noise and are damped.

The scores give the weights, larger ones for better members; `served_mixture` mixes the forecasts by them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from cotenant.base.threads import side_by_side
from cotenant.base.usage.forecast import LEVELS
from cotenant.base.usage.usage import HOUR_SECONDS, FloatMatrix, TimeGrid
from cotenant.forecasting.base import Array, Forecaster
from cotenant.forecasting.losses import pinball
from cotenant.forecasting.settings import ForecastingSettings

ORIGIN_DECAY: Final = 0.8
"""Weight of a back-test relative to the one a day later. Weight of older back-tests: inside the models' weights,
its effect cannot be judged from outside."""
NEAR_WEIGHT: Final = 0.3
"""Share of the last two hours' error in the score of a model, beside its daily back-tests. Weight within a model's
score: its effect cannot be judged from outside."""

Floats = npt.NDArray[np.float64]

REHEARSALS: Final = 5
"""Newest back-tests whose mixture is rehearsed from older ones."""
RATIO_LIMIT: Final = np.log(100.0)
SERIES_AT_ONCE: Final = 256
"""Series that a member forecasts together: their working memory stays small and near the processor's cache."""


@dataclass(frozen=True, slots=True, eq=False)
class NearTest:
    """Forecasts (M, n, slots, L) of the last hours; `ratio` (M, n): log(loss / baseline's loss), 0 = unknown."""

    ratio: Floats
    forecasts: Array
    actual: FloatMatrix


@dataclass(frozen=True, slots=True, eq=False)
class BackTests:
    """Back-tests of M forecast models (members) on K past days (origins), the newest first; member 0 is the baseline.

    actual: (K, n, H); forecasts: (M, R, n, H, L), of the newest R origins, at most REHEARSALS; log_ratio: (M, K, n),
    log of loss / baseline's loss, NaN = not measured; baseline_loss: (K, n); near: the test on the last hours.
    """

    actual: FloatMatrix
    forecasts: Array
    log_ratio: Floats
    baseline_loss: Floats
    near: NearTest

    @property
    def rehearsals(self) -> int:
        """The number of back-tests for which weights can be computed from an older back-test."""
        return max(0, min(REHEARSALS, len(self.actual) - 1))


def back_test(
    members: Sequence[Forecaster], history: FloatMatrix, grid: TimeGrid, settings: ForecastingSettings
) -> BackTests:
    """Forecast each of the last days from the data before it; the oldest of them has at least one day before it."""
    day = grid.slots_per_day
    origins = max(0, min(settings.origins, grid.size // day - 1))
    actual = np.empty((origins, len(history), day), dtype=np.float32)
    # Of older origins the losses are enough, and forecasts are most of the memory.
    rehearsed = min(REHEARSALS, origins)
    forecasts = np.empty((len(members), rehearsed, len(history), day, len(LEVELS)), dtype=np.float32)
    loss = np.empty((len(members), origins, len(history)))
    scored = np.empty((origins, len(history)), dtype=bool)
    for origin in range(origins):
        cut = grid.size - (origin + 1) * day
        past = history[:, :cut]
        actual[origin] = history[:, cut : cut + day]
        ahead = forecast_ahead(members, past, grid, day)
        loss[:, origin] = [pinball(actual[origin], path) for path in ahead]
        if origin < rehearsed:
            forecasts[:, origin] = ahead
        # Half a day known before and a quarter of a day to compare with, or the comparison says nothing.
        past_count, day_count = (~np.isnan(past)).sum(axis=1), (~np.isnan(actual[origin])).sum(axis=1)
        scored[origin] = (past_count >= day // 2) & (day_count >= day // 4)
    # Log ratios (M, K, n) of losses (M, K, n) and the baseline's losses (K, n), NaN where not judged.
    floor = 1e-6 * level_of(actual)
    ratio = np.clip(np.log((loss + floor) / (loss[:1] + floor)), -RATIO_LIMIT, RATIO_LIMIT)
    log_ratio, baseline_loss = np.where(scored, ratio, np.nan), np.where(scored, loss[0], np.nan)
    return BackTests(actual, forecasts, log_ratio, baseline_loss, near_test(members, history, grid))


def current_scores(daily: Floats, near: NearTest) -> Floats:
    """Return members' present scores per series, (M, n), lower is better, by `daily` scores and the `near` test."""
    return daily + NEAR_WEIGHT * damp_log_ratio(near.ratio)


def daily_scores(tests: BackTests, origin: int, settings: ForecastingSettings) -> Floats:
    """Return scores (M, n) from daily back-tests; `origin` 0 = as known now, k = as known before back-test k - 1."""
    return scores(tests.log_ratio[:, origin : origin + settings.origins], settings)


def scores(log_ratio: Floats, settings: ForecastingSettings) -> Floats:
    """Return scores (M, n): weighted means of `log_ratio` (M, K tests, n), NaN = none, drawn to the mean of all."""
    weights = ORIGIN_DECAY ** np.arange(log_ratio.shape[1])[:, None] * ~np.isnan(log_ratio)
    mass = weights.sum(axis=1)
    total = (np.nan_to_num(log_ratio) * weights).sum(axis=1)
    own = np.divide(total, mass, out=np.zeros_like(total), where=mass > 0)
    everyone = own.sum(axis=1) / np.maximum((mass > 0).sum(axis=1), 1)
    prior = max(settings.prior_days, 1e-9)
    shrunk: Floats = (total + prior * everyone[:, None]) / (mass + prior)
    return shrunk


def damp_log_ratio(log_ratio: Floats) -> Floats:
    """Return the log ratio r as r^3 / (r^2 + 1): small ones move towards 0, large ones hardly change."""
    return log_ratio**3 / (log_ratio**2 + 1)


def blend(score: Floats, sharpness: float) -> Floats:
    """Return weights (M, n) proportional to exp(-sharpness x score), which sum to 1 over the members."""
    raw = np.exp(-sharpness * (score - score.min(axis=0)))
    weights: Floats = raw / raw.sum(axis=0)
    return weights


def combine(forecasts: Array, weights: Floats) -> Array:
    """Return the mean (n, H, L) of the members' quantiles (M, n, H, L), by weights (M, n) that sum to 1 over members.

    Series with weight 0 are skipped, so that a member's NaN does not spread if it does not count.
    """
    joined = np.zeros(forecasts.shape[1:], dtype=np.float32)
    for forecast, weight in zip(forecasts, weights.astype(np.float32), strict=True):
        used = np.flatnonzero(weight)
        joined[used] += forecast[used] * weight[used, None, None]
    return joined


def log_loss_ratio(actual: FloatMatrix, forecasts: Array, level: Floats) -> Floats:
    """Return an array (M, n): log(pinball loss / the first forecast's loss) of each forecast; NaN if nothing is known.

    Two losses that are both negligible relative to the series' level (n,) count as equal.
    """
    loss = np.array([pinball(actual, forecast) for forecast in forecasts]) + 1e-6 * level
    return np.clip(np.log(loss / loss[:1]), -RATIO_LIMIT, RATIO_LIMIT)


def level_of(values: FloatMatrix) -> Floats:
    """Return the mean known value of each of n series in (..., n, H), never 0; losses are compared with it."""
    present = ~np.isnan(values)
    axes = (*range(values.ndim - 2), values.ndim - 1)
    total = np.where(present, values, 0.0).sum(axis=axes, dtype=np.float64)
    return np.asarray(total / np.maximum(present.sum(axis=axes), 1) + np.finfo(np.float32).tiny)


def forecast_ahead(
    members: Sequence[Forecaster], past: FloatMatrix, grid: TimeGrid, horizon: int, series_at_once: int = SERIES_AT_ONCE
) -> Array:
    """Return every member's forecast (M, n, horizon, L) of the slots after `past`, which starts at the grid's start.

    A few series are forecast at a time, to limit the members' memory; a forecast depends only on its own series.
    """
    before = TimeGrid(grid.start_seconds, grid.step_seconds, past.shape[1])
    answer = np.empty((len(members), len(past), horizon, len(LEVELS)), dtype=np.float32)

    def forecast(first: int) -> None:
        rows = slice(first, first + series_at_once)
        for index, member in enumerate(members):
            answer[index, rows] = member.quantiles(past[rows], before, horizon)

    side_by_side(forecast, range(0, len(past), series_at_once))
    return answer


def near_test(members: Sequence[Forecaster], history: FloatMatrix, grid: TimeGrid) -> NearTest:
    """Forecast the last hours of a history (n, slots), which starts at the grid's start, from the data before them."""
    hours = min(_NEAR_HOURS * HOUR_SECONDS // grid.step_seconds, history.shape[1])
    cut = history.shape[1] - hours
    actual = history[:, cut:]
    forecasts = forecast_ahead(members, history[:, :cut], grid, hours)
    return NearTest(np.nan_to_num(log_loss_ratio(actual, forecasts, level_of(history))), forecasts, actual)


_NEAR_HOURS: Final = 2
