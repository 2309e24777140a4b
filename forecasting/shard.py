"""One shard of series, from half hours to quantile paths: members, mixture, booster, calibration. Pure.

back-tests (`selection`) -> members mixed, rehearsed (`served_mixture`) -> booster from the rehearsed days (`booster`)
-> its share beside the mixture -> upper levels lifted (`calibration`). The series of a shard share shrinkage, pools and
training. What was learned (`MixtureFit`) is used at later moments too, which forecast only the day ahead and the last
hours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from cotenant.base.settings.base import digest
from cotenant.base.usage.forecast import LEVELS, MeasuredError, ModelCard
from cotenant.base.usage.usage import FloatMatrix, Floats, TimeGrid
from cotenant.forecasting.base import Array, Forecaster
from cotenant.forecasting.boosting.booster import (
    SEED,
    TRAINED_LEVELS,
    Booster,
    BoosterInput,
    feature_names,
    scale_of,
    train,
)
from cotenant.forecasting.calibration import Rehearsed, apply_lift, compute_lifts, daily_classes
from cotenant.forecasting.empirical import known_mean
from cotenant.forecasting.mixture import mixture
from cotenant.forecasting.selection import (
    BackTests,
    NearTest,
    back_test,
    blend,
    combine,
    current_scores,
    daily_scores,
    forecast_ahead,
    level_of,
    log_loss_ratio,
    near_test,
)
from cotenant.forecasting.served_mixture import BLEND_SHARPNESS, booster_score, booster_share, measure, rehearse
from cotenant.forecasting.settings import ForecastingSettings

_NAMED_FROM: Final = 0.1  # share of the booster from which it is named beside the members
_HOLDOUT_STRIDE: Final = 4
"""Slots of the booster's held-out day that are compared: every fourth tells as much at a quarter of the cost."""
_DAILY_CLASSES: Final = 3
_NARROW: Final = 0.3
"""Scale of a band, in usual changes from day to day, below which a series is parked: its misses are of another size."""
_MOST_CHANGES: Final = 2.0  # usual changes from day to day that an upper quantile is lifted by at most
_LEAST_CHANGE: Final = 1e-9  # change from day to day, relative to the level, below which a series counts as constant


@dataclass(frozen=True, slots=True, eq=False)
class MixtureFit:
    """The results of the back-tests of a shard of n series; with them, later forecasts need no new back-tests.

    scores (n, members): the daily part of the scores; booster_scores (n,): from `booster_score`; lifts (n, L): from
    `compute_lifts`; errors (n, 3): the fields of MeasuredError, measured when this was learned.
    """

    scores: npt.NDArray[np.float64]
    booster_scores: npt.NDArray[np.float64]
    lifts: npt.NDArray[np.float64]
    errors: npt.NDArray[np.float64]
    booster: Booster | None
    card: ModelCard | None

    def rows(self, places: npt.NDArray[np.intp]) -> MixtureFit:
        """Return the fit of the series at these places; -1, a new series, gets the mean of all series and no error."""
        scores, boosted, lifts = (
            np.concatenate([part, part.mean(axis=0, keepdims=True)])[places]
            for part in (self.scores, self.booster_scores, self.lifts)
        )
        errors = np.concatenate([self.errors, [[np.nan, np.nan, 0.0]]])[places]
        return replace(self, scores=scores, booster_scores=boosted, lifts=lifts, errors=errors)


@dataclass(frozen=True, slots=True, eq=False)
class ShardForecast:
    """The forecast of a shard of n series: paths (n, H, L), each series' models and measured error, and the fit.

    `losses` (n, members): each member's loss in the back-tests relative to the first, on which the weights are based.
    """

    path: Array
    model: tuple[str, ...]
    error: tuple[MeasuredError, ...]
    losses: Array
    fit: MixtureFit


@dataclass(frozen=True, slots=True, eq=False)
class _Mixed:
    """The path (n, H, L) before the lift, scores and weights of members (M, n), and the booster's share (n,)."""

    path: Array
    standing: Floats
    weights: Floats
    share: Floats


