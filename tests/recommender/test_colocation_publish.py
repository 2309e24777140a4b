"""Writes on nodes/status: one a node, only when worth it, none when nothing moved; and the words that explain them."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from cotenant.base.cluster import Node
from cotenant.base.colocation.colocation_strategy import ColocationStrategy
from cotenant.base.colocation.nodemetric import NodeMetric
from cotenant.base.kubernetes.intent import Apply, Intent, Patch
from cotenant.base.kubernetes.protocol import (
    BATCH_CPU_POLICY_ANNOTATION,
    CPU_NORMALIZATION_RATIO_ANNOTATION,
    EXTENDED_RESOURCES,
    NODE_RESERVATION_ANNOTATION,
    ORIGIN_ALLOCATABLE_ANNOTATION,
    THIRD_PARTY_ALLOCATIONS_ANNOTATION,
)
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.recommender.colocation.explain import Context, NodeExplained, explain
from cotenant.recommender.colocation.publish import publish
from cotenant.recommender.colocation.state import ColocationState
from cotenant.recommender.colocation.strategy import ColocationConfig

CPU, MEMORY = Resource.CPU, Resource.MEMORY
NOW = 1_700_000_000
BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY = EXTENDED_RESOURCES.values()
ON = ColocationStrategy(enable=True, cpu_reclaim_percent=100, memory_reclaim_percent=100)


def cluster(
    used: int = 0, standing: dict[str, int] | None = None, *, strategy: ColocationStrategy = ON, **more: Any
) -> ColocationState:
    """Node n of 10,000 m and 10,000 bytes; `used` by the system of both, `standing` published."""
    amounts = {CPU: 10_000, MEMORY: 10_000}
    extended = {"extended_capacity": standing or {}, "extended_allocatable": standing or {}}
    colocation_state = ColocationState(ColocationConfig(base=strategy))
    colocation_state.upsert_nodes([Node("n", amounts, amounts, **{**extended, **more})])
    colocation_state.report([NodeMetric("n", NOW, {CPU: used, MEMORY: used}, {CPU: used, MEMORY: used})])
    return colocation_state


def writes(state: ColocationState, since: float | None = 1000.0, now: float = NOW) -> list[Intent]:
    written = {} if since is None else {"n": now - since}
    return publish(state.facts, state.strategies, state.compute(now), written, now)


def offered(batch: int, mid: int = 0) -> dict[str, int]:
    return {BATCH_CPU: batch, BATCH_MEMORY: batch, MID_CPU: mid, MID_MEMORY: mid}


def test_a_new_node_is_written_once_with_all_four_amounts_on_both_sides() -> None:
    (intent,) = writes(cluster(used=1000))
    assert isinstance(intent, Apply)
    # 10,000 - 1,000; mid has no forecast: 0
    amounts = {BATCH_CPU: "9000", BATCH_MEMORY: "9000", MID_CPU: "0", MID_MEMORY: "0"}
    assert intent.body == {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"},
        "status": {"capacity": amounts, "allocatable": amounts},
    }  # fmt: skip
    assert (intent.address.path, intent.subresource) == ("/api/v1/nodes/n", "status")
    assert "appear" in intent.why


def test_what_stands_as_it_should_is_never_written_again_however_long_ago() -> None:
    assert writes(cluster(used=1000, standing=offered(9000)), since=None) == []


@pytest.mark.parametrize(
    ("old", "since", "written"),
    [
        (9000, 10.0, False),
        (9999, 10.0, False),  # |9000 - 9999| = 999 <= 999.9
        (10_000, 10.0, False),  # exactly 10 % is not more
        (10_001, 10.0, True),
        (8182, 10.0, False),  # |9000 - 8182| = 818 <= 818.2
        (8181, 10.0, True),
        (9001, 299.0, False),
        (9001, 300.0, True),  # small, but late
        (0, 10.0, True),
    ],
)
def test_a_write_needs_a_large_move_or_a_long_time(old: int, since: float, written: bool) -> None:
    assert bool(writes(cluster(used=1000, standing=offered(old)), since=since)) is written


def test_a_key_that_is_missing_on_one_side_is_written() -> None:
    standing = offered(9000)
    half = {k: v for k, v in standing.items() if k != MID_CPU}
    assert writes(cluster(1000, standing, extended_allocatable=half), since=1.0)
    assert writes(cluster(1000, standing, extended_capacity=half), since=1.0)
    # a kubelet that starts anew sets what it does not know to 0 in capacity
    assert writes(cluster(1000, standing, extended_capacity=offered(0)), since=1.0)


def test_a_silent_node_gives_its_keys_back_and_then_is_left_alone() -> None:
    silent = cluster(1000, offered(9000))
    (intent,) = writes(silent, now=NOW + 901)
    assert isinstance(intent, Patch)
    paths = sorted(str(operation["path"]) for operation in intent.operations)
    assert {operation["op"] for operation in intent.operations} == {"remove"}
    names = sorted(name.replace("/", "~1") for name in EXTENDED_RESOURCES.values())
    assert paths == [f"/status/{side}/{name}" for side in ("allocatable", "capacity") for name in names]
    assert Reason.METRIC_EXPIRED in intent.why
    assert writes(cluster(1000), now=NOW + 901) == []


FORECAST = structs.replace(ON, cpu_policy="forecast")


def test_a_node_names_a_policy_that_goes_by_forecast_beside_the_amounts() -> None:
    (intent,) = writes(cluster(used=1000, strategy=FORECAST))
    assert isinstance(intent, Apply)
    assert intent.body["metadata"] == {"name": "n", "annotations": {BATCH_CPU_POLICY_ANNOTATION: "forecast"}}


def test_a_node_whose_amounts_stand_is_written_once_more_when_its_policy_changes_to_forecast() -> None:
    (intent,) = writes(cluster(1000, offered(9000), strategy=FORECAST), since=1.0)
    assert "policy" in intent.why
    policy_note = {BATCH_CPU_POLICY_ANNOTATION: "forecast"}
    assert writes(cluster(1000, offered(9000), strategy=FORECAST, annotations=policy_note), since=1.0) == []
    # back to Koordinator's policies, with amounts that are worth a write: apply drops what it does not send
    (back,) = writes(cluster(5000, offered(9000), annotations=policy_note))
    assert "annotations" not in back.body["metadata"]  # type: ignore[union-attr]


NAME_REMOVAL = {"op": "remove", "path": "/metadata/annotations/node.cotenant.dev~1batch-cpu-policy"}


@pytest.mark.parametrize("name", ["forecast", "usage", "", "something"])
def test_a_policys_name_goes_alone_where_the_amounts_stand_or_nothing_is_lent(name: str) -> None:
    policy_note = {BATCH_CPU_POLICY_ANNOTATION: name}
    off = structs.replace(FORECAST, enable=False)
    for state in (
        cluster(1000, offered(9000), annotations=policy_note),
        cluster(1000, strategy=off, annotations=policy_note),
    ):
        (intent,) = writes(state, since=1.0)
        assert isinstance(intent, Patch) and intent.subresource == "status"
        assert intent.operations == (NAME_REMOVAL,)


def test_a_policys_name_goes_with_the_amounts_when_colocation_is_turned_off_or_the_node_is_silent() -> None:
    policy_note = {BATCH_CPU_POLICY_ANNOTATION: "forecast"}
    off = cluster(1000, offered(9000), strategy=structs.replace(FORECAST, enable=False), annotations=policy_note)
    silent = cluster(1000, offered(9000), strategy=FORECAST, annotations=policy_note)
    for (intent,) in (writes(off), writes(silent, now=NOW + 901)):
        assert isinstance(intent, Patch)
        # four amounts on two sides, and the name
        assert NAME_REMOVAL in intent.operations and len(intent.operations) == 9


def test_turned_off_means_withdrawn() -> None:
    (intent,) = writes(cluster(1000, offered(9000), strategy=structs.replace(ON, enable=False)))
    assert isinstance(intent, Patch)


def test_other_schedulers_share_is_taken_off_and_the_amount_before_is_kept() -> None:
    third = {"allocations": [{"name": "y", "priority": "koord-batch", "resources": {BATCH_CPU: "2500"}}]}
    node = cluster(1000, annotations={THIRD_PARTY_ALLOCATIONS_ANNOTATION: json.dumps(third)})
    (intent,) = writes(node)
    assert isinstance(intent, Apply)
    assert intent.body["status"]["allocatable"][BATCH_CPU] == "6500"
    origin = json.loads(intent.body["metadata"]["annotations"][ORIGIN_ALLOCATABLE_ANNOTATION])
    assert origin["resources"][BATCH_CPU] == "9000"


def test_cpu_normalization_multiplies_batch_cpu_alone() -> None:
    (intent,) = writes(cluster(1000, annotations={CPU_NORMALIZATION_RATIO_ANNOTATION: "1.11"}))
    # 9,000 x 1.11 = 9,990; a ratio up to 1 changes nothing
    assert intent.body["status"]["capacity"][BATCH_CPU] == "9990"  # type: ignore[union-attr]
    assert intent.body["status"]["capacity"][BATCH_MEMORY] == "9000"  # type: ignore[union-attr]
    (slow,) = writes(cluster(1000, annotations={CPU_NORMALIZATION_RATIO_ANNOTATION: "0.8"}))
    assert slow.body["status"]["capacity"][BATCH_CPU] == "9000"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("since", "used", "amount"),
    [
        (300.0, 1000, "5000"),  # 4,000 + 10 % of 10,000, instead of 9,000
        (150.0, 1000, "4500"),  # half the interval, half the rise
        (None, 1000, "5000"),
        (300.0, 8000, "2000"),  # a fall comes at once
    ],
)
def test_a_rise_can_be_held_back_a_fall_never(since: float | None, used: int, amount: str) -> None:
    colocation_state = cluster(used, offered(4000), strategy=structs.replace(ON, max_rise_percent=10))
    (intent,) = writes(colocation_state, since=since)
    assert intent.body["status"]["allocatable"][BATCH_CPU] == amount  # type: ignore[union-attr]


@pytest.mark.slow
@given(
    st.integers(1, 12_000),
    st.dictionaries(st.sampled_from(list(EXTENDED_RESOURCES.values())), st.integers(0, 12_000)),
    st.dictionaries(st.sampled_from(list(EXTENDED_RESOURCES.values())), st.integers(0, 12_000)),
    st.none() | st.floats(0, 1000),
    st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_what_was_written_needs_no_second_write(
    used: int, capacity: dict[str, int], allocatable: dict[str, int], since: float | None, on: bool
) -> None:
    colocation_state = cluster(
        used, strategy=structs.replace(ON, enable=on), extended_capacity=capacity, extended_allocatable=allocatable
    )
    for intent in writes(colocation_state, since):
        if isinstance(intent, Apply):
            status = {
                side: {k: int(v) for k, v in intent.body["status"][side].items()}
                for side in ("capacity", "allocatable")
            }
        else:
            assert isinstance(intent, Patch)
            removed = {str(o["path"]).replace("~1", "/") for o in intent.operations}
            status = {
                side: {k: v for k, v in now.items() if f"/status/{side}/{k}" not in removed}
                for side, now in (("capacity", capacity), ("allocatable", allocatable))
            }
        after = cluster(
            used, strategy=structs.replace(ON, enable=on),
            extended_capacity=status["capacity"], extended_allocatable=status["allocatable"],
        )  # fmt: skip
        assert writes(after, None) == []


def explained(state: ColocationState, now: float = NOW) -> NodeExplained:
    metric = state.metric("n")
    context = Context(state.resolved("n"), now, metric.update_seconds if metric else None, {BATCH_CPU: 7})
    return explain([columns.message(0) for columns in state.compute(now).values()], context)


def test_an_explanation_names_terms_parameters_and_their_layers() -> None:
    config = ColocationConfig.parse('{"enable": true, "cpuReclaimThresholdPercent": 65}')
    colocation_state = cluster(1000, annotations={NODE_RESERVATION_ANNOTATION: '{"resources": {"cpu": "2"}}'})
    colocation_state.configure(config)
    node = explained(colocation_state)
    first = node.amounts[0]
    assert (first.name, first.amount, first.unit, first.published) == (BATCH_CPU, 4500, "millicores", 7)
    # margin 35 %; the annotation's 2 cores are more than the system's 1
    assert [(line.sign, line.amount) for line in first.lines] == [("+", 10_000), ("-", 3500), ("-", 2000), ("-", 0)]
    assert first.formula == "max(10000 - 3500 - 2000 - 0, 0) = 4500"
    origins = {p.key: (p.value, p.origin) for p in first.parameters}
    assert origins["cpuReclaimThresholdPercent"] == ("65", "ConfigMap colocation-config")
    assert origins["cpuCalculatePolicy"] == ("usage", "default")
    assert (node.metric_age_seconds, node.degrade_seconds) == (0, 900)


def test_a_withdrawn_amount_says_why_and_shows_its_terms_all_the_same() -> None:
    node = explained(cluster(1000), NOW + 901)
    assert {a.reason for a in node.amounts} == {Reason.METRIC_EXPIRED}
    assert all(a.sentence and a.amount == 0 and a.formula.endswith("withdrawn (metric-expired)") for a in node.amounts)


SAFE = re.compile(r"[0-9maxin(),+ -]+")


@pytest.mark.slow
@given(
    st.integers(1, 12_000), st.integers(0, 120), st.none() | st.integers(0, 120), st.integers(0, 100),
    st.sampled_from(["1", "1.37", "2.5"]), st.integers(0, 9000),
)  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_every_formula_can_be_done_by_hand(
    used: int, percent: int, cap: int | None, static: int, ratio: str, third: int
) -> None:
    strategy = structs.replace(
        ON, cpu_reclaim_percent=percent, batch_cpu_percent=cap, mid_mode="static" if static % 2 else "dynamic",
        mid_static_cpu_percent=static,
        mid_unallocated_percent=40,
    )  # fmt: skip
    taken = {"allocations": [{"priority": "koord-batch", "resources": {BATCH_CPU: third}}]}
    annotations = {CPU_NORMALIZATION_RATIO_ANNOTATION: ratio, THIRD_PARTY_ALLOCATIONS_ANNOTATION: json.dumps(taken)}
    node = explained(cluster(used, strategy=strategy, annotations=annotations))
    for amount in node.amounts:
        expression, _, right = amount.formula.rpartition(" = ")
        assert SAFE.fullmatch(expression)
        assert eval(expression) == int(right) == amount.amount
