"""Classifies how usage moves from its portrait: idle, flat, trend, weekly, daily or bursty. Pure.

`profiler.portrait` calls it after each update. The first rule that fits wins, in the order of that list; "unknown"
stands before all of them while history is short.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from cotenant.base.resource import Resource
from cotenant.base.usage.portrait import SLOTS_PER_DAY, Floats, Pattern, Portraits, RefT

PATTERN_DAYS: Final = 2.0
"""History below which the pattern is unknown. Fewer than two days cannot show that anything repeats."""
IDLE_MILLICORES: Final = 10.0
"""CPU usage whose 95th percentile stays at or below this is idle. Ten millicores is what a health check and a
runtime's timers use."""
FLAT_AMPLITUDE: Final = 0.3
"""Usage with (p95 - p5) / mean at or below this is flat. Threshold of a word that describes a series; it changes no
amount."""
TREND_RISE: Final = 0.3
"""Change of the daily mean over the kept days, relative to the mean, that makes a trend. Threshold of a word that
describes a series; it changes no amount."""
TREND_FIT: Final = 0.7
"""Share of the daily means' variance that a straight line must explain. Threshold of a class label: the share of
variance that is called a good fit (R squared)."""
SEASON_SHARE: Final = 0.3
"""Share of variance that the time of day must explain to be daily. Threshold of a word that describes a series; it
changes no amount."""
WEEK_SHARE: Final = 0.1
"""Further share of variance that the weekend must explain to be weekly. Threshold of a word that describes a
series; it changes no amount."""

Flags = npt.NDArray[np.bool_]

_TREND_DAYS = 5


def classify(portraits: Portraits[RefT]) -> tuple[Pattern, ...]:
    """Pattern of each portrait, by the first rule that fits; thresholds are those of the portrait's settings.

    Idle: p95 at most `idle_millicores` (memory: mean 0). Flat: p95 - p5 small against the mean. Weekly: workday and
    weekend explain clearly more variance than the half hour alone. Bursty: none of the rules.
    """
    mean, (p5, p95) = portraits.mean, portraits.percentiles((0.05, 0.95)).T
    daily, weekly = _explained_variance_shares(portraits)
    idle_below = IDLE_MILLICORES if portraits.resource is Resource.CPU else 0.0
    short = ~(portraits.span_days >= PATTERN_DAYS) | ~(portraits.samples > 0)
    rules = (
        (Pattern.UNKNOWN, short),
        (Pattern.IDLE, (p95 <= idle_below) | ~(mean > 0)),
        (Pattern.FLAT, p95 - p5 <= FLAT_AMPLITUDE * mean),
        (Pattern.TREND, _has_trend(portraits.daily_means)),
        (Pattern.WEEKLY, (weekly - daily >= WEEK_SHARE) & (weekly >= SEASON_SHARE)),
        (Pattern.DAILY, daily >= SEASON_SHARE),
    )
    names = np.select([flags for _, flags in rules], [name.value for name, _ in rules], Pattern.BURSTY.value)
    return tuple(Pattern(name) for name in names.tolist())


def _explained_variance_shares(portraits: Portraits[RefT]) -> tuple[Floats, Floats]:
    """Shares of variance that the half hour of the day explains, alone and together with workday/weekend; (n,) each.

    Between-group over total sum of squares (the correlation ratio of one-way analysis of variance).
    """
    mean, samples = portraits.mean, portraits.samples
    total = portraits.square_sums - samples * mean**2
    by_day = _between_group_squares(portraits.slot_sums.sum(axis=1), portraits.slot_counts.sum(axis=1), mean)
    size, seasons = len(mean), 2 * SLOTS_PER_DAY
    by_week = _between_group_squares(
        portraits.slot_sums.reshape(size, seasons), portraits.slot_counts.reshape(size, seasons), mean
    )
    # A variance that is a rounding error of the squares says nothing.
    real = total > 1e-9 * portraits.square_sums
    shares = [np.divide(part, total, out=np.zeros(size), where=real) for part in (by_day, by_week)]
    return shares[0], shares[1]


def _between_group_squares(sums: Floats, counts: Floats, mean: Floats) -> Floats:
    """Sum over groups of count x (group mean - mean)^2."""
    group = np.divide(sums, counts, out=np.zeros_like(sums), where=counts > 0)
    between: Floats = np.nansum(counts * (group - mean[:, None]) ** 2, axis=1)
    return between


def _has_trend(daily: Floats) -> Flags:
    """Return whether a straight line through each row's daily means moves enough and fits well enough, (n,).

    The line may rise or fall.
    """
    present = np.isfinite(daily)
    days = present.sum(axis=1)
    when = np.where(present, np.arange(daily.shape[1]), np.nan)
    enough = days >= _TREND_DAYS
    daily, when = np.where(present, daily, 0.0)[enough], when[enough]
    present = present[enough]
    count = days[enough][:, None]
    dx = np.where(present, when - np.nansum(when, axis=1, keepdims=True) / count, 0.0)
    dy = np.where(present, daily - daily.sum(axis=1, keepdims=True) / count, 0.0)
    slope = (dx * dy).sum(axis=1) / (dx * dx).sum(axis=1)
    rise = np.abs(slope) * (np.nanmax(when, axis=1, initial=0) - np.nanmin(when, axis=1, initial=daily.shape[1]))
    variance = (dy * dy).sum(axis=1)
    fits = slope**2 * (dx * dx).sum(axis=1) >= TREND_FIT * variance
    trending = np.zeros(len(enough), dtype=bool)
    trending[enough] = fits & (variance > 0) & (rise >= TREND_RISE * daily.sum(axis=1) / count[:, 0])
    return trending