@dataclass(frozen=True, slots=True, eq=False)
class _Shard:
    history: FloatMatrix
    grid: TimeGrid
    settings: ForecastingSettings
    names: tuple[str, ...]
    bases: dict[int, Floats] = field(default_factory=dict, init=False)
    """What `base` gave, by origin: it is asked for each of them several times."""

    def base(self, origin: int) -> Floats:
        """Return the mean absolute change from day to day, as known at an origin (0 = now), (n,), never 0."""
        if origin not in self.bases:
            day = self.grid.slots_per_day
            past = self.history[:, : self.grid.size - origin * day]
            change = np.abs(past[:, day:] - past[:, : max(0, past.shape[1] - day)])
            least = _LEAST_CHANGE * level_of(self.history) + np.finfo(np.float64).tiny
            self.bases[origin] = np.asarray(np.maximum(known_mean(change, 0.0), least))
        return self.bases[origin]

    def moment(self, origin: int, forecasts: Array, path: Array) -> BoosterInput:
        """Return the booster's input as known at an origin: 0 = now, k = before back-test k - 1."""
        cut = self.grid.size - origin * self.grid.slots_per_day
        return BoosterInput(self.history[:, :cut], forecasts, path, self.base(origin))

    def mixed(self, ahead: Array, near: NearTest, fit: MixtureFit) -> _Mixed:
        """Mix the members by what was learned and by the last hours, and average the booster in.

        `ahead`: the members' forecasts of the day ahead, (M, n, H, L); `near`: their test on the last hours.
        """
        score = current_scores(fit.scores.T, near)
        weights = blend(score, BLEND_SHARPNESS)
        path = mixture(ahead, weights)
        if fit.booster is None:
            return _Mixed(path, score, weights, np.zeros(len(path)))
        now = self.moment(0, ahead, path)
        scale = scale_of(path, now.base)
        near_path = mixture(near.forecasts, weights)
        before = BoosterInput(
            self.history[:, : self.grid.size - near.actual.shape[1]], near.forecasts, near_path, now.base
        )
        both = np.stack([near_path, fit.booster.quantiles(before, scale)])
        near_ratio = np.nan_to_num(log_loss_ratio(near.actual, both, level_of(self.history))[1])
        share = booster_share(fit.booster_scores, near_ratio)
        joined = combine(np.stack([path, fit.booster.quantiles(now, scale)]), np.stack([1 - share, share]))
        return _Mixed(joined, score, weights, share)

    def served(self, mixed: _Mixed, fit: MixtureFit) -> ShardForecast:
        """Return the forecast: the mixed path with its upper levels lifted as learned.

        The models named for a series are its two heaviest members, and "booster" from a share of a tenth on.
        """
        base = self.base(0)
        heaviest = np.argsort(-mixed.weights, axis=0, kind="stable")[:2].T.tolist()
        boosted = [("booster",) if part >= _NAMED_FROM else () for part in mixed.share.tolist()]
        errors = tuple(MeasuredError(relative, covered, int(count)) for relative, covered, count in fit.errors.tolist())
        return ShardForecast(
            apply_lift(mixed.path, fit.lifts, scale_of(mixed.path, base), _MOST_CHANGES * base),
            tuple(
                " + ".join((*(self.names[i] for i in two), *more)) for two, more in zip(heaviest, boosted, strict=True)
            ),
            errors,
            np.exp(mixed.standing).T.astype(np.float32),
            fit,
        )


def forecast_shard(
    history: FloatMatrix,
    grid: TimeGrid,
    settings: ForecastingSettings,
    members: Sequence[Forecaster],
    fit: MixtureFit | None = None,
) -> ShardForecast:
    """Forecast the day after the grid, from half hours (n, grid.size) that are finite and >= 0 or NaN.

    `fit` is what was learned about these series earlier; without it, back-tests are run now.
    """
    shard = _Shard(history, grid, settings, tuple(m.name for m in members))
    if fit is not None:
        ahead = forecast_ahead(members, history, grid, grid.slots_per_day)
        return shard.served(shard.mixed(ahead, near_test(members, history, grid), fit), fit)
    tests = back_test(members, history, grid, settings)
    served = rehearse(tests, settings)
    fit = _train_mixture(shard, tests, served)
    tests = replace(tests, forecasts=tests.forecasts[:, :, :0].copy())  # most of the memory, and needed no more
    ahead = forecast_ahead(members, history, grid, grid.slots_per_day)
    mixed = shard.mixed(ahead, tests.near, fit)
    lifter = _Lifter(shard, tests, daily_classes(history, grid.slots_per_day))
    errors = [(e.relative_wql, e.coverage_95, e.origins) for e in measure(tests, lifter.each(served))]
    fit = replace(
        fit,
        lifts=lifter.now(mixed.path, served),
        errors=np.array(errors, dtype=np.float64).reshape(len(history), 3),
        card=replace(fit.card, weight=float(mixed.share.mean())) if fit.card else None,
    )
    return shard.served(mixed, fit)


