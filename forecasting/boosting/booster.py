"""One gradient booster for all series of a shard: it predicts the residual of the mixture's quantiles.

Pure and deterministic (a seed draws the rows); scikit-learn is loaded only when a booster is trained. Rows are half
hours of rehearsed days (back-tested ones). Features and targets are distances from the median of the mixture, in units
of a scale that each series gets from its own band and past losses, so that millicores and bytes, idle and busy series
can be trained together. It is trained on all rehearsed days but the newest, and weighted by its loss on that one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.base.light_imports import without_pandas
from cotenant.base.threads import side_by_side
from cotenant.base.usage.forecast import LEVELS
from cotenant.base.usage.usage import FloatMatrix, Floats
from cotenant.forecasting.base import LEVEL_ARRAY, Array, in_order
from cotenant.forecasting.boosting.trees import Trees, of_models
from cotenant.forecasting.settings import ForecastingSettings

BOOSTER_THREADS: Final = 1
"""Threads of the booster's training. One thread per shard: shards already run in parallel by pipeline.workers."""


SEED: Final = 0
TRAINED_LEVELS: Final = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Levels with a model of their own; those between are linear between them, those above lie as in the mixture."""
_ITERATIONS, _RATE, _LEAVES, _FEWEST_IN_LEAF, _BINS = 12, 0.25, 15, 60, 31
_SERIES_PER_BLOCK: Final = 128
_FARTHEST: Final = 60.0  # targets are held within this many scales: one outlier must not bend a tree
_ABSURD: Final = 1e9  # where distances end: of a series that was constant and is no longer
_RECENT_SLOTS: Final = (1, 2, 6, 12, 24, 48, 336)
_LOW, _MIDDLE, _HIGH, _UPPER = (LEVELS.index(q) for q in (0.1, 0.5, 0.9, 0.95))


@dataclass(frozen=True, slots=True, eq=False)
class BoosterInput:
    """The data of n series at a forecast's moment: history (n, T), M forecasts (M, n, H, L), their mixture (n, H, L).

    T past and H future slots, L levels; `base` (n,): mean absolute change from day to day. With `stride` above 1, the H
    slots are every stride-th slot.
    """

    history: FloatMatrix
    forecasts: Array
    path: Array
    base: Floats
    stride: int = 1

    def rows(self, some: slice) -> BoosterInput:
        """Return the input of only the series in the slice `some`."""
        return BoosterInput(self.history[some], self.forecasts[:, some], self.path[some], self.base[some], self.stride)

    def thinned(self, stride: int) -> BoosterInput:
        """Return the input with only every `stride`-th future slot."""
        return BoosterInput(self.history, self.forecasts[:, :, ::stride], self.path[:, ::stride], self.base, stride)


def scale_of(path: Array, base: Floats) -> Floats:
    """Return each series' unit of distances: geometric mean of its forecast band's width and daily change, never 0."""
    width = (path[:, :, _HIGH] - path[:, :, _LOW] + path[:, :, _UPPER] - path[:, :, _MIDDLE]).mean(axis=1)
    scale: Floats = np.sqrt((width + 0.02 * base) * base)
    return scale


def feature_names(members: Sequence[str]) -> tuple[str, ...]:
    """Return the column names of `features`; `members` are the members' names in the order of the forecasts."""
    of_members = [f"{kind} of {name}" for kind in ("median", "p10", "p90") for name in members]
    recent = [f"mean of the last {slots} slots" for slots in _RECENT_SLOTS]
    own = ["deviation of the last day", "mean", "deviation of the last 2 h", "slots ahead"]
    return (*of_members, *recent, *own, "p10 of the mixture", "p90 of the mixture", "p95 of the mixture", "log scale")


def features(moment: BoosterInput, scale: Floats, drawn: npt.NDArray[np.bool_] | None = None) -> Array:
    """Return F features per slot, (rows, F), in units of `scale`, of all future slots or those marked by `drawn`."""
    size = moment.path.shape[:2]
    row, slot = np.divmod(np.arange(size[0] * size[1]), size[1]) if drawn is None else np.nonzero(drawn)
    unit, centre = scale[row], moment.path[row, slot, _MIDDLE]
    recent = [_mean(moment.history[:, -k:]) for k in _RECENT_SLOTS]
    own = (_spread(moment.history[:, -48:]), _mean(moment.history), _spread(moment.history[:, -4:]))
    columns = (
        *(
            (forecast[row, slot] - centre) / unit
            for level in (_MIDDLE, _LOW, _HIGH)
            for forecast in moment.forecasts[..., level]
        ),
        *((mean[row] - centre) / unit for mean in recent),
        *(path[row] / unit for path in own),
        moment.stride * slot,
        *((moment.path[row, slot, level] - centre) / unit for level in (_LOW, _HIGH, _UPPER)),
        np.log(scale / moment.base)[row],
    )
    # trees are grown and asked by column
    return np.stack([column.clip(-_ABSURD, _ABSURD).astype(np.float32) for column in columns]).T


