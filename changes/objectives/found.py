"""Decide by its last week whether a metric of a service can verify the service's changes. Pure.

Verification compares equal times before and after a change. A metric is usable if there are enough requests for a p99,
if the histogram can show a rise, and if harmless hours seldom look like harm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from cotenant.base.identity import WorkloadRef
from cotenant.base.text import percent
from cotenant.changes.decide.regression_check import Compared, Measure, Objective, check_measure, measure_text
from cotenant.changes.model.judgement import RuleResult, RuleVerdict
from cotenant.changes.model.settings import ActionSettings

Floats = npt.NDArray[np.float64]
LEAST_HOURS: Final = 24
"""Least hours with samples: a day has a peak and a valley."""
LEAST_REQUESTS_PER_HOUR: Final = 100
"""Least requests in the median hour: of fewer, the slowest one in a hundred is none or one."""
MOST_UNREADABLE: Final = 0.1
"""Largest share of hours in which the p99 may be beyond the histogram's bounds."""
MOST_FAILED: Final = 0.5
"""Largest share of failed requests: if more than half always fail, failures do not indicate harm."""
TOLERANCE: Final = 1e-6
"""Tolerance of a share, because the extrapolated rates of two counters differ."""
MOST_FALSE_ALARMS: Final = 0.2
"""Largest share of pairs of hours without a change that look like harm: with more, a verdict says little."""


@dataclass(frozen=True, slots=True)
class ServiceWeek:
    """A service's hourly requests and measures in a week, oldest first, as one proxy or library (`source`) counts them.

    NaN is no value. `bounds_seconds` are the finite upper bounds of the buckets of `source`'s latency histogram.
    """

    source: str
    queries: Mapping[Measure, str]
    requests: Floats
    measured: Mapping[Measure, Floats]
    bounds_seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class ObjectiveWeek:
    """An objective's value for each hour of a week, the oldest first; NaN is no value.

    `exists` is true if the labels that identify bad events exist.
    """

    objective: Objective
    values: Floats
    exists: bool = True


@dataclass(frozen=True, slots=True)
class FoundObjective:
    """A metric of a service that could verify its changes, or the reason why it should not.

    `latest`, `median` and `highest` are of the hourly values, in seconds for a latency, else as a share;
    `requests_per_hour` is the median over the hours. `false_alarms` is the share of hours that would count as harm if
    they were compared with the hour before. `reason` says why the metric cannot be used, or "". `ceiling` is the
    objective's bound, `period` its period or "". `is_used` is true if the metric verifies changes already.
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
    ceiling: float | None = None
    period: str = ""
    is_used: bool = False


@dataclass(frozen=True, slots=True)
class Guards:
    """The metric queries that verify a workload's changes now, and the found queries that could verify them.

    `refused` are queries in the workload's annotations that are not used; `gaps` says what could not be searched.
    """

    workload: WorkloadRef
    now: Mapping[Measure, str]
    refused: Sequence[Compared]
    found: Sequence[FoundObjective]
    gaps: Sequence[str] = ()


def decide_objectives(week: ServiceWeek, settings: ActionSettings) -> list[FoundObjective]:
    """Decide, by a service's hours of one week, whether its latency and failed requests can verify its changes."""
    objectives = []
    for measure, query in week.queries.items():
        values = week.measured[measure]
        alarms = false_alarm_ratio(measure, values, settings)
        refusal, served = _refusal(measure, week, alarms), median_hourly_count(week.requests)
        objectives.append(FoundObjective(measure, week.source, query, *_figures(values), served, alarms, refusal))
    return objectives


def decide_objective(week: ObjectiveWeek, settings: ActionSettings) -> FoundObjective:
    """Decide, by the hours of one week, whether an objective that somebody has written can verify changes."""
    objective, values = week.objective, week.values
    alarms = false_alarm_ratio(objective.measure, values, settings, objective.ceiling)
    refusal = _objective_refusal(week, values[np.isfinite(values)], alarms)
    return FoundObjective(
        objective.measure, objective.name, objective.query, *_figures(values), None, alarms, refusal, objective.ceiling
    )


