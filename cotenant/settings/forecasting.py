"""Settings of the forecasts: back-tests, selection, peaks and windows."""

from __future__ import annotations

from typing import Annotated

from cotenant.settings.base import Section, setting


class ForecastingSettings(Section, frozen=True):
    """How the next 24 hours are forecast from a series' own past."""

    history_days: Annotated[int, setting("History that a forecast looks at.", unit="days", ge=2, le=60)] = 14
    minimum_days: Annotated[
        float,
        setting("History below which the portrait's quantiles stand in for a forecast.", unit="days", ge=1, le=28),
    ] = 2.0
    stale_hours: Annotated[
        float, setting("Silence after which the portrait's quantiles stand in.", unit="hours", ge=1, le=168)
    ] = 24.0
    origins: Annotated[
        int, setting("Daily back-tests behind the choice of a model, when history allows.", unit="days", ge=1, le=28)
    ] = 5
    origin_decay: Annotated[
        float, setting("Weight of a back-test relative to the one a day later.", unit="ratio", gt=0, le=1)
    ] = 0.8
    prior_days: Annotated[
        float, setting("Back-tests that the mean over all series counts for in each series' choice.", unit="days", ge=0)
    ] = 2.0
    average_within: Annotated[
        float,
        setting("The two best models are averaged when the second's loss is at most this share above the best.", ge=0),
    ] = 0.1
    peak_day_decay: Annotated[
        float, setting("Weight of a day's maximum relative to the next day's.", unit="ratio", gt=0, le=1)
    ] = 0.9
    peak_prior_days: Annotated[
        float, setting("Days that the other series' peak errors count for in each series'.", unit="days", ge=0)
    ] = 8.0
    peak_amplitude: Annotated[
        float, setting("(p95 - p5) / mean of the path at or below which there is no peak.", unit="ratio", ge=0, le=5)
    ] = 0.3
    window_minutes: Annotated[
        int, setting("Shortest peak or valley window.", unit="minutes", ge=30, le=720, multiple_of=30)
    ] = 60
