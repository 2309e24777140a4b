"""CPU request by a chosen risk: at most this share of days may hold a moment above it. Pure numpy.

A day's highest demand is bounded by what the last two weeks saw and a margin: base + s x spread, with base = the mean
of the 14-day and the 7-day maximum (an old peak counts half) and spread = what was provided x (maximum / mean) ^ 3/4.
Two things speak for that shape. A rare jump has little to do with how high the last peak was, much with how large the
container is (what was provided). And a margin costs little relative slack where usage is mostly far below its peak,
much where it is even: so it is spent where maximum / mean is high. `s` is one number for the containers that are
evaluated together (256 of a shard in an analysis, so that each group keeps the risk), calibrated by back-test: every
full day of the history is predicted from the days before it, and `s` is the quantile of (peak - base) / spread that the
risk asks for, with the finite-sample correction of split conformal prediction ((n + 1)(1 - risk) th smallest; Vovk et
al. 2005). No request is far above what was provided or ever seen: demand cannot be. Days of one fleet are not
independent, so the realised share varies around the risk.

A handful of days decides the margin, so from day to day it would jump up and down. It rises at once to what the risk
asks, and falls by at most 4 % of itself a day (`least_later_margin`): requests of azure_v1 and bitbrains_rnd then move
by more than 10 % 0.96 and 0.57 times a week instead of 1.44 and 1.78, for 0.012 and 0.015 more slack and fewer short
days.
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
    """Amounts (n,), NaN where there is too little history; margin: s, (n,), NaN where too few days were back-tested."""

    amounts: Floats
    margin: Floats


def amounts(
    maxima: Floats, means: Floats, provided: Floats, risk: float, least: Floats | float = np.nan
) -> DayRiskAmounts:
    """Requests for the next day.

    maxima, means: (n, days) of each day's demand, oldest first, NaN = no or too few samples; provided: (n,) limit or
    request, same unit; risk: share of days, 0..1; least: margins of the time before, `least_later_margin`, (n,), NaN =
    none.
    """
    calibrated = margin_for(outcomes(maxima, means, provided), risk)
    margin = np.broadcast_to(np.nan if np.isnan(calibrated) else np.fmax(calibrated, least), len(provided))
    return DayRiskAmounts(with_margin(maxima, means, provided, margin), margin)


def least_later_margin(margin: float, days: float) -> float:
    """The least that a margin may be so many days later; one below 0 is no bound."""
    return margin * (1 - DAILY_FALL) ** days if margin > 0 else np.nan


def with_margin(maxima: Floats, means: Floats, provided: Floats, margin: Floats | float) -> Floats:
    """The same with a margin that is given, for all or (n,), as (n,)."""
    base, spread, ceiling = expected_next_day(maxima, means, provided)
    return np.minimum(base + margin * spread, ceiling)


def outcomes(maxima: Floats, means: Floats, provided: Floats) -> Floats:
    """(peak - base) / spread of every back-tested day of every container, (n, days - 7) or (n, 0); NaN = no such."""
    scores = []
    for day in range(SHORT_DAYS, maxima.shape[1]):
        base, spread, _ = expected_next_day(maxima[:, :day], means[:, :day], provided)
        scores.append((maxima[:, day] - base) / spread)
    return np.stack(scores, axis=1) if scores else np.empty((len(maxima), 0))


def margin_for(scores: npt.NDArray[np.floating], risk: float) -> float:
    """The (n + 1)(1 - risk) th smallest score, the largest where there are fewer; NaN for too few."""
    ordered_scores = np.sort(scores[np.isfinite(scores)])
    if len(ordered_scores) < LEAST_OUTCOMES:
        return np.nan
    return float(ordered_scores[min(ceil((len(ordered_scores) + 1) * (1 - risk)), len(ordered_scores)) - 1])


def expected_next_day(maxima: Floats, means: Floats, provided: Floats) -> tuple[Floats, Floats, Floats]:
    """(base, spread, ceiling) for the day after the last column, (n,) each; NaN where too little is known."""
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
