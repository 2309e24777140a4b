"""Opinions from memory: after any changes of the cluster and any passing of time they are those of a fresh look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.scheduler_ext.extender.judgement_cache import Opinions
from cotenant.scheduler_ext.extender.load import load_rules
from cotenant.scheduler_ext.extender.pod import NewPod
from cotenant.scheduler_ext.extender.settings import ExtenderSettings, LoadAwareSettings
from cotenant.scheduler_ext.extender.snapshot import TRAIL, NodeSnapshot, next_snapshot
from cotenant.scheduler_ext.extender.watch.frame import Frame
from tests.scheduler_ext.extender.worlds import GIB, NOW, SOURCES, World, facts, pod_json

NODES = 12
WEB = {"cpu": "1", "memory": "2Gi"}
BATCH = {"kubernetes.io/batch-cpu": "1000", "kubernetes.io/batch-memory": "1Gi"}


def new_pod(uid: str, batch: bool = False) -> NewPod:
    labels = {"koordinator.sh/qosClass": "BE" if batch else "LS"}
    more: dict[str, Any] = {"priority": 5500} if batch else {}
    return facts(pod_json("p", BATCH if batch else WEB, labels=labels, uid=uid, **more))


def loaded_cluster(load: LoadAwareSettings | None = None) -> World:
    """Nodes of 10 cores that report 1 to 6.5 of them used at NOW, half of them with a forecast."""
    cluster = World(ExtenderSettings(load_aware=load or LoadAwareSettings()))
    for number in range(NODES):
        cluster.node(f"n{number}", extended={"kubernetes.io/batch-cpu": "4000", "kubernetes.io/batch-memory": "40Gi"})
        cluster.metric(f"n{number}", cpu=f"{1000 + 500 * number}m", updated=NOW)
        if number % 2:
            cluster.forecast(f"n{number}", [500 * number] * 48, [GIB] * 48)
    return cluster


def agree(
    opinions: Opinions, snapshot: NodeSnapshot, cluster: World, seconds: float, asked_rows: Sequence[int] | None = None
) -> None:
    """For every pod and these rows (all), with a stranger among them: memory says what a fresh look says."""
    chosen = range(len(snapshot.names)) if asked_rows is None else asked_rows
    rows = np.array([*chosen, -1, 0], dtype=np.intp)
    for pod in (new_pod("a"), new_pod("b"), new_pod("c", batch=True), new_pod("d", batch=True)):
        got = opinions.verdicts_of(snapshot, pod, rows, seconds)
        fresh = load_rules.check_load(snapshot, rows, pod, seconds, cluster.settings)
        fresh.codes[rows < 0] = 0
        assert got.codes.tolist() == fresh.codes.tolist()
        refused = got.codes > 0
        assert got.percent[refused].tolist() == fresh.percent[refused].tolist()
        assert got.slot[refused].tolist() == fresh.slot[refused].tolist()
        points = load_rules.points(snapshot, rows, pod, seconds, cluster.settings)
        points[rows < 0] = 0
        assert opinions.points(snapshot, pod, rows, seconds).tolist() == points.tolist()


steps = st.lists(
    st.one_of(
        st.tuples(st.just("report"), st.integers(0, NODES - 1), st.integers(0, 10_000)),
        st.tuples(st.just("place"), st.integers(0, NODES - 1), st.integers(100, 3000)),
        st.tuples(st.just("forecast"), st.integers(0, NODES - 1), st.integers(0, 10_000)),
        st.tuples(st.just("wait"), st.integers(0, NODES - 1), st.sampled_from([-30, 1, 59, 60, 179, 181, 1800])),
        st.tuples(st.just("drop"), st.integers(0, NODES - 1), st.just(0)),
    ),
    max_size=12,
)


@pytest.mark.slow
@settings(max_examples=40)
@given(steps, st.booleans())
def test_memory_agrees_with_a_fresh_look_whatever_happens(done: list[tuple[str, int, int]], lenient: bool) -> None:
    cluster, now = loaded_cluster(LoadAwareSettings(schedule_when_expired=lenient)), NOW
    opinions = Opinions(cluster.settings)
    agree(opinions, cluster.show(now).snapshot, cluster, now)
    for number, (what, node, amount) in enumerate(done):
        name = f"n{node}"
        if what == "report":
            cluster.metric(name, cpu=f"{amount}m", updated=now)
        elif what == "place":
            cluster.pod(pod_json(f"p{number}", {"cpu": f"{amount}m"}, node=name, scheduled=now))
        elif what == "forecast":
            cluster.forecast(name, [amount] * 48, [GIB] * 48, start=now - now % 1800)
        elif what == "wait":
            now += amount
        elif len(cluster.table.nodes) > 1:
            cluster.table.put_node(name, None)
        snapshot = cluster.show(now).snapshot
        # the scheduler asks about a part of the nodes: what changed elsewhere is judged when it is asked about
        agree(opinions, snapshot, cluster, now, [node % len(snapshot.names)] if number % 3 else None)
    agree(opinions, cluster.show(now).snapshot, cluster, now)
    assert len(cluster.table.nodes) >= 1  # there was always a node to agree on


def test_a_report_expires_in_memory_at_the_moment_at_which_it_expires() -> None:
    cluster = loaded_cluster()
    snapshot, opinions, rows = cluster.show().snapshot, Opinions(cluster.settings), np.array([0], dtype=np.intp)
    for uid in ("a", "b"):
        assert opinions.verdicts_of(snapshot, new_pod(uid), rows, NOW).codes.tolist() == [0]
    # a report is expired at an age of 180 s exactly
    assert opinions.verdicts_of(snapshot, new_pod("c"), rows, NOW + 179.9).codes.tolist() == [0]
    assert opinions.verdicts_of(snapshot, new_pod("d"), rows, NOW + 180.0).codes.tolist() == [1]
    assert opinions.verdicts_of(snapshot, new_pod("e"), rows, NOW + 179.9).codes.tolist() == [0]


def test_only_changed_rows_are_named_and_only_as_far_as_the_trail_reaches() -> None:
    cluster = loaded_cluster()
    before = cluster.show().snapshot
    cluster.metric("n3", cpu="9", updated=NOW)
    cluster.metric("n7", cpu="9", updated=NOW)
    after = cluster.show().snapshot
    changed = after.changed_since(before.steps)
    assert changed is not None
    assert changed.tolist() == [3, 7]
    assert before.changed_since(after.steps) is None
    quiet = Frame(sent_seconds=101.0, sources=SOURCES, first_slot=after.first_slot)
    assert next_snapshot(after, quiet).steps == after.steps
    for number in range(TRAIL):
        cluster.metric("n1", cpu=f"{number + 1}", updated=NOW)
        after = cluster.show().snapshot
    assert after.changed_since(before.steps) is None
    newest = after.changed_since(after.steps - TRAIL)
    assert newest is not None
    assert newest.tolist() == [1]


def test_what_is_handed_out_is_a_copy() -> None:
    cluster = loaded_cluster()
    snapshot, opinions = cluster.show().snapshot, Opinions(cluster.settings)
    rows = np.arange(NODES, dtype=np.intp)
    for uid in ("a", "b"):
        opinions.verdicts_of(snapshot, new_pod(uid), rows, NOW).codes[:] = 9
        opinions.points(snapshot, new_pod(uid), rows, NOW)[:] = -1.0
    agree(opinions, snapshot, cluster, NOW)
    assert opinions.points(snapshot, new_pod("c"), rows, NOW).min() >= 0


@pytest.mark.parametrize("batch", [False, True])
def test_pods_that_the_rules_cannot_tell_apart_are_one_kind(batch: bool) -> None:
    cluster = loaded_cluster()
    snapshot = cluster.show().snapshot
    pod, other = new_pod("a", batch), replace(new_pod("b", batch), node="n1", assigned_seconds=NOW)
    assert load_rules.kind_of(snapshot, pod, NOW, cluster.settings) == load_rules.kind_of(
        snapshot, other, NOW, cluster.settings
    )
    assert load_rules.kind_of(snapshot, pod, NOW, cluster.settings) != load_rules.kind_of(
        snapshot, replace(pod, estimate=(1.0, 1.0)), NOW, cluster.settings
    )
