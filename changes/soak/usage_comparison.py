"""EDGE: queries Prometheus for measures and usage of a workload before and after a change.

One expression per measure is evaluated at the change and now, each over the age of the change (at most a day). Pods are
matched by names that start with the workload's: pods from before a rollout are gone from the cluster. Latency (seconds)
and errors (share of requests) are the workload's own queries with the variables $namespace, $workload, $pods (a regular
expression) and $window (a duration).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from cotenant.base.errors import SourceError, SourceLimit, SourceProtocol
from cotenant.base.resource import Resource
from cotenant.changes.decide.regression_check import Compared, Measure, Objective
from cotenant.changes.model.change import Change
from cotenant.changes.model.judgement import UsageTrace
from cotenant.changes.model.settings import ActionSettings
from cotenant.changes.objectives.found import decide_objective
from cotenant.changes.objectives.query_variables import fill_variables, pod_names_pattern
from cotenant.changes.objectives.week import narrow_to_cluster, objective_week
from cotenant.profiler.prometheus.checks.one_cluster import require_one_cluster, usage_in
from cotenant.profiler.prometheus.client import Client
from cotenant.profiler.prometheus.decode import decode_single_series
from cotenant.profiler.prometheus.parts import (
    CONTAINERS,
    CPU,
    MEMORY,
    PRESSURE,
    REQUESTS,
    SERIES,
    expression_of,
    over_cores,
)
from cotenant.profiler.prometheus.promql import Matcher, equal, metric_name_matcher, of_labels, selector
from cotenant.profiler.settings import PrometheusSettings

DAY_SECONDS: Final = 86_400
LEAST_SECONDS: Final = 120
"""Shortest time to compare: two scrapes at the usual interval."""
POINTS: Final = 60
"""Number of values of a trace on each side of the change."""
MOST_WEEKS: Final = 1_000
"""Number of objectives whose last week is cached; the oldest is dropped first."""
TRACE_STEP_SECONDS: Final = 60
RATE_SECONDS: Final = 300
_EACH: Final = "max by (namespace, pod, container)"
"""One value of each container, of which replicas of Prometheus or several exporters may have series."""


def comparison_of(settings: PrometheusSettings) -> dict[str, Any]:
    """Return the functions that compare metrics, as fields of a service's configuration; {} without a metric source."""
    if not settings.url:
        return {}
    comparison = PrometheusComparison(Client(settings), settings.labels)
    return {"compare": comparison, "trace": comparison.trace}


