"""The forecast of the next week of an aggregate, and the parts of its past: trend, daily and weekly pattern, the rest.

For few series (the cluster, the largest workloads), to explain and to show a week; decisions use the 24 hours of
`cotenant.base.usage.forecast`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from cotenant.base.identity import SeriesRef
from cotenant.base.resource import MeasuredResource
from cotenant.base.table import Column, Kind, Schema
from cotenant.base.tables.quantity import Sign
from cotenant.base.usage.usage import TimeGrid

Floats = npt.NDArray[np.float64]
RefT = TypeVar("RefT", bound=SeriesRef)

WEEK_HOURS: Final = 168


@dataclass(frozen=True, slots=True, eq=False)
class WeekDecomposition:
    """A decomposed history: observed = trend + daily + weekly + rest, hour by hour on `grid`, in the resource's unit.

    `weekly` is all zero if the history is too short for it. `daily_strength` and `weekly_strength` are the shares
    (0..1) of the variation around the trend that the pattern explains (Wang, Smith and Hyndman 2006).
    """

    grid: TimeGrid
    observed: Floats
    trend: Floats
    daily: Floats
    weekly: Floats
    rest: Floats
    daily_strength: float
    weekly_strength: float


@dataclass(frozen=True, slots=True, eq=False)
class Weeks(Generic[RefT]):
    """The forecast of n series' next week: quantiles of the hourly means, and their test on the last week.

    `quantiles` has the shape (n, WEEK_HOURS, len(LEVELS)). `relative_loss` is each series' mean quantile loss on the
    last week, divided by that of repeating the week before (< 1 is better); `covered` is the share of that week between
    quantiles 0.1 and 0.9. Both are NaN if the history is too short.
    """

    refs: tuple[RefT, ...]
    resource: MeasuredResource
    grid: TimeGrid
    quantiles: npt.NDArray[np.float32]
    relative_loss: Floats
    covered: Floats


WEEKS: Final = Schema(
    "weeks",
    (
        Column("scope", "Scope", Kind.TEXT, "cluster or workload."),
        Column("namespace", "Namespace", Kind.TEXT, "Namespace of a workload, else empty."),
        Column("kind", "Kind", Kind.TEXT, "Kind of a workload, else empty."),
        Column("name", "Name", Kind.TEXT, "Name of the cluster or workload."),
        Column("resource", "Resource", Kind.TEXT, "cpu (amounts in millicores) or memory (amounts in bytes)."),
        Column("relative_loss", "rel. loss", Kind.NUMBER, "Quantile loss on the last week / loss of repeating a week."),
        Column("covered", "In the band", Kind.RATIO, "Share of the last week's hours within the forecast's p10..p90."),
        Column("daily_strength", "Daily", Kind.RATIO, "Share of the variance that the daily pattern explains."),
        Column("weekly_strength", "Weekly", Kind.RATIO, "Share of the variance that the weekly pattern explains."),
        Column("start", "Start", Kind.TIME, "Start of the first forecast hour.", wide=True),
        Column("q10", "p10", Kind.LIST, "0.1 quantile of 168 hours; the first 24 as in table forecasts.", wide=True),
        Column("q50", "p50", Kind.LIST, "Median of 168 hours; the first 24 as in table forecasts.", wide=True),
        Column("q90", "p90", Kind.LIST, "0.9 quantile of 168 hours; the first 24 as in table forecasts.", wide=True),
        Column("past_start", "Past from", Kind.TIME, "Start of the first hour of the decomposition.", wide=True),
        Column("observed", "Observed", Kind.LIST, "Hourly means of past usage.", wide=True),
        Column("trend", "Trend", Kind.LIST, "Smoothed, without daily or weekly patterns.", wide=True, sign=Sign.EITHER),
        Column("daily", "Daily pattern", Kind.LIST, "Pattern by hour of the day.", wide=True, sign=Sign.EITHER),
        Column("weekly", "Weekly pattern", Kind.LIST, "Pattern by hour of the week.", wide=True, sign=Sign.EITHER),
        Column("rest", "Rest", Kind.LIST, "Observed usage minus trend and patterns.", wide=True, sign=Sign.EITHER),
    ),
    ("scope", "namespace", "kind", "name", "resource"),
)
"""One row per series that was taken apart."""
