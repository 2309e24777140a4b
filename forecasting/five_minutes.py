"""Quantiles of single 5-minute values, from the forecast of their half hours. Pure.

A half hour's mean (or maximum) varies less than the values in it. Two things are learned from the last days of each
series, as ratios of a value to that of its half hour:

- a profile by time of day (UTC), for jobs that run at fixed minutes; its weight grows with the share of the ratios'
  variance that it explains on days that were left out of it;
- the distribution of what the profile leaves, separately for half hours of different levels: a quiet half hour may be
  even and a busy one a burst of five minutes.

A future value is distributed as the mixture, over the quantiles of its half hour's forecast, of level x ratio at that
level (law of total probability), times the profile. The settings below were chosen on azure_v1 and bitbrains_rnd;
bench.forecasting.decisions_fine measures the gain.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from cotenant.base.threads import side_by_side
from cotenant.base.usage.forecast import FinePath
from cotenant.base.usage.usage import DAY_SECONDS, FloatMatrix, Statistic, Usage
from cotenant.forecasting.base import LEVEL_ARRAY, Array, in_order
from cotenant.forecasting.empirical import row_quantiles

_BANDS: Final = 12  # levels of a half hour that have a distribution of their own
_RATIO_DAYS: Final = 5
_PROFILE_DAYS: Final = 7
_RATIO_NODES: Final = (np.arange(12) + 0.5) / 12  # quantiles that stand for the ratios of a band, of one weight each
_LEVEL_NODES: Final = (np.arange(32) + 0.5) / 32
"""Quantiles of a half hour's forecast that stand for it, of one weight each: so that sorting mixes them."""
_READ: Final = np.array([np.interp(_LEVEL_NODES, LEVEL_ARRAY, unit) for unit in np.eye(len(LEVEL_ARRAY))], np.float32)
"""(levels, nodes): a path's levels times this are its values at the nodes, linear between levels."""
_LEAST_PROFILE: Final = 0.1
_SERIES_PER_BLOCK: Final = 64