@dataclass(frozen=True, slots=True, eq=False)
class Booster:
    """Trained trees, one model per level of TRAINED_LEVELS, and the numbers of rows and series of the training."""

    trees: Trees
    rows: int
    series: int

    def quantiles(self, moment: BoosterInput, scale: Floats) -> Array:
        """Return quantiles (n, H, L) of the slots ahead: the mixture's median plus the learned residual.

        `scale` (n,) is from `scale_of`. Levels above 0.9 have no model: they keep the mixture's distance from its p90.
        """
        parts = side_by_side(lambda some: self._quantiles(moment.rows(some), scale[some]), list(_blocks(len(scale))))
        return np.concatenate(parts) if parts else np.empty(moment.path.shape, dtype=np.float32)

    def _quantiles(self, moment: BoosterInput, scale: Floats) -> Array:
        away = self.trees.predict(features(moment, scale)).reshape(*moment.path.shape[:2], -1)
        # All of LEVELS from the trained ones, linear between and flat beyond, on the last axis.
        trained = np.array(TRAINED_LEVELS)
        levels = np.minimum(LEVEL_ARRAY, trained[-1])
        above = np.clip(np.searchsorted(trained, levels), 1, len(trained) - 1)
        part = (levels - trained[above - 1]) / (trained[above] - trained[above - 1])
        between: Floats = away[..., above - 1] * (1 - part) + away[..., above] * part
        path = moment.path[:, :, _MIDDLE, None] + between * scale[:, None, None]
        path[:, :, _HIGH + 1 :] += moment.path[:, :, _HIGH + 1 :] - moment.path[:, :, _HIGH, None]
        return in_order(path.astype(np.float32))


def train(moments: Sequence[BoosterInput], actual: FloatMatrix, settings: ForecastingSettings) -> Booster | None:
    """Train a booster on past moments and the values after them (moments, n, H); None if there is too little data."""
    series = actual.shape[1]
    if not settings.booster_rows or series < settings.booster_minimum_series or not moments:
        return None
    # A mask (moments, n, H) of the known slots to train on, at most `settings.booster_rows`, drawn at random.
    slots = np.flatnonzero(~np.isnan(actual))
    if len(slots) > settings.booster_rows:
        slots = np.random.default_rng(SEED).choice(slots, settings.booster_rows, replace=False)
    chosen = np.zeros(actual.size, dtype=bool)
    chosen[slots] = True
    drawn = chosen.reshape(actual.shape)
    columns: list[Array] = []
    targets: list[Floats] = []
    for moment, came, rows in zip(moments, actual, drawn, strict=True):
        scale = scale_of(moment.path, moment.base)
        columns += [features(moment.rows(some), scale[some], rows[some]) for some in _blocks(len(scale))]
        target = (came - moment.path[:, :, _MIDDLE]) / scale[:, None]
        targets.append(np.clip(target[rows], -_FARTHEST, _FARTHEST))
    x, y = np.concatenate(columns), np.concatenate(targets)
    if len(y) < 2 * _FEWEST_IN_LEAF * _LEAVES:
        return None
    return Booster(of_models(_fit_models(x, y, BOOSTER_THREADS)), len(y), series)


def _blocks(series: int) -> Iterator[slice]:
    """Yield the series whose features are in memory at the same time, because the features of one need 20 kB."""
    return (slice(first, first + _SERIES_PER_BLOCK) for first in range(0, series, _SERIES_PER_BLOCK))


def _fit_models(x: Array, y: Floats, threads: int) -> tuple[Any, ...]:
    # Loaded here: most processes never train, and some must stay light.
    with without_pandas():
        from sklearn.ensemble import HistGradientBoostingRegressor
    from threadpoolctl import threadpool_limits  # comes with scikit-learn

    bins: list[Any] = []
    with threadpool_limits(limits=threads, user_api="openmp"):
        return tuple(
            _share_bins(
                HistGradientBoostingRegressor(
                    loss="quantile",
                    quantile=level,
                    max_iter=_ITERATIONS,
                    learning_rate=_RATE,
                    max_leaf_nodes=_LEAVES,
                    min_samples_leaf=_FEWEST_IN_LEAF,
                    max_bins=_BINS,
                    early_stopping=False,
                    random_state=SEED,
                ),
                bins,
            ).fit(x, y)
            for level in TRAINED_LEVELS
        )


def _share_bins(model: Any, bins: list[Any]) -> Any:
    """Return the model with the rows binned by the first one: binning is half of the training time of a level."""
    fill = getattr(model, "_bin_data", None)  # not public: a release without it fills them for every level
    if fill is None:
        return model

    def bin_data(*rows: Any, **arguments: Any) -> Any:
        if not bins:
            bins.extend((fill(*rows, **arguments), model._bin_mapper))
        binned, model._bin_mapper = bins
        return binned

    model._bin_data = bin_data
    return model


def _mean(values: FloatMatrix) -> Floats:
    present = ~np.isnan(values)
    mean: Floats = np.where(present, values, 0.0).sum(axis=1) / np.maximum(present.sum(axis=1), 1)
    return mean


def _spread(values: FloatMatrix) -> Floats:
    return np.sqrt(_mean(((values - _mean(values)[:, None]) ** 2).astype(np.float32)))