class PrometheusComparison:
    """Compares metrics before and after a change; `labels` select the cluster's series in a shared metric source."""

    def __init__(self, client: Client, labels: dict[str, str]) -> None:
        self._client = client
        self._labels = labels
        self._weeks: dict[tuple[str, Objective, int], bool] = {}

    def __call__(
        self, change: Change, begun_seconds: float, now_seconds: float, objectives: Sequence[Objective]
    ) -> list[Compared]:
        """Return each measure that the source answers, and every measure with a configured query.

        An objective that needs its last week is left out if that week shows that it cannot detect harm. Nothing is
        compared on a source where the namespace's series are of several clusters.
        """
        span = int(min(DAY_SECONDS, now_seconds - begun_seconds))
        if span < LEAST_SECONDS:
            return []
        throttled, periods, waiting = (
            f"{self._select(change, metric)}[{span}s]"
            for metric in ("container_cpu_cfs_throttled_periods_total", "container_cpu_cfs_periods_total", PRESSURE)
        )
        queries = {
            Measure.THROTTLED: f"sum(increase({throttled})) / sum(increase({periods}))",
            Measure.PRESSURE: f"avg(rate({waiting}))",
        }
        usual = [Objective(measure, query) for measure, query in queries.items()]
        given_rules = {objective.rule for objective in objectives}
        all_objectives = [*(objective for objective in usual if objective.rule not in given_rules), *objectives]
        begun_at, now = int(begun_seconds), int(now_seconds)
        try:
            require_one_cluster(self._client, self._labels, begun_at, now, *usage_in(change.namespace))
        except SourceError as error:
            return [self._unanswered(objective, error) for objective in all_objectives]
        answers = (self._compare(o, change, begun_at, now, o.rule in given_rules) for o in all_objectives)
        return [compared for compared in answers if compared is not None]

    def _compare(self, objective: Objective, change: Change, start: int, now: int, is_given: bool) -> Compared | None:
        """Return one comparison; None if the measure is left out."""
        try:
            if objective.needs_week:
                objective = narrow_to_cluster(objective, self._labels, change.ref)
                if not self._proves(objective, change, start):
                    return None
            query = fill_variables(objective.query, change.ref, min(DAY_SECONDS, now - start)) if is_given else ""
            before, *_, after = self._values(query or objective.query, start, now, max(1, now - start))
        except SourceError as error:
            return self._unanswered(objective, error)
        return self._comparison(objective, before, after)

    def _proves(self, objective: Objective, change: Change, begun_at: int) -> bool:
        """Return whether the week before the change shows that harm would be detected; raise SourceError if unknown."""
        key = (str(change.ref), objective, begun_at)
        if key not in self._weeks:
            try:
                week = objective_week(self._client, objective, change.ref, begun_at)
                refusal = decide_objective(week, ActionSettings()).reason
            except (SourceLimit, SourceProtocol) as error:  # of this query alone, and so tomorrow
                refusal = error.message
            while len(self._weeks) >= MOST_WEEKS:
                self._weeks.pop(next(iter(self._weeks)))
            self._weeks[key] = not refusal
        return self._weeks[key]

    def _unanswered(self, objective: Objective, error: SourceError) -> Compared:
        # Whoever sees the verdict need not know where the platform's server is.
        message, url = error.message, self._client.url
        for address in (self._client.describe(), url, urlsplit(url).netloc):
            message = message.replace(address, "the metric source")
        return self._comparison(objective, None, None, message)

    @staticmethod
    def _comparison(objective: Objective, before: float | None, after: float | None, error: str = "") -> Compared:
        return Compared(objective.measure, before, after, error, objective.name, objective.ceiling)

    def trace(self, change: Change, begun_seconds: float, now_seconds: float) -> list[UsageTrace]:
        """Return usage and requests from up to a day before the change until now, for resources that have values."""
        span = int(min(DAY_SECONDS, max(now_seconds - begun_seconds, RATE_SECONDS)))
        step = max(TRACE_STEP_SECONDS, span // POINTS)
        start = int(begun_seconds) - span // step * step
        try:
            require_one_cluster(self._client, self._labels, start, int(now_seconds), *usage_in(change.namespace))
        except SourceError:
            return []
        traces = []
        rate = over_cores(f"rate({SERIES}[{RATE_SECONDS}s])")
        usages = {
            Resource.CPU: (CPU, f"1000 * sum({_EACH} ({rate}))", 1000),
            Resource.MEMORY: (MEMORY, f"sum({_EACH} ({SERIES}))", 1),
        }
        for resource, (metric, shape, scale) in usages.items():
            requests = self._select(change, REQUESTS, equal("resource", resource.value))
            request = f"{scale} * sum({_EACH} ({requests}))"
            usage = expression_of(shape, self._matchers(change, metric))
            try:
                used, requested = (self._values(query, start, int(now_seconds), step) for query in (usage, request))
            except SourceError:
                continue
            if any(value is not None for value in used):
                traces.append(UsageTrace(resource, start, step, used, requested))
        return traces

    def _select(self, change: Change, metric: str, *more: Matcher) -> str:
        return selector((*self._matchers(change, metric), *more))

    def _matchers(self, change: Change, metric: str) -> tuple[Matcher, ...]:
        """Return the matchers of a metric of the workload's containers."""
        pods = Matcher("pod", "=~", pod_names_pattern(change.ref))
        own = (equal("namespace", change.namespace), pods, *CONTAINERS, *of_labels(self._labels))
        return (metric_name_matcher(metric), *own)

    def _values(self, query: str, start: int, end: int, step: int) -> tuple[float | None, ...]:
        return decode_single_series(self._client.range(query, start, end, step), start, end, step)