def five_minutes(path: Array, past: Usage[Any], coarse: Usage[Any]) -> FinePath:
    """Return the quantiles of single values, at `past`'s step, in the half hours of a path (n, H, L) of a day.

    `past`: values up to the start of the path; `coarse`: the same in half hours. The path stays unchanged if `coarse`
    covers less than a day, and for a series that does not vary within half hours. NaN stays NaN.
    """
    horizon, step = path.shape[1], past.grid.step_seconds
    parts = DAY_SECONDS // step // horizon
    days = min(_PROFILE_DAYS, coarse.grid.size // horizon)
    profile = np.ones((len(path), horizon, parts), dtype=np.float32)
    quantiles = path.copy()

    def refine(first: int) -> None:
        rows = slice(first, first + _SERIES_PER_BLOCK)
        level = coarse.values[rows, -days * horizon :].reshape(-1, days, horizon)
        values = past.values[rows, -days * horizon * parts :].reshape(-1, days, horizon, parts)
        # Values (..., k) relative to the level (...) of their half hour; 1 in a half hour of nothing, NaN in a gap.
        above = level[..., None]
        ratio = np.divide(values, above, out=np.ones_like(values), where=above > 0)
        ratio[np.isnan(values)] = np.nan
        profile[rows], rest = _profile(ratio, past.statistic)
        size, recent = len(rest), level[:, -rest.shape[1] :]
        bounded = np.minimum(rest, np.float32(parts)).reshape(size, -1, parts)
        quantiles[rows] = _product_quantiles(path[rows], bounded, recent.reshape(size, -1))

    side_by_side(refine, range(0, len(path) if days else 0, _SERIES_PER_BLOCK))
    return FinePath(step, quantiles, profile)


def _profile(ratio: FloatMatrix, statistic: Statistic) -> tuple[Array, FloatMatrix]:
    """Return ratios by time of day (n, H, k), and the newest days' ratios without it (n, D', H, k), from (n, D, H, k).

    The mean over the days is drawn towards 1 by the square root of the share of variance around 1 that the mean of the
    other days explains. The newest days are divided by the profile of the other days, or they would look too even.
    """
    is_measured = ~np.isnan(ratio)
    count = is_measured.sum(axis=1, dtype=np.float32)
    filled = ratio if is_measured.all() else np.where(is_measured, ratio, np.float32(0))
    total, squares = filled.sum(axis=1), np.einsum("ndhk,ndhk->nhk", filled, filled)
    mean = np.where(count > 0, total / np.maximum(count, 1), np.float32(1))
    # A day's distance from the mean of the other days is count / (count - 1) times that from the mean of all.
    away = np.where(count > 1, (squares - total * mean) * (count / np.maximum(count - 1, 1)) ** 2, 0).sum(axis=(1, 2))
    plain = np.where(count > 1, squares - 2 * total + count, 0).sum(axis=(1, 2))
    explained = np.clip(1 - np.divide(away, plain, out=np.ones_like(plain), where=plain > 0), 0, 1)
    trust = np.sqrt(explained)[:, None, None].astype(np.float32)

    def draw_towards_one(mean: Array) -> Array:
        profile: Array = np.maximum(1 + trust * (mean - 1), np.float32(_LEAST_PROFILE))
        if statistic is not Statistic.MAX:
            profile /= profile.mean(axis=-1, keepdims=True)
        return profile

    rest = np.empty_like(ratio[:, -_RATIO_DAYS:])
    for day in range(1, rest.shape[1] + 1):
        others = count - is_measured[:, -day]
        rest[:, -day] = ratio[:, -day] / draw_towards_one(
            np.where(others > 0, (total - filled[:, -day]) / np.maximum(others, 1), np.float32(1))
        )
    return draw_towards_one(mean), rest


def _product_quantiles(path: Array, ratio: FloatMatrix, level: FloatMatrix) -> Array:
    """Return quantiles (n, H, L) of level x ratio, over a path's levels and the ratios in the band of each level.

    `ratio` (n, T, k) is split into bands of half hours (n, T) of a similar level, with equally many in each.
    """
    size, slots = level.shape
    per_band = max(1, slots // _BANDS)
    places = slots // per_band * per_band
    order = np.argsort(level, axis=1)  # NaN goes last
    measured_count = (~np.isnan(level)).sum(axis=1)
    # Known half hours are spread over all places, so that gaps leave no band empty.
    rows = np.take_along_axis(order, np.arange(places) * measured_count[:, None] // places, axis=1)
    borders = np.take_along_axis(level, rows, axis=1)[:, per_band - 1 : -1 : per_band]
    banded = ratio.reshape(size * slots, -1)[rows + slots * np.arange(size)[:, None]]
    ratios = row_quantiles(banded.reshape(size, places // per_band, -1), _RATIO_NODES)
    ratios = np.where(np.isnan(ratios), np.float32(1), ratios)  # (n, bands, nodes)
    nodes = path @ _READ
    row = np.repeat(np.arange(len(path)) * ratios.shape[1], nodes[0].size).reshape(nodes.shape)
    for border in borders.T:
        row += nodes > border[:, None, None]
    values = ratios.reshape(-1, len(_RATIO_NODES)).take(row, axis=0)
    values *= nodes[..., None]
    products = len(_LEVEL_NODES) * len(_RATIO_NODES)
    quantile_places = ((LEVEL_ARRAY * products - 0.5) / (products - 1)).clip(0, 1)
    answer = in_order(row_quantiles(values.reshape(*path.shape[:2], products), quantile_places))
    even = (ratios == 1).all(axis=(1, 2)) | np.isnan(path).any(axis=(1, 2))
    mixed: Array = np.where(even[:, None, None], path, answer)
    return mixed
