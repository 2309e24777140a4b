"""What a recording has still to come, and when: by the lengths of history that the analysis goes by. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from cotenant.base.usage.usage import DAY_SECONDS, FIVE_MINUTES_SECONDS
from cotenant.forecasting.settings import ForecastingSettings, NodePeakSettings
from cotenant.recommender.settings import CotenantSettings

STORED_SECONDS: Final = 2 * FIVE_MINUTES_SECONDS
"""The sample that ends a length is a slot's: it has to pass, and is stored within another one."""


@dataclass(frozen=True, slots=True)
class ComingResult:
    """A result that appears with the first analysis from a moment on, Unix seconds."""

    what: str
    days: float
    at_seconds: float


RESULTS: Final = (
    ("first recommendations", CotenantSettings().minimum_days),
    ("forecasts", float(ForecastingSettings().minimum_days)),
    ("nodes' own peaks", float(NodePeakSettings().minimum_days)),
)
"""Results and the days of history that each needs."""


def moment_of(since_seconds: float, days: float) -> float:
    """Return from when on a history that began at a moment is so many days long in the store, a full five minutes."""
    first_slot = math.floor(since_seconds / FIVE_MINUTES_SECONDS) * FIVE_MINUTES_SECONDS
    return first_slot + FIVE_MINUTES_SECONDS + days * DAY_SECONDS + STORED_SECONDS


def coming_results(since_seconds: float, now_seconds: float) -> list[ComingResult]:
    """Return the results that a history since a moment is still too short for, soonest first."""
    dated = [ComingResult(what, days, moment_of(since_seconds, days)) for what, days in RESULTS]
    return [result for result in dated if result.at_seconds > now_seconds]


def coming_sentence(since_seconds: float, now_seconds: float) -> str:
    """Say it in one line; "" where nothing is to come: `first recommendations from 2026-11-27 10:15 UTC, ...`."""
    dated = [
        f"{result.what} from {datetime.fromtimestamp(result.at_seconds, UTC):%Y-%m-%d %H:%M} UTC"
        for result in coming_results(since_seconds, now_seconds)
    ]
    return ", ".join(dated)
