"""What is withheld while part of the history could not be read."""

from __future__ import annotations

import pytest

from cotenant.base.colocation.reclaim_policies import Band, Reclaimable
from cotenant.base.identity import ContainerRef, NodeRef, WorkloadRef
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.base.severity import Severity
from cotenant.base.usage.usage import HOUR_SECONDS, Signal
from cotenant.recommender.incomplete import (
    FINDINGS_REST_ON,
    NOTE,
    founded_findings,
    with_incomplete_noted,
    without_decreases,
)
from cotenant.recommender.model.finding import ClusterFinding, FindingKind
from cotenant.recommender.model.recommendation import Action, Field, Recommendation, Value

WEB = ContainerRef(WorkloadRef("shop", "Deployment", "web"), "app")


def proposal(resource: Resource, now: int | None, amount: int | None, reason: Reason = Reason.OK) -> Value:
    action = Action.UNSET if amount is None else Action.SET
    return Value(resource, Field.REQUEST, now, amount, action, reason, inputs={"days": 14})


def judged(value: Value, *unread: Signal) -> Value:
    (recommendation,) = without_decreases([Recommendation(WEB, "cotenant", 1, (value,), 1, "digest", 1)], unread)
    return recommendation.values[0]


@pytest.mark.parametrize(
    ("resource", "signal"),
    [
        (Resource.CPU, Signal.CPU_USAGE_MEAN),
        (Resource.CPU, Signal.CPU_THROTTLED_MEAN),
        (Resource.MEMORY, Signal.OOM_KILLS),
        (Resource.MEMORY, Signal.MEMORY_WORKING_SET_MAX),
    ],
)
def test_a_decrease_that_rests_on_what_is_missing_is_withheld(resource: Resource, signal: Signal) -> None:
    value = judged(proposal(resource, 200, 100), signal)
    assert (value.action, value.amount, value.now) == (Action.WITHHELD, None, 200)
    assert (value.reason, value.inputs) == (Reason.HISTORY_INCOMPLETE, {"days": 14})


@pytest.mark.parametrize(
    ("value", "signal"),
    [
        (proposal(Resource.CPU, 100, 200), Signal.CPU_USAGE_MEAN),
        (proposal(Resource.CPU, 100, 100), Signal.CPU_USAGE_MEAN),
        (proposal(Resource.CPU, None, 100), Signal.CPU_USAGE_MEAN),
        (proposal(Resource.CPU, 100, None), Signal.CPU_USAGE_MEAN),
        (proposal(Resource.CPU, 200, 100), Signal.OOM_KILLS),
        (proposal(Resource.MEMORY, 200, 100), Signal.CPU_USAGE_MEAN),
        (proposal(Resource.MEMORY, 200, 100), Signal.CPU_PRESSURE_MEAN),
    ],
    ids=["raise", "same", "unset", "limit removed", "other resource", "other resource too", "beside the point"],
)
def test_everything_else_stands(value: Value, signal: Signal) -> None:
    assert judged(value, signal) == value


def test_a_request_that_moves_with_an_autoscaler_is_withheld_as_a_pair() -> None:
    value = judged(proposal(Resource.CPU, 100, 200, Reason.HPA_SOLVED), Signal.CPU_USAGE_MEAN)
    assert value.reason is Reason.HISTORY_INCOMPLETE


def finding(kind: FindingKind) -> ClusterFinding:
    return ClusterFinding(kind, NodeRef("n"), Severity.WARNING, {"days": 14})


@pytest.mark.parametrize(
    ("kind", "signal"),
    [
        (FindingKind.IDLE_WORKLOAD, Signal.CPU_USAGE_MEAN),
        (FindingKind.IDLE_WORKLOAD, Signal.CPU_THROTTLED_MEAN),
        (FindingKind.IDLE_NODE, Signal.NODE_CPU_USAGE_MEAN),
        (FindingKind.IDLE_NODE, Signal.CPU_USAGE_MEAN),
    ],
)
def test_nothing_is_called_idle_whose_use_may_lie_in_what_is_missing(kind: FindingKind, signal: Signal) -> None:
    assert founded_findings([finding(kind)], {signal: 300}) == ()
    assert founded_findings([finding(kind)], {Signal.OOM_KILLS: 300}) == (finding(kind),)


def test_what_was_seen_stands_and_says_how_much_was_not() -> None:
    (leak,) = founded_findings([finding(FindingKind.LEAK)], {Signal.MEMORY_WORKING_SET_MAX: 90 * HOUR_SECONDS // 60})
    assert leak.evidence == {"days": 14, "history_not_read_hours": 1.5}
    assert founded_findings([finding(FindingKind.UNSCHEDULABLE)], dict.fromkeys(Signal, 300)) == (
        finding(FindingKind.UNSCHEDULABLE),
    )


def test_every_kind_of_finding_says_what_it_rests_on() -> None:
    assert set(FINDINGS_REST_ON) == set(FindingKind)


@pytest.mark.parametrize(
    ("term", "before", "note"),
    [("hp_peak", "by forecast", f"by forecast; {NOTE}"), ("prod_reclaimable", "", NOTE), ("hp_used", "", "")],
)
def test_an_amount_by_an_incomplete_forecast_says_so(term: str, before: str, note: str) -> None:
    amounts = [
        Reclaimable(node="n", band=Band.BATCH, resource=r, amount=10, policy="p", terms={term: 5}, note=before)
        for r in Resource
    ]
    cpu, memory = with_incomplete_noted(amounts, {Signal.NODE_CPU_USAGE_MEAN})
    assert (cpu.note, memory.note) == (note, before)
