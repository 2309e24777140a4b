"""The peak head: quantiles of the highest 5-minute value of the next 24 hours. Pure.

The path's upper quantile is no peak (each half hour may stay below it while the day's highest value does not), so the
daily maximum is forecast separately: a base level from past maxima, times quantiles of the ratios of later maxima to
such a base in the past (split-conformal with a pooled prior). A series' own ratios are supplemented by those of series
that vary about as much: every past ratio of every series is put into one of several classes by how far the series'
maxima of the other days are from their level, so that steady series do not get the spread of volatile ones. A class is
supplemented by its neighbours and by the ratios of all series. The numbers were chosen as described in bench
workload_peaks.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from cotenant.base.usage.usage import FloatMatrix, Floats
from cotenant.forecasting.base import LEVEL_ARRAY, Array
from cotenant.forecasting.empirical import row_quantiles, weighted_quantiles

PEAK_DAY_DECAY: Final = 0.9
"""Weight of a day's maximum relative to the next day's. Weight of older days in the peak's errors: its effect
cannot be judged from outside."""
PEAK_PRIOR_DAYS: Final = 24.0
"""Days that peak errors of equally restless series count for in each one's. Strength of the prior over equally
restless series: its effect cannot be judged from outside."""


_POOLED_POINTS = (np.arange(51) + 0.5) / 51
_RATIO_LIMIT = 100.0
_LOWEST_SHARE = 1e-3
_FEWEST_DAYS = 3  # days a base must rest on before its ratio counts as a score
_WIDEST_LOG: Final = float(np.log(3))
"""A day further from its level than this factor says no more about the spread than such a day."""


@dataclass(frozen=True, slots=True)
class SpreadClasses:
    """Settings of the classes into which past ratios of maximum to base level are sorted by the spread of their series.

    `count`: number of classes, at least 2; `prior_ratios`: weight of the ratios of all series in each class, as a
    number of ratios; `beside`: weight of each neighbour class relative to the class itself; `prior_days`: weight of all
    series' mean spread in the spread of one series, as a number of days. Bench workload_peaks varies these settings.
    """

    count: int = 10
    prior_ratios: float = 20
    beside: float = 0.4
    prior_days: float = 1


SHIPPED: Final = SpreadClasses()


def daily_maxima(values: FloatMatrix, slots_per_day: int) -> FloatMatrix:
    """Return an array (n, days): the maximum of each 24 hours, counted back from the end; NaN if half is missing."""
    days = values.shape[1] // slots_per_day
    block = values[:, values.shape[1] - days * slots_per_day :].reshape(len(values), days, slots_per_day)
    present = ~np.isnan(block)
    highest = np.where(present, block, -np.inf).max(axis=2, initial=-np.inf)
    result: FloatMatrix = np.where(2 * present.sum(axis=2) > slots_per_day, highest, np.nan).astype(np.float32)
    return result


def peak_quantiles(maxima: FloatMatrix, fallback: npt.NDArray[np.floating], classes: SpreadClasses = SHIPPED) -> Array:
    """Return quantiles (n, levels) of the next day's maximum from past maxima (n, days), newest last.

    They are a base level x quantiles of past ratios to it. `fallback` (n,) is the base level if no day is known, such
    as the maximum of a usage summary; NaN there gives NaN. `classes` are the product's settings unless others are
    compared.
    """
    bases = [_base(maxima[:, :day]) for day in range(_FEWEST_DAYS, maxima.shape[1])]
    then = np.stack(bases, axis=1) if bases else np.empty((len(maxima), 0), dtype=np.float32)
    # Maxima relative to their bases, up to the limit; nothing over nothing is 1, NaN where either is missing.
    ratios_maxima = maxima[:, _FEWEST_DAYS:]
    capped = np.fmax(then, ratios_maxima / np.float32(_RATIO_LIMIT))
    ratio = np.divide(ratios_maxima, capped, out=np.ones_like(ratios_maxima), where=capped > 0)
    ratios = np.where(np.isnan(ratios_maxima) | np.isnan(then), np.float32(np.nan), ratio)
    measured_base = _base(maxima)
    base = np.where(np.isnan(measured_base), fallback, measured_base)
    of_class = _of_classes(ratios, *_spreads(maxima, measured_base, classes), classes)
    weight = max(PEAK_PRIOR_DAYS, 1e-6) / len(_POOLED_POINTS)
    weights = np.append(np.ones(ratios.shape[1]), np.full(len(_POOLED_POINTS), weight))
    quantiles = weighted_quantiles(np.append(ratios, of_class, axis=1), weights, LEVEL_ARRAY)
    result: Array = (base[:, None] * quantiles).astype(np.float32)
    return result


def _spreads(maxima: FloatMatrix, base: FloatMatrix, classes: SpreadClasses) -> tuple[Floats, Floats]:
    """Return the mean |log(maximum / base)| of each series, shrunk to all series: without each scored day, and in all.

    `maxima`: (n, days); `base`: (n,). Returns (n, scored days) and (n,): a ratio's class must not depend on the ratio
    itself, and apart from that day both use the same amount of data.
    """
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        logs = np.minimum(np.abs(np.log(maxima / base[:, None], dtype=np.float64)), _WIDEST_LOG)
    logs = np.where((maxima <= 0) & (base[:, None] <= 0), 0.0, logs)
    present = ~np.isnan(logs)
    logs = np.where(present, logs, 0.0)
    total, days = logs.sum(axis=1), present.sum(axis=1)
    free = np.maximum(days - 1, 0)  # one day is its own level
    everyone = classes.prior_days * total.sum() / max(free.sum(), 1)
    without = (everyone + total[:, None] - logs) / (classes.prior_days + np.maximum(free[:, None] - present, 0))
    return without[:, _FEWEST_DAYS:], (everyone + total) / (classes.prior_days + free)


def _of_classes(ratios: FloatMatrix, spreads: Floats, now: Floats, settings: SpreadClasses) -> FloatMatrix:
    """Return quantiles of the ratios of series that vary about as much as each one, (n, points).

    `ratios`, `spreads`: (n, days), each ratio and its series' spread without it; `now`: (n,), the spread to look up.
    Between the middles of two classes both count.
    """
    is_known = ~np.isnan(ratios)
    order = np.argsort(spreads[is_known], kind="stable")
    spread, ratio = spreads[is_known][order], ratios[is_known][order]
    points = len(_POOLED_POINTS)
    if not len(ratio):
        return np.ones((len(now), points), dtype=np.float32)
    edges = np.linspace(0, len(ratio), settings.count + 1).astype(np.intp)
    # Quantiles (classes, points) of the ratios between each two edges, those beside and everybody's weighed in; a class
    # without a ratio has everybody's.
    everyone = row_quantiles(ratio[None], _POOLED_POINTS)[0]
    sizes = np.diff(edges)
    own = [row_quantiles(ratio[first:last][None], _POOLED_POINTS)[0] for first, last in itertools.pairwise(edges)]
    padded = [everyone, *(level if size else everyone for level, size in zip(own, sizes, strict=True)), everyone]
    size = sizes[:, None].astype(np.float64)
    places = np.arange(settings.count)
    before, after = (settings.beside * size * (places != end)[:, None] for end in (0, settings.count - 1))
    weights = np.concatenate([before, size, after, np.full_like(size, settings.prior_ratios)], axis=1)
    values = [np.concatenate([*padded[at : at + 3], everyone]) for at in range(settings.count)]
    classes = weighted_quantiles(np.stack(values), np.repeat(weights, points, axis=1), _POOLED_POINTS)
    middles = (edges[:-1] + edges[1:]) / 2
    place = (np.searchsorted(spread, now, "left") + np.searchsorted(spread, now, "right")) / 2
    at = np.interp(place, middles, np.arange(settings.count))
    below = np.minimum(at.astype(np.intp), settings.count - 2)
    part = (at - below)[:, None]
    result: FloatMatrix = ((1 - part) * classes[below] + part * classes[below + 1]).astype(np.float32)
    return result


def _base(maxima: FloatMatrix) -> FloatMatrix:
    """Return the level of the maxima so far, (n,): their geometric mean, in which newer days weigh more."""
    present = ~np.isnan(maxima)
    some = present.any(axis=1)
    filled = np.where(present, maxima, 0.0).astype(np.float64)
    mean = filled.sum(axis=1) / np.maximum(present.sum(axis=1), 1)
    # A day of nothing counts as a thousandth of the mean, or one such day would pull the level to 0.
    logs = np.log(np.maximum(filled, _LOWEST_SHARE * mean[:, None] + np.finfo(np.float64).tiny))
    weights = PEAK_DAY_DECAY ** np.arange(maxima.shape[1])[::-1] * present
    level = np.exp((weights * logs).sum(axis=1) / np.maximum(weights.sum(axis=1), np.finfo(np.float64).tiny))
    result: FloatMatrix = np.where(some, np.where(mean > 0, level, 0.0), np.nan).astype(np.float32)
    return result
