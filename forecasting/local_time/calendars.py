"""Public holidays and the operator's own events, from the settings. Pure.

A public holiday, or an event without a factor, is a day of rest: its slots are forecast from past Sundays and days of
rest, slot by slot, and ordinary days do not learn from it. An event with a factor is an ordinary time whose usage is
multiplied by the factor. Days are those of the settings' time zone; holidays come from the library `holidays`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

from cotenant.base.errors import SettingsError
from cotenant.base.usage.usage import Flags, FloatMatrix, TimeGrid
from cotenant.forecasting.base import LEVEL_ARRAY, Array, in_order
from cotenant.forecasting.empirical import row_quantiles
from cotenant.forecasting.local_time.wall_clock import WallClock
from cotenant.forecasting.settings import ForecastingSettings

SUNDAY: Final = 6
REACH: Final = 2
"""Neighbouring slots that speak for a slot of a day of rest: there are few such days."""
FEWEST: Final = 3
"""Values behind the quantiles of a slot, or the ordinary forecast stays."""


@dataclass(frozen=True, slots=True, eq=False)
class Calendar:
    """The days of rest and the event factor of each slot, past and future.

    `off` (holidays and events without a factor) and `sunday`: flags, (grid.size + horizon,); `factor`: 1 on ordinary
    slots.
    """

    grid: TimeGrid
    off: Flags
    sunday: Flags
    factor: npt.NDArray[np.float32]

    @classmethod
    def of(cls, grid: TimeGrid, horizon: int, settings: ForecastingSettings) -> Calendar:
        """Return the calendar of a history grid and of the horizon after it.

        Raises SettingsError for a country that the library `holidays` does not know.
        """
        size = grid.size + horizon
        times = grid.start_seconds + grid.step_seconds * np.arange(size)
        off, factor = np.zeros(size, dtype=bool), np.ones(size, dtype=np.float32)
        if not settings.holidays and not settings.events:
            return cls(grid, off, off, factor)
        zone = ZoneInfo(settings.time_zone)
        days = [datetime.fromtimestamp(int(second), zone).date() for second in times]
        public = _public(settings.holidays, days)
        off |= np.array([day in public for day in days], dtype=bool)
        for event in settings.events:
            first, last = (date.fromisoformat(text) for text in (event.first_day, event.last_day or event.first_day))
            inside = (times >= _midnight(first, zone)) & (times < _midnight(last + timedelta(days=1), zone))
            if event.factor is None:
                off |= inside
            else:
                factor[inside] *= event.factor
        return cls(grid, off, np.array([day.weekday() == SUNDAY for day in days], dtype=bool), factor)

    @property
    def plain(self) -> bool:
        """True if every slot is ordinary: no day of rest and no event factor."""
        return not self.off.any() and bool((self.factor == 1).all())

    @property
    def rests(self) -> bool:
        """True if more than half of the future slots are on days of rest."""
        return bool(self.off[self.grid.size :].mean() > 0.5) if len(self.off) > self.grid.size else False

    @property
    def busiest(self) -> float:
        """The largest future event factor, at least 1, by which the day's highest value is scaled."""
        return max(1.0, float(self.factor[self.grid.size :].max(initial=1.0)))

    def ordinary(self, history: FloatMatrix) -> FloatMatrix:
        """Return the history (n, grid.size) with gaps on days of rest, and events divided by their factor."""
        return self._usual_level(history, rested=self.off)

    def like_ahead(self, history: FloatMatrix) -> FloatMatrix:
        """Return the history, (n, k values for each slot of the grid), adjusted to learn the day ahead's highest value.

        Days of rest become gaps, unless the day ahead is one itself; slots of events are divided by the event's factor.
        """
        return self._usual_level(history, rested=np.zeros_like(self.off) if self.rests else self.off)

    def _usual_level(self, history: FloatMatrix, rested: Flags) -> FloatMatrix:
        """Return history with gaps in `rested` slots, (grid.size + horizon,), and others divided by their factor."""
        if self.plain or not self.grid.size:
            return history
        past, each = slice(0, self.grid.size), history.shape[1] // self.grid.size
        gaps, factor = np.repeat(rested[past], each), np.repeat(self.factor[past], each)
        adjusted: FloatMatrix = np.where(gaps, np.float32(np.nan), history / factor)
        return adjusted

    def special(self, path: Array, history: FloatMatrix, clock: WallClock) -> Array:
        """Return the path (n, horizon, L) with event slots scaled by their factor, and new quantiles on days of rest.

        The new quantiles are of values on past Sundays and days of rest at the same local time, where enough are known.
        `clock` is that of the same grid and horizon.
        """
        if self.plain:
            return path
        ahead = slice(self.grid.size, None)
        adjusted = path * self.factor[ahead][None, :, None]
        rest = np.flatnonzero(self.off[ahead])
        if rest.size:
            # Quantiles of coming slots from past days of rest at that local time, (n, slots, L); NaN: too few known.
            day, size = self.grid.slots_per_day, self.grid.size
            idle = np.flatnonzero(self.off[:size] | self.sunday[:size])
            like = np.full((len(history), len(rest), len(LEVEL_ARRAY)), np.nan, dtype=np.float32)
            for index, slot in enumerate(rest.tolist()):
                phase = (idle + clock.past[idle] - (size + slot + clock.ahead[slot])) % day
                near = history[:, idle[np.minimum(phase, day - phase) <= REACH]]
                enough = (~np.isnan(near)).sum(axis=1) >= FEWEST
                like[enough, index] = row_quantiles(near[enough], LEVEL_ARRAY)
            adjusted[:, rest] = np.where(np.isnan(like), adjusted[:, rest], like)
        return in_order(adjusted)


def _public(country: str, days: Sequence[date]) -> frozenset[date]:
    """Return the public holidays of all years in `days`, by the library `holidays`; none without a country.

    `country` is an ISO 3166 code, with an optional part after a hyphen (DE, DE-BY); SettingsError if it is not known.
    """
    if not country or not days:
        return frozenset()
    from holidays import country_holidays

    code, _, part = country.partition("-")
    try:
        rest_days = country_holidays(code, subdiv=part or None, years=range(min(days).year, max(days).year + 1))
    except NotImplementedError as error:
        raise SettingsError(
            f"forecasting.holidays: {country!r} is not known: {error}",
            fix="Give a country such as DE, or one with its part such as DE-BY or US-CA.",
        ) from error
    return frozenset(rest_days)


def _midnight(day: date, zone: ZoneInfo) -> float:
    return datetime(day.year, day.month, day.day, tzinfo=zone).astimezone(UTC).timestamp()
