"""Settings of the portraits: how fast they forget, and how a pattern is recognised."""

from __future__ import annotations

from typing import Annotated

from cotenant.core.settings.base import Section, setting


class PortraitSettings(Section, frozen=True):
    """How usage history becomes the fixed-size memory of a series."""

    half_life_hours: Annotated[
        int, setting("Time after which a sample weighs half in the percentiles.", unit="hours", ge=1, le=8760)
    ] = 24
    days_kept: Annotated[
        int, setting("Daily maxima and means kept; the maximum forgets older days.", unit="days", ge=7, le=366)
    ] = 35
    startup_minutes: Annotated[
        int,
        setting("First minutes of a pod's life, kept apart from its steady usage.", unit="minutes", ge=0, le=240),
    ] = 10
    pattern_days: Annotated[float, setting("History below which the pattern is unknown.", unit="days", ge=1, le=28)] = (
        2.0
    )
    idle_millicores: Annotated[
        float, setting("CPU usage whose 95th percentile stays at or below this is idle.", unit="millicores", ge=0)
    ] = 10.0
    flat_amplitude: Annotated[
        float, setting("Usage with (p95 - p5) / mean at or below this is flat.", unit="ratio", gt=0, le=2)
    ] = 0.3
    trend_rise: Annotated[
        float,
        setting("Change of the daily mean over the kept days, relative to the mean, that makes a trend.", gt=0, le=10),
    ] = 0.3
    trend_fit: Annotated[
        float, setting("Share of the daily means' variance that a straight line must explain.", gt=0, le=1)
    ] = 0.7
    season_share: Annotated[
        float, setting("Share of variance that the time of day must explain to be daily.", gt=0, le=1)
    ] = 0.3
    week_share: Annotated[
        float, setting("Further share of variance that the weekend must explain to be weekly.", gt=0, le=1)
    ] = 0.1
