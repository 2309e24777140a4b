"""One shard of series, from half hours to quantile paths: members, choice, booster, mix, calibration. Pure.

back-tests (`selection`) -> choice and blend, rehearsed (`mixing`) -> booster from the rehearsed days (`booster`) ->
what each candidate counts for -> upper levels lifted (`calibration`). The series of a shard share what is shrunk to,
what is pooled and what is trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.model.forecast import MeasuredError, ModelCard
from cotenant.model.usage import FloatMatrix, TimeGrid
from cotenant.settings.base import digest
from cotenant.settings.forecasting import ForecastingSettings
from forecasting.base import Array, Forecaster
from forecasting.booster import SEED, TRAINED_LEVELS, Booster, Moment, feature_names, scale_of, train
from forecasting.calibration import Rehearsed, daily_classes, lift, lifted
from forecasting.mixing import Rehearsal, candidates, forward, measure, rehearse, weigh
from forecasting.selection import BackTests, back_test, combine, level_of, log_loss_ratio, standing

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

    losses: (n, members), what each member lost in the back-tests relative to the first, as the choice saw it.
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
        known = ~np.isnan(change)
        mean = np.where(known, change, 0.0).sum(axis=1, dtype=np.float64) / np.maximum(known.sum(axis=1), 1)
        least = _LEAST_CHANGE * level_of(self.history) + np.finfo(np.float64).tiny
        return np.asarray(np.maximum(mean, least))

    def moment(self, origin: int, forecasts: Array, path: Array) -> Moment:
        """What is known at an origin: 0 = now, k = when back-test k - 1 was ahead."""
        cut = self.grid.size - origin * self.grid.slots_per_day
        return Moment(self.history[:, :cut], forecasts, path, self.base(origin))


def forecast_shard(
    history: FloatMatrix, grid: TimeGrid, settings: ForecastingSettings, members: Sequence[Forecaster]
) -> ShardForecast:
    """Forecast the day after the grid, from half hours (n, grid.size) that are finite and >= 0 or NaN."""
    tests = back_test(members, history, grid, settings)
    shard = _Shard(history, grid, tests, settings, tuple(m.name for m in members))
    ahead = np.stack([member.quantiles(history, grid, grid.slots_per_day) for member in members])
    paths, chosen = candidates(ahead, tests, 0, settings)
    rehearsal = rehearse(tests, settings)
    served = forward(rehearsal, settings)
    boosted = _boosted(shard, rehearsal, ahead, paths)
    ratio, near = (boosted.log_ratio, boosted.near) if boosted else (rehearsal.log_ratio, rehearsal.near)
    weights = weigh(ratio, near, settings)
    if boosted:
        paths = np.append(paths, boosted.path[None], axis=0)
    lifter = _Lifter(shard, daily_classes(history, grid.slots_per_day))
    error = measure(tests, lifter.each(served))
    path = lifter.now(combine(paths, weights), served)
    losses = np.exp(standing(tests, 0, settings)).T.astype(np.float32)
    return ShardForecast(path, _model(shard.names, chosen, weights), error, losses, _card(shard, boosted, weights))


@dataclass(frozen=True, slots=True, eq=False)
class _Boosted:
    booster: Booster
    path: Array
    log_ratio: npt.NDArray[np.float64]
    near: npt.NDArray[np.float64]


def _boosted(shard: _Shard, rehearsal: Rehearsal, ahead: Array, paths: Array) -> _Boosted | None:
    """Booster trained on the rehearsed days but the newest, its path and how it did on that day and the last hours."""
    tests, chosen = shard.tests, rehearsal.paths[0]
    older = range(1, len(rehearsal.actual))
    moments = [shard.moment(day + 1, tests.forecasts[:, day], chosen[day]) for day in older]
    booster = train(moments, rehearsal.actual[1:], shard.settings)
    if booster is None:
        return None
    newest = shard.moment(1, tests.forecasts[:, 0], chosen[0])
    now = shard.moment(0, ahead, paths[0])
    scale = scale_of(now.path, now.base)
    hours = tests.near_actual.shape[1]
    near_path = candidates(tests.near_forecasts, tests, 0, shard.settings)[0][0]
    before = Moment(shard.history[:, : shard.grid.size - hours], tests.near_forecasts, near_path, now.base)
    near = np.stack([near_path, booster.quantiles(before, scale)])
    ratio = np.nan_to_num(log_loss_ratio(tests.near_actual, near, rehearsal.level)[1])
    held = booster.quantiles(newest.thinned(_HELD_STRIDE), scale_of(newest.path, newest.base))
    return _Boosted(booster, booster.quantiles(now, scale), *rehearsal.joined(held, _HELD_STRIDE, ratio))


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


def _model(names: Sequence[str], chosen: Floats, weights: Floats) -> tuple[str, ...]:
    """Which models serve each series: the choice's, "blend" and "booster" where they count for a tenth or more."""
    found = []
    for members, shares in zip(chosen.T.tolist(), weights.T.tolist(), strict=True):
        best = " + ".join(name for name, share in zip(names, members, strict=True) if share > 0)
        parts = [name for name, share in zip((best, "blend", "booster"), shares, strict=False) if share >= _NAMED_FROM]
        found.append(" + ".join(parts))
    return tuple(found)


_NAMED_FROM: Final = 0.1
_HELD_STRIDE: Final = 4
"""Slots of the booster's held-out day that are compared: every fourth tells as much at a quarter of the cost."""


def _card(shard: _Shard, boosted: _Boosted | None, weights: Floats) -> ModelCard | None:
    if boosted is None:
        return None
    grid, day = shard.grid, shard.grid.slots_per_day * shard.grid.step_seconds
    held = boosted.log_ratio[2, 0]
    known = held[~np.isnan(held)]
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
        relative_loss=float(np.exp(known.mean())) if known.size else float("nan"),
        weight=float(weights[2].mean()),
    )
