"""Requests after recommendations: which pods they reach, and what a raise does to a full node."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cotenant.base.kubernetes.models.pod import SizedPodWire
from cotenant.scheduler_ext.cluster_size.decide import decide_size
from cotenant.scheduler_ext.cluster_size.demand import proposals_of, proposed_of, state_at
from cotenant.scheduler_ext.cluster_size.model import RequestLevel, SizedCluster, SizedPod
from cotenant.scheduler_ext.cluster_size.pod_rules import ClusterObjects, sized_pod
from cotenant.scheduler_ext.cluster_size.tables import notes_of
from tests.scheduler_ext.cluster_size.two_nodes import node, pod

HASHED = {"owners": [{"kind": "ReplicaSet", "name": "web-5d4f", "controller": True}]}
LABELS = {"labels": {"app": "web", "pod-template-hash": "5d4f"}}


def row(ready: str = "first-step", **cells: Any) -> dict[str, Any]:
    """A row of the table of recommendations: 1 core is asked to be 700m next and 400m in the end."""
    key = {"namespace": "shop", "kind": "Deployment", "workload": "web", "container": "main", "ready": ready}
    steps = {"cpu_step": 700, "memory_step": None, "cpu_request": 400, "memory_request": None}
    return {**key, **steps, "cpu_action": "set", "memory_action": "withheld", **cells}


def sized(where: str, rows: list[dict[str, Any]], name: str = "p", **spec: Any) -> SizedPod:
    body = pod(name, where, spec or None, **HASHED, **LABELS)
    return sized_pod(msgspec.convert(body, SizedPodWire), ClusterObjects(), proposals_of(rows))


def test_only_changes_that_a_guardrail_stops_are_said_to_be_stopped() -> None:
    # A cool-down ends and a second person can confirm: both have what the stopped one has not, a next moment.
    changes = proposed_of([row("whole"), row("waiting"), row("second-person"), row("blocked")])
    assert (changes.ready, changes.containers, changes.stopped) == (1, 4, 1)


def test_a_level_changes_the_container_that_it_names_and_counts_the_others() -> None:
    side = {"name": "proxy", "restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}}
    grown_pod = sized("a", [row()], initContainers=[side])
    # main 1,000m and the native sidecar's 100m now; the step makes main 700m, all steps 400m. Memory stays.
    assert grown_pod.requests["cpu"] == 1_100
    assert {level: amounts["cpu"] for level, amounts in grown_pod.later.items()} == {
        RequestLevel.READY: 800,
        RequestLevel.ALL_STEPS: 500,
    }
    assert {amounts["memory"] for amounts in grown_pod.later.values()} == {1 << 30}


@pytest.mark.parametrize("ready", ["waiting", "second-person", "blocked", "nothing"])
def test_what_is_not_ready_changes_nothing_before_all_steps(ready: str) -> None:
    assert set(sized("a", [row(ready)]).later) == {RequestLevel.ALL_STEPS}


@pytest.mark.parametrize(
    "other",
    [{"namespace": "bank"}, {"kind": "StatefulSet"}, {"workload": "web2"}, {"container": "side"}],
    ids=lambda other: next(iter(other)),
)
def test_a_proposal_of_another_container_leaves_the_pod_alone(other: dict[str, str]) -> None:
    assert sized("a", [row() | other]).later == {}


def test_a_withheld_proposal_is_not_taken() -> None:
    assert sized("a", [row("blocked", cpu_action="withheld")]).later == {}


def test_lower_requests_let_a_node_leave_that_stays_now() -> None:
    # 3 pods of 1 core on each of two nodes of 4: 6 > 4 now; 6 x 700m = 4.2 > 4 after the step; 6 x 400m = 2.4 at last.
    pods = tuple(sized(where, [row()], f"{where}{number}") for where in "ab" for number in range(3))
    state = SizedCluster((node("a"), node("b")), pods)
    leaving = {level: len(decide_size(state_at(state, level)).leaving) for level in RequestLevel}
    assert leaving == {RequestLevel.NOW: 0, RequestLevel.READY: 0, RequestLevel.ALL_STEPS: 1}


def test_a_raise_that_a_node_has_no_room_for_takes_the_pod_to_another() -> None:
    # Two pods of 1 core on a (4 cores) rise to 2.5: one stays, one needs b, which therefore cannot leave.
    raised = [row("whole", cpu_step=2_500, cpu_request=2_500)]
    state = SizedCluster((node("a"), node("b")), tuple(sized("a", raised, f"p{number}") for number in range(2)))
    assert len(decide_size(state).leaving) == 1
    after = state_at(state, RequestLevel.READY)
    assert [placed_pod.node for placed_pod in after.pods].count("") == 1
    size = decide_size(after)
    assert size.leaving == () and size.waiting == ()


def test_memory_that_requests_lack_is_said_at_the_level_that_lacks_it() -> None:
    # Two pods of 1 GiB are asked to be 1.5 GiB in the end and 1.25 GiB next: 2 x 0.5 GiB are missing now.
    gibibyte = 1 << 30
    raised = [row("first-step", memory_action="set", memory_step=gibibyte * 5 // 4, memory_request=gibibyte * 3 // 2)]
    state = SizedCluster((node("a"), node("b")), tuple(sized("a", raised, f"p{number}") for number in range(2)))
    sizes = {level: decide_size(state_at(state, level)) for level in RequestLevel}
    assert {level: sum(size.missing_memory) for level, size in sizes.items()} == {
        RequestLevel.NOW: gibibyte,
        RequestLevel.READY: gibibyte // 2,
        RequestLevel.ALL_STEPS: 0,
    }
    now, ready, in_the_end = (" ".join(notes_of(sizes[level])) for level in RequestLevel)
    assert "2 pods request 1 GiB less memory than recommended" in now
    assert "2 pods request 512 MiB less memory than recommended" in ready
    assert "less memory" not in in_the_end
