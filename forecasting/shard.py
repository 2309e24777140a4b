"""One shard of series, from half hours to quantile paths: members, mixture, booster, calibration. Pure.

back-tests (`selection`) -> members mixed, rehearsed (`served_mixture`) -> booster from the rehearsed days (`booster`)
-> its share beside the mixture -> upper levels lifted (`calibration`). The series of a shard share what is shrunk to,
what is pooled and what is trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.core.model.usage.forecast import MeasuredError, ModelCard
from cotenant.core.model.usage.usage import FloatMatrix, TimeGrid
from cotenant.core.settings.base import digest
from cotenant.core.settings.sections.forecasts import ForecastingSettings
from forecasting.base import Array, Forecaster
from forecasting.booster import SEED, TRAINED_LEVELS, Booster, BoosterInput, feature_names, scale_of, train
from forecasting.calibration import Rehearsed, daily_classes, lift, lifted
from forecasting.selection import BackTests, back_test, combine, forecast_ahead, level_of, log_loss_ratio, standing
from forecasting.served_mixture import booster_share, measure, mixed, rehearse

Floats = npt.NDArray[np.floating[Any]]

_DAILY_CLASSES: Final = 3
_NARROW: Final = 0.3
"""Scale of a band, in usual changes from day to day, below which a series is parked: its misses are of another size."""
_MOST_CHANGES: Final = 2.0
"""Usual changes from day to day that an upper quantile is lifted by at most."""
_LEAST_CHANGE: Final = 1e-9
"""Change from day to day, relative to the level, below which a series counts as constant."""


@dataclass(frozen=True, slots=True, eq=False)
class ShardForecast:
    """Paths (n, H, L), the models that serve each series, the error measured before, and the booster's card.

    losses: (n, members), what each member lost in the back-tests relative to the first, as the weights saw it.
    """

    path: Array
    model: tuple[str, ...]
    error: tuple[MeasuredError, ...]
    losses: Array
    card: ModelCard | None


@dataclass(frozen=True, slots=True, eq=False)
class _Shard:
    history: FloatMatrix
    grid: TimeGrid
    tests: BackTests
    settings: ForecastingSettings
    names: tuple[str, ...]

    def base(self, origin: int) -> Floats:
        """How much a day differed from the one before, as known at an origin (0 = now), (n,), never 0."""
        day = self.grid.slots_per_day
        past = self.history[:, : self.grid.size - origin * day]
        change = np.abs(past[:, day:] - past[:, : max(0, past.shape[1] - day)])
        present = ~np.isnan(change)
        mean = np.where(present, change, 0.0).sum(axis=1, dtype=np.float64) / np.maximum(present.sum(axis=1), 1)
        least = _LEAST_CHANGE * level_of(self.history) + np.finfo(np.float64).tiny
        return np.asarray(np.maximum(mean, least))

    def moment(self, origin: int, forecasts: Array, path: Array) -> BoosterInput:
        """What is known at an origin: 0 = now, k = when back-test k - 1 was ahead."""
        cut = self.grid.size - origin * self.grid.slots_per_day
        return BoosterInput(self.history[:, :cut], forecasts, path, self.base(origin))


def forecast_shard(
    history: FloatMatrix, grid: TimeGrid, settings: ForecastingSettings, members: Sequence[Forecaster]
) -> ShardForecast:
    """Forecast the day after the grid, from half hours (n, grid.size) that are finite and >= 0 or NaN."""
    tests = back_test(members, history, grid, settings)
    shard = _Shard(history, grid, tests, settings, tuple(m.name for m in members))
    ahead = forecast_ahead(members, history, grid, grid.slots_per_day)
    path, weights = mixed(ahead, tests, 0, settings)
    served = rehearse(tests, settings)
    boosted = _boosted(shard, served, ahead, path)
    share = boosted.share if boosted else np.zeros(len(history))
    if boosted:
        path = combine(np.stack([path, boosted.path]), np.stack([1 - share, share]))
    lifter = _Lifter(shard, daily_classes(history, grid.slots_per_day))
    error = measure(tests, lifter.each(served))
    losses = np.exp(standing(tests, 0, settings)).T.astype(np.float32)
    model_names = _model(shard.names, weights, share)
    return ShardForecast(lifter.now(path, served), model_names, error, losses, _card(shard, boosted))


@dataclass(frozen=True, slots=True, eq=False)
class _Boosted:
    """The booster's path, its log ratio to the mixture on the day held out, NaN where not judged, and its share."""

    booster: Booster
    path: Array
    log_ratio: npt.NDArray[np.float64]
    share: npt.NDArray[np.float64]


