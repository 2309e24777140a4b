"""Forecasts one group of series, from what an earlier analysis learned, and returns what is learned anew. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.base.usage.forecast import Forecasts
from cotenant.base.usage.portrait import Portraits
from cotenant.base.usage.usage import Usage
from cotenant.forecasting.engine import forecast_and_learn
from cotenant.forecasting.learned import Learned
from cotenant.pipeline import learned
from cotenant.profiler import portrait
from cotenant.settings import Settings

SERIES_AT_ONCE: Final = 1000
"""Most nodes whose forecasts are learned together, by one worker."""


@dataclass(frozen=True, slots=True, eq=False)
class SeriesTask:
    """A group of series of one resource to forecast; `ceiling` is the most that each can use, (n,), in its unit."""

    group: str
    usage: Usage[Any] = field(repr=False)
    settings: Settings = field(repr=False)
    before: Learned | None = field(default=None, repr=False)
    allocatable: npt.NDArray[np.float64] | None = None
    portraits: Portraits[Any] | None = field(default=None, repr=False)
    ceiling: npt.NDArray[np.float64] | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"forecasts of {self.group}"


@dataclass(frozen=True, slots=True, eq=False)
class GroupForecast:
    """Forecasts of a group of series by a fit to usage up to `since_seconds`; `news`: the fit if it is a new one."""

    group: str
    forecasts: Forecasts[Any]
    news: Learned | None
    since_seconds: int | None


def group_name(kind: str, usage: Usage[Any], number: int | None = None) -> str:
    """Return the name of a group of series; what its forecasts learn is stored under this name."""
    assert usage.resource is not None
    return f"{kind}-{usage.resource.value}" + ("" if number is None else f"-{number:05d}")


def portraits_of(usage: Usage[Any], settings: Settings) -> Portraits[Any]:
    """Return usage portraits (distribution, weekly profile) of totals, one row per series, start-up phases included."""
    return portrait.build(usage.refs, np.arange(len(usage.refs)), usage, settings.portrait)


def forecast_series(task: SeriesTask) -> GroupForecast:
    """Return the forecasts of a group of series; portraits are computed if the task has none."""
    portraits = portraits_of(task.usage, task.settings) if task.portraits is None else task.portraits
    own = learned.settings_of(task.group, task.settings.forecasting)
    forecasts, now = forecast_and_learn(task.usage, portraits, own, task.before, task.allocatable, task.ceiling)
    news = None if now is task.before else now
    return GroupForecast(task.group, forecasts, news, now.end_seconds if now.names else None)


def parts(kind: str, usage: Usage[Any]) -> Iterator[tuple[str, Usage[Any]]]:
    """Yield (name, series) of groups of SERIES_AT_ONCE series, in order; without series one empty group."""
    for number, first in enumerate(range(0, max(1, len(usage.refs)), SERIES_AT_ONCE)):
        rows = slice(first, first + SERIES_AT_ONCE)
        yield group_name(kind, usage, number), replace(usage, refs=usage.refs[rows], values=usage.values[rows])
