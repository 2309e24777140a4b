"""The fresher report wins: a living agent is never overwritten, a silent one is, ours is written when it has news."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.colocation.nodemetric import CollectPolicy, NodeMetric
from cotenant.base.kubernetes.intent import Apply
from cotenant.base.kubernetes.protocol import NODE_AGENT
from cotenant.base.resource import Resource
from cotenant.profiler.node_metric.status import ProdOutlook, Report
from cotenant.profiler.node_metric.turn import (
    ReportContext,
    ReportDecision,
    alive,
    outlooks,
    steps,
    turn_of,
    unreported_nodes,
)

NOW = 1_790_000_000
OURS, AGENT = "cotenant-manager", "koordlet"
VIEW = ReportContext({"n1": "uid-1"}, OURS, CollectPolicy(), NOW)


def moment(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def report(age: int = 10, cpu: int = 1000) -> Report:
    usage = {Resource.CPU: cpu, Resource.MEMORY: 5000}
    resources = {"resources": {"cpu": f"{cpu}m", "memory": "5000"}}
    status = {"updateTime": moment(NOW - age), "nodeMetric": {"nodeUsage": resources, "systemUsage": resources}}
    return Report("n1", NOW - age, status, usage, usage)


def stored_metric(
    age: int | None, manager: str = OURS, cpu: int = 1000, uid: str = "uid-1", interval: int = 60, by: str = OURS
) -> NodeMetric:
    resources = {"resources": {"cpu": f"{cpu}m", "memory": "5000"}}
    status = {"updateTime": moment(NOW - (age or 0)), "nodeMetric": {"nodeUsage": resources, "systemUsage": resources}}
    body = {
        "metadata": {
            "name": "n1",
            "ownerReferences": [{"uid": uid}],
            "managedFields": [
                {"manager": by, "fieldsV1": {"f:spec": {"f:metricCollectPolicy": {}}}},
                {"manager": manager, "subresource": "status", "fieldsV1": {"f:status": {"f:updateTime": {}}}},
            ],
        },
        "spec": {
            "metricCollectPolicy": {
                "aggregateDurationSeconds": 300,
                "reportIntervalSeconds": interval,
                "nodeAggregatePolicy": {"durations": ["5m0s", "10m0s", "30m0s"]},
                "nodeMemoryCollectPolicy": "usageWithoutPageCache",
            }
        },
        "status": status if age is not None else {},
    }
    return NodeMetric.parse(body)


@pytest.mark.parametrize(
    ("stored", "own", "turn"),
    [
        (None, report(), ReportDecision.WRITE),
        (stored_metric(None), report(), ReportDecision.WRITE),
        (stored_metric(60, AGENT), report(), ReportDecision.AGENT),
        (stored_metric(120, AGENT), report(), ReportDecision.AGENT),  # one missed report is jitter
        (stored_metric(121, AGENT), report(), ReportDecision.WRITE),  # two are silence
        (
            stored_metric(250, AGENT, interval=300),
            report(),
            ReportDecision.AGENT,
        ),  # it was asked to report every five minutes
        (stored_metric(60, AGENT, interval=5), report(), ReportDecision.AGENT),  # it reports every 30 s at most
        (stored_metric(61, AGENT, interval=5), report(), ReportDecision.WRITE),
        (stored_metric(-121, AGENT), report(), ReportDecision.WRITE),  # a clock that is wrong proves no life
        (stored_metric(10), report(10), ReportDecision.NO_NEWER),
        (stored_metric(5), report(10), ReportDecision.NO_NEWER),
        (stored_metric(70), report(10), ReportDecision.STEADY),
        (stored_metric(70), report(10, cpu=1050), ReportDecision.STEADY),  # a twentieth
        (stored_metric(70), report(10, cpu=1051), ReportDecision.WRITE),
        (stored_metric(89), report(10), ReportDecision.STEADY),
        (
            stored_metric(90),
            report(10),
            ReportDecision.WRITE,
        ),  # a round later it would be 150 s old; at 180 s it counts as expired
    ],
)
def test_whose_turn_it_is(stored: NodeMetric | None, own: Report, turn: ReportDecision) -> None:
    assert turn_of(own, stored, VIEW) is turn


@given(st.integers(-1000, 1000), st.integers(0, 1000), st.sampled_from([OURS, AGENT]), st.integers(0, 2000))
def test_a_living_agent_is_never_overwritten_and_time_never_goes_back(age: int, own: int, who: str, cpu: int) -> None:
    stored = stored_metric(age, who)
    turn = turn_of(report(own, cpu), stored, VIEW)
    if who == AGENT and alive(stored, NOW):
        assert turn is ReportDecision.AGENT
    if who == OURS and turn is ReportDecision.WRITE:
        assert NOW - own > NOW - age


def test_the_object_is_made_before_its_status_and_the_spec_is_written_once() -> None:
    first = steps([report()], {}, VIEW)
    assert (len(first.specs), first.statuses, first.turns[ReportDecision.WRITE]) == (1, (), 1)
    assert first.specs[0].subresource == "" and "status" not in first.specs[0].body
    second = steps([report()], {"n1": stored_metric(None)}, VIEW)
    assert second.specs == ()
    assert second.statuses[0].subresource == "status" and set(second.statuses[0].body) == {
        "apiVersion",
        "kind",
        "metadata",
        "status",
    }
    later = steps([report()], {"n1": stored_metric(130)}, VIEW)
    assert (later.specs, len(later.statuses)) == ((), 1)
    steady = steps([report()], {"n1": stored_metric(70)}, VIEW)
    assert (steady.specs, steady.statuses, steady.turns[ReportDecision.STEADY]) == ((), (), 1)


def test_the_spec_follows_the_policy_and_the_node() -> None:
    other = ReportContext(VIEW.nodes, OURS, CollectPolicy(report_seconds=30), NOW)
    assert [
        i.body["spec"]["metricCollectPolicy"]["reportIntervalSeconds"] for i in specs(stored_metric(10), other)
    ] == [30]
    assert [i.body["metadata"]["ownerReferences"][0]["uid"] for i in specs(stored_metric(10, uid="old"), VIEW)] == [
        "uid-1"
    ]


@pytest.mark.parametrize("reports", [[], [report()]])
@pytest.mark.parametrize("stored", [stored_metric(10, AGENT), stored_metric(10, NODE_AGENT), stored_metric(None, "")])
def test_the_spec_of_a_node_that_an_agent_reports_or_nobody_knows_follows_too_if_it_is_ours(
    stored: NodeMetric, reports: list[Report]
) -> None:
    now = ReportContext({"n1": "uid-2"}, OURS, CollectPolicy(report_seconds=30), NOW)
    (spec,) = steps(reports, {"n1": stored}, now).specs
    assert spec.body["spec"]["metricCollectPolicy"]["reportIntervalSeconds"] == 30
    assert spec.body["metadata"]["ownerReferences"][0]["uid"] == "uid-2"
    assert steps(reports, {"n1": stored}, VIEW).specs == (), "nothing changed"
    assert steps(reports, {"n1": stored}, ReportContext({}, OURS, now.policy, NOW)).specs == (), "the node is gone"


def test_another_managers_spec_is_not_written_in_turns_while_an_agent_reports() -> None:
    theirs = stored_metric(10, AGENT, uid="", interval=30, by="koord-manager")
    assert specs(theirs, VIEW) == () and steps([], {"n1": theirs}, VIEW).specs == ()
    silent = stored_metric(500, AGENT, uid="", interval=30, by="koord-manager")
    assert len(specs(silent, VIEW)) == 1, "we report it, by our policy"


def specs(metric: NodeMetric, view: ReportContext) -> tuple[Apply, ...]:
    return steps([report()], {"n1": metric}, view).specs


def test_a_node_of_which_nothing_is_known_gets_an_object_that_an_agent_can_report_into() -> None:
    (spec,) = steps([], {}, VIEW).specs
    assert (spec.address.name, spec.body["spec"]["metricCollectPolicy"]["reportIntervalSeconds"]) == ("n1", 60)
    assert steps([], {"n1": stored_metric(None, AGENT)}, VIEW).specs == ()


def test_a_node_that_is_gone_is_not_reported() -> None:
    assert steps([report()], {}, ReportContext({}, OURS, CollectPolicy(), NOW)).statuses == ()


def test_nothing_need_be_asked_where_agents_report_every_node() -> None:
    metrics = {"a": stored_metric(30, AGENT), "b": stored_metric(30), "c": stored_metric(500, AGENT)}
    assert unreported_nodes(["a", "b", "c", "new"], metrics, VIEW) == ["b", "c", "new"]


def test_a_time_that_is_none_is_as_if_nobody_had_reported() -> None:
    broken = NodeMetric.parse({"metadata": {"name": "n1"}, "status": {"updateTime": "yesterday"}})
    assert turn_of(report(), broken, VIEW) is ReportDecision.WRITE


OUTLOOK = {"n1": ProdOutlook(reclaimable={Resource.CPU: 700, Resource.MEMORY: 9000})}


def test_where_our_agent_reports_the_forecast_is_still_the_managers() -> None:
    (apply,) = outlooks(OUTLOOK, {"n1": stored_metric(10, NODE_AGENT)}, VIEW)
    assert (apply.address.name, apply.subresource) == ("n1", "status")
    assert apply.body["status"] == {
        "prodReclaimableMetric": {"resource": {"resources": {"cpu": "700m", "memory": "9000"}}}
    }


@pytest.mark.parametrize("manager", [OURS, AGENT])
def test_others_write_the_forecast_with_the_rest(manager: str) -> None:
    assert outlooks(OUTLOOK, {"n1": stored_metric(10, manager)}, VIEW) == []


def test_a_silent_agent_and_a_node_that_is_gone_get_no_forecast() -> None:
    assert outlooks(OUTLOOK, {"n1": stored_metric(1000, NODE_AGENT)}, VIEW) == []
    assert outlooks(OUTLOOK, {"gone": stored_metric(10, NODE_AGENT)}, VIEW) == []


def test_a_forecast_that_did_not_move_is_not_written_and_one_that_ended_is_withdrawn() -> None:
    # 700 and 690 are less than a twentieth apart.
    published = replace(stored_metric(10, NODE_AGENT), prod_reclaimable={Resource.CPU: 690, Resource.MEMORY: 9000})
    assert outlooks(OUTLOOK, {"n1": published}, VIEW) == []
    (apply,) = outlooks({}, {"n1": published}, VIEW)
    assert apply.body["status"] == {}