def _figures(values: Floats) -> tuple[tuple[float | None, ...], float | None, float | None, float | None]:
    """Return the hourly values with their latest, median and highest; None without values."""
    finite = values[np.isfinite(values)]
    hourly = tuple(float(value) if np.isfinite(value) else None for value in values)
    if not finite.size:
        return hourly, None, None, None
    return hourly, float(finite[-1]), float(np.median(finite)), float(finite.max())


def _objective_refusal(week: ObjectiveWeek, finite: Floats, alarms: float | None) -> str:
    """Return why an objective should not verify changes; "" if it may."""
    measure = week.objective.measure
    if not finite.size:
        return "the objective's query had no answer in the last week"
    if not np.isfinite(week.values[-2:]).any():
        return "the objective's query had no answer in the last two hours"
    if finite.size < LEAST_HOURS:
        return f"the metric was measured for {finite.size} hours; {LEAST_HOURS} are needed"
    if measure is Measure.ERRORS and (float(finite.min()) < -TOLERANCE or float(finite.max()) > 1 + TOLERANCE):
        return "the query's values are not shares: they are outside 0 to 1"
    if not week.exists:
        return "no series has the labels by which the query selects bad events"
    return _useless(measure, finite, alarms)


def _useless(measure: Measure, finite: Floats, alarms: float | None) -> str:
    if measure is Measure.ERRORS and float(np.median(finite)) > MOST_FAILED:
        return "more than half of the requests fail in the median hour"
    if alarms is not None and alarms > MOST_FALSE_ALARMS:
        return f"the metric varies so much that {percent(alarms)} of the hours without a change would count as harm"
    return ""


def _refusal(measure: Measure, week: ServiceWeek, alarms: float | None) -> str:
    """Return why the measure should not verify changes; "" if it may."""
    values, requests = week.measured[measure], week.requests
    finite = values[np.isfinite(values)]
    if not np.isfinite(requests[-2:]).any():
        return "no request was counted in the last two hours"
    if not finite.size:
        return "the histogram has no buckets" if measure is Measure.LATENCY else "no outcome of requests was recorded"
    if finite.size < LEAST_HOURS:
        return f"the metric was measured for {finite.size} hours; {LEAST_HOURS} are needed"
    if (served := median_hourly_count(requests) or 0.0) < LEAST_REQUESTS_PER_HOUR:
        return f"{served:.0f} requests in the median hour, {LEAST_REQUESTS_PER_HOUR} are needed"
    if measure is Measure.LATENCY and (refusal := _unreadable(finite, week.bounds_seconds)):
        return refusal
    return _useless(measure, finite, alarms)


def median_hourly_count(requests: Floats) -> float | None:
    """Return the requests per hour, as the median of the hours with a count; None if none has one."""
    return float(np.nanmedian(requests)) if np.isfinite(requests).any() else None


def _unreadable(p99: Floats, bounds_seconds: tuple[float, ...]) -> str:
    """Return why the histogram's bounds cannot show a rise; "" if they can.

    Below the lowest bound all durations look alike, and above the highest one the quantile is that bound.
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


def false_alarm_ratio(
    measure: Measure, values: Floats, settings: ActionSettings, ceiling: float | None = None
) -> float | None:
    """Return the share of pairs of neighbouring hours that the rule would call harm; None without a pair."""
    rules = [rule.verdict for rule in hourly_rules(measure, values, settings, ceiling) if rule is not None]
    decided = [verdict is RuleVerdict.WORSE for verdict in rules if verdict is not RuleVerdict.NO_DATA]
    return sum(decided) / len(decided) if decided else None


def hourly_rules(
    measure: Measure, values: Floats, settings: ActionSettings, ceiling: float | None = None
) -> list[RuleResult | None]:
    """Return the rule's result for each hour compared with the hour before; None if one of them has no value."""
    hourly = [float(value) if np.isfinite(value) else None for value in values]
    pairs = [Compared(measure, *pair, ceiling=ceiling) if None not in pair else None for pair in pairwise(hourly)]
    return [None, *(None if pair is None else check_measure(pair, settings) for pair in pairs)]


def alarming_hours_count(rules: Sequence[RuleResult | None]) -> int:
    """Return the number of hours whose result in `hourly_rules` is harm."""
    return sum(rule is not None and rule.verdict is RuleVerdict.WORSE for rule in rules)
