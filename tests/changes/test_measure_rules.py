"""Rules of measures of services: what could show no harm, how often it would alarm, and whose series a query reads."""

from __future__ import annotations

import itertools
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cotenant.base.identity import WorkloadRef
from cotenant.changes.decide.regression_check import Compared, Measure, regression_results
from cotenant.changes.model.judgement import ChangeVerdict
from cotenant.changes.model.settings import ActionSettings
from cotenant.changes.objectives.conventions import queries_for
from cotenant.changes.objectives.found import FoundObjective, ServiceWeek, decide_objectives
from cotenant.changes.objectives.query_variables import fill_variables
from cotenant.changes.soak.own_series import check_own

SPACE: Final = "objectives"
BOUNDS: Final = (0.05, 0.1, 0.25, 0.5, 1.0)
SETTINGS: Final = ActionSettings()


def week(values: Any, measure: Measure = Measure.LATENCY, requests: float = 1000, bounds: Any = BOUNDS) -> ServiceWeek:
    counts = np.full(len(values), float(requests))
    return ServiceWeek("test", {measure: "q"}, counts, {measure: np.array(values, dtype=np.float64)}, tuple(bounds))


def decided(week: ServiceWeek) -> FoundObjective:
    (objective,) = decide_objectives(week, SETTINGS)
    return objective


@pytest.mark.parametrize(
    ("service_week", "reason"),
    [
        (week([0.2] * 48), ""),
        (week([0.2] * 48, requests=40), "40 requests in the median hour"),
        (week([0.04] * 48), "within the histogram's lowest bucket (up to 50 ms)"),
        (week([1.0] * 48), "beyond the histogram's highest bound (1,000 ms)"),
        (week([0.2] * 48, bounds=()), "bounds are not known"),
        (week([0.1, 0.9] * 24), "of the hours without a change would count as harm"),
        (week([np.nan] * 48), "the histogram has no buckets"),
        (week([np.nan] * 48, Measure.ERRORS), "no outcome of requests was recorded"),
        (week([0.8] * 48, Measure.ERRORS), "more than half of the requests fail"),
        (week([0.0, 0.05] * 24, Measure.ERRORS), "of the hours without a change would count as harm"),
        (week([0.0] * 48, Measure.ERRORS), ""),
    ],
)
def test_a_measure_that_could_not_show_harm_says_why(service_week: ServiceWeek, reason: str) -> None:
    objective = decided(service_week)
    assert reason in objective.reason and bool(objective.reason) == bool(reason)


@given(st.lists(st.one_of(st.just(np.nan), st.floats(0, 10)), min_size=2, max_size=200), st.sampled_from([*Measure]))
@example([1.1495844200201288e-66, 5.027741347156168e-11], Measure.LATENCY)  # beyond by less than rounding
def test_false_alarms_are_those_that_the_verdict_itself_would_raise(values: list[float], measure: Measure) -> None:
    if measure not in (Measure.LATENCY, Measure.ERRORS):
        return
    harmed = total = 0
    for before, after in itertools.pairwise(values):
        if np.isnan(before) or np.isnan(after) or (measure is Measure.LATENCY and before <= 0):
            continue
        rules = regression_results([Compared(measure, before, after)], SETTINGS, [measure])
        harmed, total = harmed + bool(ChangeVerdict(0, 1, tuple(rules)).harm), total + 1
    alarms = decided(week(values, measure)).false_alarms
    assert alarms == (pytest.approx(harmed / total, abs=1e-12) if total else None)


@pytest.mark.parametrize("labels", ["", 'cluster="a"'])
def test_every_proposed_query_reads_its_own_namespace_alone(labels: str) -> None:
    workload = WorkloadRef(SPACE, "Deployment", "web")
    ways = [way for some in queries_for(["web", "web.v2"], labels) for way in some]
    assert {way.source for way in ways} == {
        "Istio", "Linkerd", "OpenTelemetry", "gRPC", "JVM (Micrometer)", "Envoy", "ingress-nginx"
    }  # fmt: skip
    for way in ways:
        for query in (*way.guards.values(), way.requests, way.buckets):
            check_own(fill_variables(query, workload, 3600), SPACE, "query")
            assert labels in query
