"""CPU request by a chosen risk: the share of days on which demand may exceed the request. Pure numpy.

A day's highest demand is bounded by the last two weeks and a margin: base + s x spread, with base = the mean of the
14-day and the 7-day maximum (an old peak counts half) and spread = what was provided x (maximum / mean) ^ 3/4. This
form has two reasons. The size of a rare jump depends little on the last peak and much on the container's size (what was
provided). And a margin costs little relative slack if usage is mostly far below its peak, and much if it is even: so it
is large where maximum / mean is high. `s` is one number for containers that are evaluated together (256 of a shard in
an analysis, so that each group keeps the risk), calibrated by back-test: every full day of the history is predicted
from the days before it, and `s` is the quantile of (peak - base) / spread for the risk, with the finite-sample
correction of split conformal prediction ((n + 1)(1 - risk) th smallest; Vovk et al. 2005). No request is far above what
was provided or ever measured, because demand cannot be either. Days of one cluster are not independent, so the realised
share varies around the risk.

A few days decide the margin, so it would jump from day to day. It rises at once to what the risk requires, and falls by
at most 4 % of itself a day (`least_later_margin`): requests of azure_v1 and bitbrains_rnd then move by more than 10 %
0.96 and 0.57 times a week instead of 1.44 and 1.78, for 0.012 and 0.015 more slack and fewer short days.
"""

from __future__ import annotations

from math import ceil
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

LONG_DAYS, SHORT_DAYS = 14, 7
LEAST_DAYS: Final = 3
"""Days with samples that a base needs."""
LEAST_OUTCOMES: Final = 100
"""Back-tested days, over all containers, that a calibration needs."""
BEYOND_PROVIDED, BEYOND_SEEN = 1.1, 1.5
"""No request is above the larger of these times what was provided and what was seen. (A VM may get a little more than
it was promised.)"""
FULL_DAY: Final = 0.5
"""Share of the fullest day's samples without which a day does not count."""
SPREAD_POWER: Final = 0.75
DAILY_FALL: Final = 0.04
"""Share of itself by which a margin may fall within a day."""
MARGIN_INPUT: Final = "day_risk_margin"
"""Name of the margin among the inputs of a recommended value."""


class DayRiskAmounts(NamedTuple):
    """CPU requests of containers, NaN if history is too short, and margin factors, NaN with too few tested days."""

    amounts: Floats
    margin: Floats


def amounts(
    maxima: Floats, means: Floats, provided: Floats, risk: float, least: Floats | float = np.nan
) -> DayRiskAmounts:
    """Return the CPU requests of n containers for the next day, so that demand exceeds them on a share `risk` of days.

    `maxima` and `means`, (n, days), are each day's demand, oldest first, NaN = too few samples; `provided`, (n,), is
    the larger of limit and request in the same unit. `least`, (n,), are the lowest allowed margin factors
    (`least_later_margin`), NaN = no bound.
    """
    calibrated = margin_for(outcomes(maxima, means, provided), risk)
    margin = np.broadcast_to(np.nan if np.isnan(calibrated) else np.fmax(calibrated, least), len(provided))
    return DayRiskAmounts(with_margin(maxima, means, provided, margin), margin)


def least_later_margin(margin: float, days: float) -> float:
    """Return the lowest margin factor allowed so many days after `margin` was computed; NaN if `margin` <= 0."""
    return margin * (1 - DAILY_FALL) ** days if margin > 0 else np.nan


def with_margin(maxima: Floats, means: Floats, provided: Floats, margin: Floats | float) -> Floats:
    """Return the CPU requests for the next day with this margin factor, one for all containers or one for each."""
    base, spread, ceiling = expected_next_day(maxima, means, provided)
    return np.minimum(base + margin * spread, ceiling)


def outcomes(maxima: Floats, means: Floats, provided: Floats) -> Floats:
    """Return (peak - expected base) / expected spread of each back-tested day, (containers, days); NaN if untested."""
    scores = []
    for day in range(SHORT_DAYS, maxima.shape[1]):
        base, spread, _ = expected_next_day(maxima[:, :day], means[:, :day], provided)
        scores.append((maxima[:, day] - base) / spread)
    return np.stack(scores, axis=1) if scores else np.empty((len(maxima), 0))


def margin_for(scores: npt.NDArray[np.floating], risk: float) -> float:
    """Return the margin for a risk: the (n + 1)(1 - risk) th smallest of n scores or the largest; NaN with too few."""
    ordered_scores = np.sort(scores[np.isfinite(scores)])
    if len(ordered_scores) < LEAST_OUTCOMES:
        return np.nan
    return float(ordered_scores[min(ceil((len(ordered_scores) + 1) * (1 - risk)), len(ordered_scores)) - 1])


def expected_next_day(maxima: Floats, means: Floats, provided: Floats) -> tuple[Floats, Floats, Floats]:
    """Return each container's demand on the next day as base, spread and ceiling; NaN if its history is too short."""
    recent, level = maxima[:, -LONG_DAYS:], means[:, -LONG_DAYS:]
    days = np.isfinite(recent).sum(axis=1)
    highest = np.fmax.reduce(recent, axis=1, initial=np.nan)
    newest = np.fmax.reduce(recent[:, -SHORT_DAYS:], axis=1, initial=np.nan)
    mean = np.divide(np.nansum(level, axis=1), days, out=np.full(len(days), np.nan), where=days > 0)
    base = (highest + np.fmax(newest, mean)) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = provided * (highest / mean) ** SPREAD_POWER
    enough = (days >= LEAST_DAYS) & (mean > 0) & (provided > 0)
    columns = base, spread, np.fmax(BEYOND_PROVIDED * provided, BEYOND_SEEN * highest)
    return tuple(np.where(enough, column, np.nan) for column in columns)  # type: ignore[return-value]
