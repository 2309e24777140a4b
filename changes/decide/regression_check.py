"""Check whether measures got worse with a change: before against after, each with the allowed rise. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from cotenant.base.text import percent
from cotenant.changes.model.judgement import RuleResult, RuleUnit, RuleVerdict
from cotenant.changes.model.settings import ActionSettings

MOST_THROTTLED_RISE: Final = 0.1
"""Rise of the share of CPU periods that were throttled, before against after, that counts as a regression. Ten
percentage points more periods throttled are felt as latency."""
MOST_PRESSURE_RISE: Final = 0.1
"""Rise of the share of time that a container waited for a CPU (PSI) that counts as a regression. Ten percentage points
more time waiting for a CPU are felt as latency."""
MOST_ERROR_RISE: Final = 0.01
"""Rise of the share of failed requests that counts as a regression. One request more in a hundred is a tenth of a usual
error budget of a month (99.9 %) in three hours."""
MOST_RESTARTS: Final = 0
"""Container restarts since the change above which it counts as a regression. Zero: a restart after a change counts
against the change."""


class Measure(StrEnum):
    """The measures that are compared: shares of time, periods or requests, 0 to 1, and a latency in seconds."""

    THROTTLED = "throttled CPU periods"
    """cAdvisor's container_cpu_cfs_throttled_periods_total of container_cpu_cfs_periods_total."""
    PRESSURE = "time waiting for a CPU (PSI)"
    """cAdvisor's container_pressure_cpu_waiting_seconds_total."""
    LATENCY = "p99 latency"
    """The result of the workload's query, or else of the query in the settings."""
    ERRORS = "failed requests"
    """The result of the workload's query."""


QUERIED: Final = (Measure.LATENCY, Measure.ERRORS)
"""Measures that need a configured query."""


MOST_RISES: Final = {
    Measure.THROTTLED: MOST_THROTTLED_RISE,
    Measure.PRESSURE: MOST_PRESSURE_RISE,
    Measure.ERRORS: MOST_ERROR_RISE,
}
"""The largest allowed rise of each share."""
NO_SOURCE: Final = "no metric source is configured"
ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Objective:
    """A measure that verifies changes, and the PromQL query of its value, with variables such as $window.

    `name` says whose objective it is, "" for the workload's annotation or the setting. `ceiling` is the highest allowed
    value, in seconds or as a share. `exists` is a query with an answer only if the labels of bad events exist, "" if
    not needed. If `needs_week`, the week before the change must show that the measure can detect harm.
    """

    measure: Measure
    query: str
    name: str = ""
    ceiling: float | None = None
    exists: str = ""
    needs_week: bool = False

    @property
    def rule(self) -> str:
        """The name of the objective's rule: the measure, and whose objective it is."""
        return rule_name(self.measure, self.name)


def rule_name(measure: Measure, name: str) -> str:
    """Return the name of a measure's rule: "failed requests", "failed requests (Sloth shop/web: availability)"."""
    return f"{measure} ({name})" if name else str(measure)


@dataclass(frozen=True, slots=True)
class Compared:
    """A measure of one workload's pods in equally long times before and after a change; None is no sample.

    `error` is the source's message if it did not answer. `name` and `ceiling` are those of the objective.
    """

    measure: Measure
    before: float | None
    after: float | None
    error: str = ""
    name: str = ""
    ceiling: float | None = None

    @property
    def rule(self) -> str:
        """The name of the measure's rule."""
        return rule_name(self.measure, self.name)

    @property
    def words(self) -> str:
        """The comparison of the measure before and after the change, as text for people."""
        if self.after is None:
            return f"{self.rule}: {self.error or 'no samples'}"
        before = "no samples" if self.before is None else measure_text(self.measure, self.before)
        return f"{self.rule} {before} -> {measure_text(self.measure, self.after)}"


def measure_text(measure: Measure, value: float) -> str:
    """Return a measure's value with its unit, such as "120 ms" or "5.0 %"; `value` is in seconds or a share 0 to 1."""
    if measure is not Measure.LATENCY:
        return percent(value, 1)
    return f"{1000 * value:.3g} ms" if value < 0.9995 else f"{1000 * value:,.0f} ms"  # never 1e+03