def _boosted(shard: _Shard, served: Array, ahead: Array, path: Array) -> _Boosted | None:
    """Booster trained on the rehearsed days but the newest, its path and how it did on that day and the last hours."""
    tests, settings = shard.tests, shard.settings
    older = range(1, len(served))
    moments = [shard.moment(day + 1, tests.forecasts[:, day], served[day]) for day in older]
    booster = train(moments, tests.actual[1 : len(served)], settings)
    if booster is None:
        return None
    now = shard.moment(0, ahead, path)
    scale = scale_of(now.path, now.base)
    hours = tests.near_actual.shape[1]
    near_path = mixed(tests.near_forecasts, tests, 0, settings)[0]
    before = BoosterInput(shard.history[:, : shard.grid.size - hours], tests.near_forecasts, near_path, now.base)
    level = level_of(tests.actual[: len(served)])
    near = log_loss_ratio(tests.near_actual, np.stack([near_path, booster.quantiles(before, scale)]), level)[1]
    newest = shard.moment(1, tests.forecasts[:, 0], served[0]).thinned(_HELD_STRIDE)
    both = np.stack([newest.path, booster.quantiles(newest, scale_of(served[0], newest.base))])
    newest_ratio = log_loss_ratio(tests.actual[0, :, ::_HELD_STRIDE], both, level)[1]
    newest_ratio[np.isnan(tests.log_ratio[0, 0])] = np.nan
    return _Boosted(
        booster, booster.quantiles(now, scale), newest_ratio, booster_share(newest_ratio, np.nan_to_num(near), settings)
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Lifter:
    """Calibration of a shard: the classes of its series are how daily they are, those with a narrow band apart."""

    shard: _Shard
    classes: npt.NDArray[np.intp]

    def _rehearsed(self, served: Array) -> Rehearsed:
        scales = [scale_of(path, self.shard.base(day + 1)) for day, path in enumerate(served)]
        return Rehearsed(
            self.shard.tests.actual[: len(served)], served, np.array(scales).reshape(len(served), len(self.classes))
        )

    def _lifted(self, path: Array, origin: int, rehearsed: Rehearsed) -> Array:
        base = self.shard.base(origin)
        scale = scale_of(path, base)
        classes = self.classes + np.where(scale < _NARROW * base, _DAILY_CLASSES, 0)
        return lifted(path, lift(rehearsed, classes, self.shard.settings), scale, _MOST_CHANGES * base)

    def now(self, path: Array, served: Array) -> Array:
        """The forecast lifted by what all rehearsed days showed."""
        return self._lifted(path, 0, self._rehearsed(served))

    def each(self, served: Array) -> Array:
        """Each rehearsed day lifted by what was known before it, (R, n, H, L)."""
        every = self._rehearsed(served)
        days = [self._lifted(path, day + 1, every.older_than(day)) for day, path in enumerate(served)]
        return np.array(days, dtype=np.float32).reshape(served.shape)


def _model(names: Sequence[str], weights: Floats, share: Floats) -> tuple[str, ...]:
    """What serves each series: its two heaviest members, and "booster" where that counts for a tenth or more."""
    heaviest = np.argsort(-weights, axis=0, kind="stable")[:2].T.tolist()
    boosted = [("booster",) if part >= _NAMED_FROM else () for part in share.tolist()]
    return tuple(" + ".join((*(names[i] for i in two), *more)) for two, more in zip(heaviest, boosted, strict=True))


_NAMED_FROM: Final = 0.1
_HELD_STRIDE: Final = 4
"""Slots of the booster's held-out day that are compared: every fourth tells as much at a quarter of the cost."""


def _card(shard: _Shard, boosted: _Boosted | None) -> ModelCard | None:
    """The booster's model card: training data, features, levels, loss relative to the mixture; None without one."""
    if boosted is None:
        return None
    grid, day = shard.grid, shard.grid.slots_per_day * shard.grid.step_seconds
    log_ratios = boosted.log_ratio[~np.isnan(boosted.log_ratio)]
    return ModelCard(
        name="quantile booster",
        trained_seconds=grid.end_seconds,
        first_seconds=grid.end_seconds - shard.tests.rehearsals * day,
        last_seconds=grid.end_seconds - day,
        rows=boosted.booster.rows,
        series=boosted.booster.series,
        features=feature_names(shard.names),
        levels=TRAINED_LEVELS,
        seed=SEED,
        settings_digest=digest(shard.settings),
        relative_loss=float(np.exp(log_ratios.mean())) if log_ratios.size else float("nan"),
        weight=float(boosted.share.mean()),
    )
