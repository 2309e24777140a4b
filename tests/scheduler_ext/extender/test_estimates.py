"""No rule takes every node away by its own estimates: it has no say then, and that is logged, counted and told."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from cotenant.base.resource import GIB
from cotenant.scheduler_ext.extender import decide
from cotenant.scheduler_ext.extender.why import Explanation, explain_placement
from tests.scheduler_ext.extender.serving import args, serving
from tests.scheduler_ext.extender.worlds import NOW, World, facts, moment, pod_json

LS = {"koordinator.sh/qosClass": "LS"}
FULL = [9000] * 48


def new_pod(cpu: str = "1") -> Any:
    return facts(pod_json("new", {"cpu": cpu, "memory": "1Gi"}, labels=LS))


def judged(cluster: World, names: list[str], pod: Any = None) -> tuple[list[str], str]:
    """Nodes that pass, and the rule that had no say."""
    snapshot = cluster.show().snapshot
    verdicts, stance = decide.check_nodes(
        snapshot, pod or new_pod(), snapshot.rows_of(names), moment(), cluster.settings
    )
    return [name for name, passes in zip(names, verdicts.passed.tolist(), strict=True) if passes], stance.yielded


def five_node_cluster(now: float = NOW) -> World:
    """p1, p2: calm, and full by forecast; e1: full by estimates of young pods; h1: full by its report; c1: calm."""
    cluster = World()
    for name, cpu in (("p1", "3"), ("p2", "3"), ("e1", "3"), ("h1", "9"), ("c1", "1")):
        cluster.node(name).metric(name, cpu=cpu, updated=now)
    for name in ("p1", "p2"):
        cluster.forecast(name, FULL, [GIB] * 48, start=now - now % 1800)
    for i in range(4):
        cluster.pod(pod_json(f"young-{i}", {"cpu": "1"}, labels=LS, node="e1", scheduled=now))
    return cluster


@pytest.mark.parametrize(
    ("names", "passing", "yielded"),
    [
        (["p1", "p2", "e1", "h1", "c1"], ["c1"], ""),
        (["p1", "p2", "h1"], ["p1", "p2"], "prediction"),
        (["p1", "e1", "h1"], ["p1"], "prediction"),
        (["e1", "h1"], ["e1"], "load-aware"),
        (["h1"], [], ""),
    ],
)
def test_a_rule_that_would_leave_no_node_by_estimates_has_no_say(
    names: list[str], passing: list[str], yielded: str
) -> None:
    assert judged(five_node_cluster(), names) == (passing, yielded)


def test_a_large_pods_own_estimate_takes_not_all_nodes_away() -> None:
    assert judged(five_node_cluster(), ["c1"], new_pod("9")) == (["c1"], "load-aware")


def test_what_the_node_reports_and_who_holds_it_stay_refusals() -> None:
    cluster = five_node_cluster()
    cluster.table.put_guards({"p1": ["default/other"]})
    assert judged(cluster, ["p1", "h1"]) == ([], "")
    cluster.metric("c1", updated=NOW - 999)
    assert judged(cluster, ["c1", "h1"]) == ([], "")


def test_thresholds_of_prod_and_of_a_percentile_are_held_against_reports_too() -> None:
    prod = msgspec.json.encode({"prodUsageThresholds": {"cpu": 50}}).decode()
    cluster = World().node("a", annotations={"scheduling.koordinator.sh/usage-thresholds": prod})
    cluster.metric("a", cpu="9", pods=[("web", "4", "1Gi", "koord-prod")])
    pod = facts(pod_json("new", {"cpu": "3"}, labels={"koordinator.sh/priority-class": "koord-prod"}))
    cluster.pod(
        pod_json("web", {"cpu": "4"}, labels={"koordinator.sh/priority-class": "koord-prod"}, node="a", scheduled=1)
    )
    # prod uses 40 %, and with the pod's estimate 65.5 %
    assert judged(cluster, ["a"], pod) == (["a"], "load-aware")
    cluster.metric("a", cpu="9", pods=[("web", "6", "1Gi", "koord-prod")])
    assert judged(cluster, ["a"], pod) == ([], "")


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 10), st.integers(0, 10), st.integers(0, 9)), min_size=1, max_size=6),
    st.integers(0, 12),
)
def test_whoever_is_not_too_busy_by_report_passes_when_nobody_passes_by_estimate(
    nodes: list[tuple[int, int, int]], cpu: int
) -> None:
    cluster = World()
    for i, (used, peak, young) in enumerate(nodes):
        cluster.node(f"n{i}").metric(f"n{i}", cpu=str(used)).forecast(f"n{i}", [peak * 1000] * 48, [GIB] * 48)
        for j in range(young):
            cluster.pod(pod_json(f"y-{i}-{j}", {"cpu": "1"}, labels=LS, node=f"n{i}", scheduled=NOW))
    passing, _ = judged(cluster, [f"n{i}" for i in range(len(nodes))], new_pod(str(cpu)))
    assert bool(passing) == any(used * 10 <= 65 for used, _, _ in nodes)


@pytest.mark.slow
def test_the_scheduler_gets_every_node_and_people_are_told() -> None:
    now = time.time()
    view = five_node_cluster(now).show(now)
    view.snapshot = replace(view.snapshot, taken_seconds=time.monotonic())
    pod = pod_json("new", {"cpu": "1", "memory": "1Gi"}, labels=LS, uid="u1")
    with capture_logs() as records, serving(view) as server:
        response = server.post("/filter", args(pod, ["p1", "p2", "h1"]))
        server.post("/filter", args(pod, ["p1", "p2", "h1"]))
        remembered = server.ask("GET", "/why?namespace=default&name=new")[1]
        metrics = server.ask("GET", "/metrics")[1].decode()
    assert sorted(response["NodeNames"]) == ["p1", "p2"]
    assert msgspec.json.decode(remembered)["yielded"] == "prediction"
    assert 'cotenant_extender_rule_yielded_total{rule="prediction"} 2.0' in metrics
    prediction_logs = [r for r in records if r.get("rule") == "prediction"]
    assert [(r["log_level"], r["pod"], r["nodes"]) for r in prediction_logs] == [("warning", "default/new", 3)]


def test_why_judges_the_nodes_that_the_scheduler_would_ask_about() -> None:
    """c1 passes our rules, but the scheduler's fit leaves p1 and p2 only."""
    cluster = five_node_cluster()
    snapshot = cluster.show().snapshot
    others = {("taints", "taint x"): [name not in ("p1", "p2") for name in snapshot.names]}
    explanation = explain_placement(snapshot, new_pod(), moment(), cluster.settings, others)
    assert isinstance(explanation, Explanation)
    assert (explanation.fits, sorted(explanation.best)) == (2, ["p1", "p2"])
    assert explanation.notes == ["rule prediction is ignored because its estimates would refuse every remaining node"]
    assert np.array_equal(sorted(r.rule for r in explanation.refusals), ["load-aware", "taints"])


def test_without_an_extender_none_of_its_rules_is_named() -> None:
    cluster = five_node_cluster()
    snapshot = cluster.show().snapshot
    judged_ = explain_placement(snapshot, new_pod(), moment(), cluster.settings)
    assert {r.rule for r in judged_.refusals} == {"load-aware", "prediction"}
    explanation = explain_placement(snapshot, new_pod(), moment(), cluster.settings, with_rules=False)
    assert (explanation.refusals, explanation.fits, explanation.best) == ([], 5, [])
    assert explanation.notes == [
        "no running extender was found, so its rules are not applied; --extender applies its rules anyway"
    ]