def regression_results(
    comparisons: Sequence[Compared], settings: ActionSettings, queried: Collection[Measure | Objective] = ()
) -> list[RuleResult]:
    """Return the results of rules: one for each cAdvisor measure, each of `queried`, and each compared objective.

    `queried` are the measures and objectives with a configured query. A result without a comparison is NO_DATA.
    """
    by_rule = {comparison.rule: comparison for comparison in comparisons}
    measures = {str(m): m for m in Measure if m in queried or m not in QUERIED}
    measures |= {objective.rule: objective.measure for objective in queried if isinstance(objective, Objective)}
    measures |= {comparison.rule: comparison.measure for comparison in comparisons if comparison.name}
    silent = "no samples" if comparisons else NO_SOURCE
    return [
        check_measure(by_rule[rule], settings)
        if rule in by_rule
        else RuleResult(rule, RuleVerdict.NO_DATA, _unit(measure), words=f"{rule}: {silent}")
        for rule, measure in measures.items()
    ]


def unanswered_query_reason(rules: Iterable[RuleResult]) -> str:
    """Return why a configured query could not be compared, as text; "" if all were compared."""
    silent = (rule for rule in rules if rule.verdict is RuleVerdict.NO_DATA and rule.rule.startswith(QUERIED))
    return next((rule.words for rule in silent), "")


def said(comparisons: Sequence[Compared]) -> str:
    """Return the comparisons as one line; without any, the line says that throttling and pressure were not compared."""
    summary = "; ".join(comparison.words for comparison in comparisons)
    return summary or f"throttling and pressure were not compared: {NO_SOURCE}"


def check_measure(comparison: Compared, settings: ActionSettings) -> RuleResult:
    """Check a measure against its bound: latency may rise by a factor, the others by an absolute share.

    If there is a ceiling that was kept before or is kept now, the ceiling is the bound. The result is NO_DATA without a
    value after the change, and for a configured query without a value before it, unless the ceiling decides.
    """
    ceiling, before, after = comparison.ceiling, comparison.before, comparison.after
    if after is None:
        unit = _unit(comparison.measure)
        return RuleResult(comparison.rule, RuleVerdict.NO_DATA, unit, before, words=comparison.words)
    # A ceiling decides that is kept now, or was before, so that the change may have broken it.
    if ceiling is not None and min(after, after if before is None else before) <= ceiling + ROUNDING:
        return _against(comparison, ceiling, f"more than the objective of {measure_text(comparison.measure, ceiling)}")
    if comparison.measure is Measure.LATENCY:
        if not before or before < 0:
            return _nothing_before(comparison)
        factor = settings.most_latency_factor
        return _against(comparison, before * factor, f"more than {factor:g} times as long")
    if comparison.measure is Measure.ERRORS and before is None:
        return _nothing_before(comparison)
    allowed = MOST_RISES[comparison.measure]
    # Without a sample before, what is there afterwards counts as the rise.
    return _against(comparison, (before or 0.0) + allowed, f"a rise of more than {percent(allowed)}")


def _nothing_before(comparison: Compared) -> RuleResult:
    unit, summary = _unit(comparison.measure), f"{comparison.words}: no value from before the change to compare with"
    return RuleResult(comparison.rule, RuleVerdict.NO_DATA, unit, comparison.before, comparison.after, words=summary)


def _against(comparison: Compared, most: float, beyond: str) -> RuleResult:
    assert comparison.after is not None
    worse, unit = comparison.after > most + ROUNDING, _unit(comparison.measure)
    verdict = RuleVerdict.WORSE if worse else RuleVerdict.KEPT
    summary = f"{comparison.words}, {beyond}" if worse else comparison.words
    return RuleResult(comparison.rule, verdict, unit, comparison.before, comparison.after, most, summary)


def _unit(measure: Measure) -> RuleUnit:
    return RuleUnit.SECONDS if measure is Measure.LATENCY else RuleUnit.RATIO