def _train_mixture(shard: _Shard, tests: BackTests, served: Array) -> MixtureFit:
    """Return the members' scores, and the booster with its card, trained on the rehearsed days but the newest."""
    history, settings = shard.history, shard.settings
    older = range(1, len(served))
    moments = [shard.moment(day + 1, tests.forecasts[:, day], served[day]) for day in older]
    booster = train(moments, tests.actual[1 : len(served)], settings)
    unknown = np.zeros((len(history), 3))
    fit = MixtureFit(
        scores=daily_scores(tests, 0, settings).T,
        booster_scores=unknown[:, 0],
        lifts=np.zeros((len(history), len(LEVELS))),
        errors=unknown,
        booster=booster,
        card=None,
    )
    if booster is None:
        return fit
    newest = shard.moment(1, tests.forecasts[:, 0], served[0]).thinned(_HOLDOUT_STRIDE)
    both = np.stack([newest.path, booster.quantiles(newest, scale_of(served[0], newest.base))])
    ratio = log_loss_ratio(tests.actual[0, :, ::_HOLDOUT_STRIDE], both, level_of(history))[1]
    ratio[np.isnan(tests.log_ratio[0, 0])] = np.nan
    scored = ratio[~np.isnan(ratio)]
    end_seconds, day_seconds = shard.grid.end_seconds, shard.grid.slots_per_day * shard.grid.step_seconds
    card = ModelCard(
        name="quantile booster",
        trained_seconds=end_seconds,
        first_seconds=end_seconds - tests.rehearsals * day_seconds,
        last_seconds=end_seconds - day_seconds,
        rows=booster.rows,
        series=booster.series,
        features=feature_names(shard.names),
        levels=TRAINED_LEVELS,
        seed=SEED,
        settings_digest=digest(settings),
        relative_loss=float(np.exp(scored.mean())) if scored.size else float("nan"),
        weight=float("nan"),
    )
    return replace(fit, booster_scores=booster_score(ratio, settings), card=card)


@dataclass(frozen=True, slots=True, eq=False)
class _Lifter:
    """The calibration of a shard; its classes are how daily the series are, and whether their band is narrow."""

    shard: _Shard
    tests: BackTests
    classes: npt.NDArray[np.intp]

    def _rehearsed_days(self, served: Array) -> Rehearsed:
        scales = [scale_of(path, self.shard.base(day + 1)) for day, path in enumerate(served)]
        return Rehearsed(
            self.tests.actual[: len(served)], served, np.array(scales).reshape(len(served), len(self.classes))
        )

    def _lifts(self, path: Array, origin: int, rehearsed: Rehearsed) -> npt.NDArray[np.float64]:
        base = self.shard.base(origin)
        classes = self.classes + np.where(scale_of(path, base) < _NARROW * base, _DAILY_CLASSES, 0)
        return compute_lifts(rehearsed, classes, self.shard.settings)

    def now(self, path: Array, served: Array) -> npt.NDArray[np.float64]:
        """Return the lift of the present forecast from all rehearsed days, (n, L) in its scale."""
        return self._lifts(path, 0, self._rehearsed_days(served))

    def each(self, served: Array) -> Array:
        """Return each rehearsed day lifted by what was known before it, (R, n, H, L)."""
        every = self._rehearsed_days(served)
        days = []
        for day, path in enumerate(served):
            base, lifts = self.shard.base(day + 1), self._lifts(path, day + 1, every.older_than(day))
            days.append(apply_lift(path, lifts, scale_of(path, base), _MOST_CHANGES * base))
        return np.array(days, dtype=np.float32).reshape(served.shape)
