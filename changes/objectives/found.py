"""Whether a measure that a service has can guard its changes, from its last week. Pure.

A guard compares equal spans before and after a change. It is of use where enough requests come that the p99 is one of
several, where the histogram can show a rise, and where harmless hours seldom look like harm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from cotenant.base.settings.sections.actions import ActionSettings
from cotenant.base.text import percent
from cotenant.changes.decide.regression_check import Compared, Measure, check_measure, measure_text
from cotenant.changes.model.judgement import RuleVerdict

Floats = npt.NDArray[np.float64]
LEAST_HOURS: Final = 24
"""Of measurement: a day has a peak and a valley."""
LEAST_REQUESTS_PER_HOUR: Final = 100
"""Of the median hour: of fewer, the slowest one in a hundred is none or one."""
MOST_UNREADABLE: Final = 0.1
"""Share of the hours in which the p99 may lie beyond the histogram's bounds."""
MOST_FAILED: Final = 0.5
"""Share of requests: where more than half always fail, the outcome is not that of a service that works."""
MOST_FALSE_ALARMS: Final = 0.2
"""Share of pairs of hours without a change: with more of them, a verdict says little."""


@dataclass(frozen=True, slots=True)
class ServiceWeek:
    """One convention's answers for a workload, a value for each hour, the oldest first; NaN where there is none.

    bounds_seconds: the finite upper bounds of the histogram's buckets.
    """

    source: str
    queries: Mapping[Measure, str]
    requests: Floats
    measured: Mapping[Measure, Floats]
    bounds_seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class FoundObjective:
    """A measure of a service that could guard its changes, or why it should not.

    latest, median, highest: of the hourly values, in seconds for a latency, else a share; None without any.
    requests_per_hour: of the median hour. false_alarms: share of pairs of neighbouring hours of the week, none of which
    had to do with a change, that would have counted as harm. reason: why it is of no use, "" where it is.
    """

    measure: Measure
    source: str
    query: str
    values: tuple[float | None, ...]
    latest: float | None
    median: float | None
    highest: float | None
    requests_per_hour: float | None
    false_alarms: float | None
    reason: str = ""


def decide_objectives(week: ServiceWeek, settings: ActionSettings) -> list[FoundObjective]:
    """Both measures of one convention, by the rules of a change's verdict."""
    return [_decide(measure, week, settings) for measure in week.queries]


def _decide(measure: Measure, week: ServiceWeek, settings: ActionSettings) -> FoundObjective:
    values, requests = week.measured[measure], week.requests
    known = values[np.isfinite(values)]
    alarms = false_alarm_ratio(measure, values, settings)
    return FoundObjective(
        measure,
        week.source,
        week.queries[measure],
        tuple(float(v) if np.isfinite(v) else None for v in values),
        float(known[-1]) if known.size else None,
        float(np.median(known)) if known.size else None,
        float(known.max()) if known.size else None,
        median_hourly_count(requests),
        alarms,
        _refusal(measure, week, alarms),
    )


def _refusal(measure: Measure, week: ServiceWeek, alarms: float | None) -> str:
    """Why the measure should guard nothing; "" where it may."""
    values = week.measured[measure]
    known = values[np.isfinite(values)]
    if refusal := _measurement_gap(measure, known, week.requests):
        return refusal
    if measure is Measure.LATENCY and (refusal := _unreadable(known, week.bounds_seconds)):
        return refusal
    if measure is Measure.ERRORS and float(np.median(known)) > MOST_FAILED:
        return "more than half of the requests fail in the median hour"
    if alarms is not None and alarms > MOST_FALSE_ALARMS:
        return f"it varies so much that {percent(alarms)} of the hours without a change would count as harm"
    return ""


def _measurement_gap(measure: Measure, known: Floats, requests: Floats) -> str:
    """Why too little was measured; "" where it is enough."""
    if not np.isfinite(requests[-2:]).any():
        return "no request was counted in the last two hours"
    if not known.size:
        return "the histogram has no buckets" if measure is Measure.LATENCY else "no outcome of requests was counted"
    if known.size < LEAST_HOURS:
        return f"measured for {known.size} hours, {LEAST_HOURS} are needed"
    served = median_hourly_count(requests) or 0.0
    enough = served >= LEAST_REQUESTS_PER_HOUR
    return "" if enough else f"{served:.0f} requests in the median hour, {LEAST_REQUESTS_PER_HOUR} are needed"


def median_hourly_count(requests: Floats) -> float | None:
    """Return the number of requests of the median hour that has a count; None without any."""
    return float(np.nanmedian(requests)) if np.isfinite(requests).any() else None


def _unreadable(p99: Floats, bounds_seconds: tuple[float, ...]) -> str:
    """Why the histogram's bounds cannot show a rise.

    Within the lowest bucket every duration looks alike, and beyond the highest bound the quantile is that bound.
    """
    if not bounds_seconds:
        return "the histogram's bounds are not known"
    low, high = min(bounds_seconds), max(bounds_seconds)
    if float(np.mean(p99 <= low)) > MOST_UNREADABLE:
        lowest = measure_text(Measure.LATENCY, low)
        return f"the p99 lies within the histogram's lowest bucket (up to {lowest}): a rise would not show"
    if float(np.mean(p99 >= high * (1 - 1e-9))) > MOST_UNREADABLE:
        highest = measure_text(Measure.LATENCY, high)
        return f"the p99 lies beyond the histogram's highest bound ({highest}): a rise would not show"
    return ""


def false_alarm_ratio(measure: Measure, values: Floats, settings: ActionSettings) -> float | None:
    """Return the share of pairs of neighbouring hours that the verdict's rule would call harm; None without a pair."""
    known = [float(value) if np.isfinite(value) else None for value in values]
    rules = [check_measure(Compared(measure, *pair), settings).verdict for pair in pairwise(known) if None not in pair]
    decided = [verdict is RuleVerdict.WORSE for verdict in rules if verdict is not RuleVerdict.NO_DATA]
    return sum(decided) / len(decided) if decided else None
