"""Settings of forecasts (back-tests, selection, peaks, windows) and of the calibrated 24-hour peak of nodes."""

from __future__ import annotations

from datetime import date
from typing import Annotated
from zoneinfo import ZoneInfo

import msgspec

from cotenant.base.resource import Resource
from cotenant.base.settings.base import Section, setting


class CalendarEvent(Section, frozen=True):
    """Days with unusual usage that the operator knows beforehand: a sale, a company holiday, a planned freeze."""

    name: str
    first_day: str
    """YYYY-MM-DD, in the settings' time zone."""
    last_day: str = ""
    """Inclusive; empty = the first day alone."""
    factor: Annotated[float, msgspec.Meta(gt=0, le=100)] | None = None
    """Usage relative to an ordinary day; none = a day of rest, as a public holiday."""

    def __post_init__(self) -> None:
        """Raise ValueError for an invalid date, or an end before the start."""
        first = date.fromisoformat(self.first_day)
        if self.last_day and date.fromisoformat(self.last_day) < first:
            raise ValueError(f"event {self.name!r} ends on {self.last_day}, before {self.first_day}")


class ForecastingSettings(Section, frozen=True):
    """The settings for forecasting the next 24 hours of a series from its own history."""

    plugins: Annotated[
        list[str],
        setting(
            "Installed forecasters (entry points of group cotenant.forecasters) that compete with the built-in ones.",
            when="a forecaster of your own is installed",
        ),
    ] = msgspec.field(default_factory=list)
    time_zone: Annotated[
        str,
        setting(
            "IANA time zone whose days the usage follows; its daylight saving time shifts the daily pattern.",
            when="most users of the workloads live in another time zone",
            min_length=1,
        ),
    ] = "UTC"
    holidays: Annotated[
        str,
        setting(
            "Country, or part of a country, whose public holidays are days of rest: DE, DE-BY, US-CA; empty = none.",
            when="usage falls on public holidays",
            pattern="^([A-Z]{2}(-[A-Za-z0-9]{1,6})?)?$",
        ),
    ] = ""
    events: Annotated[
        list[CalendarEvent],
        setting(
            "Days with unusual usage: name, first_day, last_day, and factor (without a factor they are days of rest).",
            when="a sale, a freeze or a company holiday is coming",
        ),
    ] = msgspec.field(default_factory=list)
    history_days: int = 14
    """Days of history that a forecast reads. Two weeks have each weekday twice; profiler.window_days keeps as many."""
    minimum_days: float = 2.0
    """Days of history below which the portrait's quantiles replace a forecast. Two days are the least with which the
    pattern of one day can be tested on another.
    """
    origins: Annotated[
        int,
        setting(
            "Daily back-tests that decide the weights of the models; fewer if the history is shorter.",
            when="scans take too long; fewer make forecasts a little worse",
            unit="days",
            ge=1,
            le=28,
        ),
    ] = 7
    prior_days: float = 2.0
    """Number of back-tests as which the mean over all series counts in the weights of each series. Its effect inside
    the weights of the models cannot be judged from outside.
    """
    relearn_hours: float = 12.0
    """Hours for which a scan reuses the results of earlier back-tests; 0 = back-tests in every scan. Half a day,
    because the models' weights change from day to day, not from scan to scan.
    """
    booster_rows: Annotated[
        int,
        setting(
            "Maximum number of rows to train the gradient booster of one shard on; 0 turns it off.",
            when="scans take too much memory or time",
            ge=0,
            le=1_000_000,
        ),
    ] = 12_000
    booster_minimum_series: int = 50
    """Number of series below which no booster is trained. A model over all series needs many of them to learn what a
    single series does not show.
    """
    coverage_step: float = 0.2
    """Step size of adaptive conformal inference: by how much a series that exceeds its upper quantiles too often raises
    them. The effect of this value cannot be judged from outside.
    """
    cluster_peak_share: float = 0.03
    """Least (p95 - p5) / allocatable of the cluster's totals on days that repeat for which a peak is expected. A
    smaller daily rise is not worth an announcement.
    """

    week_workloads: int = 10
    """Number of workloads, those with the highest CPU usage, that get a week's forecast and a decomposition into trend
    and seasons. A page shows that many; the number limits the scan's time.
    """

    def __post_init__(self) -> None:
        """Raise ValueError for an unknown time zone."""
        try:
            ZoneInfo(self.time_zone)
        except (KeyError, OSError, ValueError) as error:
            raise ValueError(f"time_zone: {self.time_zone!r} is not an IANA zone, such as Europe/Berlin") from error


class NodePeakSettings(Section, frozen=True):
    """The settings of nodes' peak usage, at a risk that back-tests confirm."""

    risk_percent: Annotated[
        float,
        setting(
            "Share of decisions whose forecast CPU peak may be exceeded within 24 hours: the mean over all nodes and "
            "months, one decision a node every six hours. Nodes exceed their peaks together: most of a month's share "
            "occurs in one event, a day on which a third to a half of the nodes exceed theirs; other weeks have none.",
            when="batch work should get more, or less, of the nodes' CPU",
            unit="percent",
            gt=0,
            le=50,
        ),
    ] = 1.0
    memory_risk_percent: Annotated[
        float,
        setting(
            "Share of decisions whose forecast memory peak may be exceeded in 24 hours, which means evictions.",
            when="there are too many evictions for memory, or memory is idle",
            unit="percent",
            gt=0,
            le=50,
        ),
    ] = 0.5
    calibration_days: int = 90
    """Most days of past decisions on which the rule is tested: profiler.window_days after a first scan, later more,
    because node totals are kept from scan to scan (profiler.keep_days). Three months of decisions resolve a risk of one
    percent.
    """
    prior_days: float = 30.0
    """Number of days of a cluster's own past decisions at which they count as much as the built-in constants. A day
    counts once, however many nodes it has, because the nodes of a cluster exceed their peaks together.
    """
    minimum_days: int = 7
    """Days of record below which a node gets Koordinator's formula. Less than a week does not show every weekday."""

    def risk(self, resource: Resource) -> float:
        """Return the risk for a resource as a share, 0..1."""
        return (self.risk_percent if resource is Resource.CPU else self.memory_risk_percent) / 100
