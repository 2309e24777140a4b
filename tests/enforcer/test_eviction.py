"""What evictions share: credits, cool-downs, who may be chosen, who is told twice."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.kubernetes.protocol import PLACEHOLDER_LABEL, PLACEHOLDER_NAMESPACE
from cotenant.base.kubernetes.qos import PriorityClass, QosClass
from cotenant.base.resource import Resource
from cotenant.enforcer.contract import CpuUse, KubeQos, MemoryUse, Observation, PodReading
from cotenant.enforcer.settings import BestEffortSettings
from cotenant.enforcer.strategies.best_effort import _unmet_verdicts
from cotenant.enforcer.strategies.eviction.victims import (
    EVICTION_ENABLED_LABEL,
    EVICTION_POLICY_ANNOTATION,
    EVICTION_PRIORITY_ANNOTATION,
    Choices,
    EvictionCandidate,
    Task,
    TaskName,
    candidate,
    choose,
    evictable,
    is_eviction_allowed,
    opted_in,
    rank,
)
from tests.enforcer.readings import MIB, observation_of, pod

SETTINGS = BestEffortSettings()


def job(name: str, cpu: float = 100.0, memory: int = MIB, **others: Any) -> PodReading:
    fields: dict[str, Any] = {"qos": QosClass.BE, "kube": KubeQos.BEST_EFFORT, **others}
    return pod(name, cpu=CpuUse(cpu), memory=MemoryUse(memory, memory), **fields)


def use(resource: Resource, candidate: EvictionCandidate) -> int:
    return candidate.use(resource)


def task(amount: int, *pods: PodReading, resource: Resource = Resource.CPU, **others: Any) -> Task:
    name = TaskName.BE_CPU if resource is Resource.CPU else TaskName.BE_MEMORY
    these = [candidate(p) for p in pods]
    return Task(**{"name": name, "resource": resource, "amount": amount, "why": "full", "candidates": these,
                   "measure": partial(use, resource), **others})  # fmt: skip


def names(
    tasks: list[Task], observation: Observation, before: Choices | None = None, **strategy_settings: Any
) -> list[str]:
    evicts, _ = choose(tasks, observation, before or Choices(), BestEffortSettings(**strategy_settings))
    return [e.name for e in evicts]


A, B, C = job("a", 100, 30 * MIB), job("b", 200, 20 * MIB), job("c", 300, 10 * MIB)
WORLD = observation_of(A, B, C)


@pytest.mark.parametrize(("amount", "chosen"), [(1, ["a"]), (100, ["a"]), (101, ["a", "b"]), (10**9, ["a", "b", "c"])])
def test_a_task_stops_when_its_amount_is_covered(amount: int, chosen: list[str]) -> None:
    assert names([task(amount, A, B, C)], WORLD) == chosen


def test_what_an_earlier_task_releases_counts_for_later_ones() -> None:
    memory = task(40 * MIB, A, B, C, resource=Resource.MEMORY)
    # memory takes a and b; they free 300 millicores, so that CPU needs nobody for 300 and c for 301
    assert names([memory, task(300, C, B, A)], WORLD) == ["a", "b"]
    assert names([memory, task(301, C, B, A)], WORLD) == ["a", "b", "c"]


def test_pods_that_leave_already_count_and_are_not_chosen() -> None:
    leaving = observation_of(replace(A, spec=replace(A.spec, deleting=True)), B, C)
    assert names([task(100, *leaving.pods)], leaving) == []
    assert names([task(101, *leaving.pods)], leaving) == ["b"]


@pytest.mark.parametrize("pending_seconds", [60.0, 10.0])
def test_a_pod_that_does_not_end_is_counted_on_for_as_long_as_one_that_was_asked(pending_seconds: float) -> None:
    """Somebody deleted it: its grace period is an hour, or the kernel cannot end its container."""
    own_settings = BestEffortSettings(pending_seconds=pending_seconds)
    leaving = observation_of(replace(A, spec=replace(A.spec, deleting=True)), B, C)
    release = task(100, *leaving.pods)  # a uses 100 millicores, which would be enough
    evicts, after = choose([release], leaving, Choices(), own_settings)
    assert evicts == ()
    evicts, after = choose([release], later(leaving, pending_seconds - 0.1), after, own_settings)
    assert evicts == ()
    evicts, after = choose([release], later(leaving, pending_seconds), after, own_settings)
    assert [e.name for e in evicts] == ["b"]
    # another pod of that name is another pod, and one that has gone is forgotten
    _, after_end = choose([], later(observation_of(B, C), pending_seconds + 1), after, own_settings)
    assert after_end.leaving_since == {}


def test_that_nobody_can_be_evicted_is_said_once_the_last_pod_does_not_end() -> None:
    stuck = observation_of(replace(A, spec=replace(A.spec, deleting=True)))
    release = task(100, *stuck.pods)
    _, after = choose([release], stuck, Choices(), SETTINGS)

    def reasons(seconds: float) -> list[str]:
        at = later(stuck, seconds)
        leaving = [p.spec for p in at.pods if after.is_leaving(p.spec, at.at_seconds, SETTINGS)]
        return [verdict.reason for verdict in _unmet_verdicts(at, [release], (), leaving)]

    assert reasons(59.0) == []
    assert reasons(60.0) == ["NobodyToEvict"]


def test_only_what_a_task_counts_is_credited() -> None:
    leaving = observation_of(replace(A, spec=replace(A.spec, deleting=True)), B, C)
    assert names([task(100, *leaving.pods, counts=lambda p: p.name != "a")], leaving) == ["b"]


def test_a_pod_that_frees_nothing_is_not_chosen() -> None:
    idle = job("idle", 0.0)
    assert names([task(100, idle, B)], observation_of(idle, B)) == ["b"]


def later(observation: Observation, seconds: float) -> Observation:
    return replace(observation, at_seconds=observation.at_seconds + seconds)


@pytest.mark.parametrize(("resource", "seconds"), [(Resource.CPU, 20.0), (Resource.MEMORY, 4.0)])
def test_after_an_eviction_nobody_new_is_chosen_until_the_cool_down_is_over(resource: Resource, seconds: float) -> None:
    release = task(1, A, B, C, resource=resource)
    _, after = choose([release], WORLD, Choices(), SETTINGS)
    rest = observation_of(B, C)  # a has gone; the need has not
    again = task(1, B, C, resource=resource)
    assert names([again], later(rest, seconds - 0.1), after) == []
    assert names([again], later(rest, seconds), after) == ["b"]
    assert names([replace(again, urgent=True)], later(rest, 0.1), after) == ["b"]


def test_a_cool_down_for_cpu_does_not_hold_up_memory() -> None:
    _, after = choose([task(1, A)], WORLD, Choices(), SETTINGS)
    assert names([task(1, B, resource=Resource.MEMORY)], later(observation_of(B, C), 1.0), after) == ["b"]


def test_a_chosen_pod_is_named_again_while_it_is_there_and_its_task_is() -> None:
    _, after = choose([task(1, A, B)], WORLD, Choices(), SETTINGS)
    assert names([task(1, A, B)], later(WORLD, 1.0), after) == ["a"]
    assert names([], later(WORLD, 1.0), after) == []
    leaving = observation_of(replace(A, spec=replace(A.spec, deleting=True)), B, C)
    assert names([task(1, *leaving.pods)], later(leaving, 1.0), after) == []


def test_a_pod_that_cannot_leave_is_passed_over_for_a_while() -> None:
    release = task(1, A, B)
    _, after = choose([release], WORLD, Choices(), SETTINGS)
    assert names([release], later(WORLD, 59.0), after) == ["a"]
    assert names([release], later(WORLD, 60.0), after) == ["b"]
    assert names([release], later(WORLD, 120.0), after) == ["a"]


def test_a_clock_that_starts_anew_forgets_cool_down_and_told() -> None:
    _, after = choose([task(1, A, B)], later(WORLD, 1e6), Choices(), SETTINGS)
    assert names([task(1, A, B)], WORLD, after) == ["a"]


def test_containers_are_stopped_here_only_for_best_effort() -> None:
    web = job("web", qos=QosClass.LS, labels={EVICTION_ENABLED_LABEL: "true"})
    evicts, _ = choose([task(10**9, A, web)], observation_of(A, web), Choices(), SETTINGS)
    assert [(e.name, e.by_api_only) for e in evicts] == [("a", False), ("web", True)]
    evicts, _ = choose([task(10**9, A, web, urgent=True)], observation_of(A, web), Choices(), SETTINGS)
    assert [(e.name, e.urgent) for e in evicts] == [("a", True), ("web", False)]
    evicts, _ = choose([task(1, A)], observation_of(A), Choices(), BestEffortSettings(only_evict_by_api=True))
    assert [e.by_api_only for e in evicts] == [True]


def test_an_eviction_says_what_it_frees_and_why() -> None:
    (evict,), _ = choose([task(1, A)], WORLD, Choices(), SETTINGS)
    assert (evict.uid, evict.strategy, evict.why) == ("u-a", "BECPUEvict", "full")
    assert evict.releases == {Resource.CPU: 100, Resource.MEMORY: 30 * MIB}


@pytest.mark.parametrize(
    "spoilt",
    [
        {"deleting": True},
        {"static": True},
        {"phase": "Succeeded"},
        {"owner": ("DaemonSet", "agents")},
        {"labels": {EVICTION_ENABLED_LABEL: "false"}},
    ],
)
def test_some_are_never_chosen(spoilt: dict[str, Any]) -> None:
    reading = job("x", **spoilt)
    assert evictable(job("x").spec)
    assert not evictable(reading.spec)
    assert names([task(1, reading)], observation_of(reading)) == []


def test_who_only_holds_room_stays_but_nobody_hides_behind_its_label() -> None:
    hidden = job("x", labels={PLACEHOLDER_LABEL: ""})
    holder = replace(hidden.spec, namespace=PLACEHOLDER_NAMESPACE)
    assert evictable(hidden.spec)
    assert not evictable(holder)


@pytest.mark.parametrize(
    ("text", "may"),
    [(None, True), ('["BECPUEvict"]', True), ('["CPUEvict"]', False), ("[]", False), ("x", False), ("{}", False)],
)
def test_a_pod_may_limit_which_tasks_take_it(text: str | None, may: bool) -> None:
    reading = job("x", annotations={} if text is None else {EVICTION_POLICY_ANNOTATION: text})
    assert is_eviction_allowed(reading.spec, TaskName.BE_CPU) is may
    assert names([task(1, reading)], observation_of(reading)) == (["x"] if may else [])


def test_outside_best_effort_a_pod_opts_in_and_has_a_low_priority() -> None:
    labels = {EVICTION_ENABLED_LABEL: "true"}
    mid: dict[str, Any] = {"priority_class": PriorityClass.MID, "qos": QosClass.LS, "kube": KubeQos.BURSTABLE}
    assert opted_in(job("x", labels=labels, priority=7100, **mid).spec, 7100)
    assert not opted_in(job("x", labels=labels, priority=7101, **mid).spec, 7100)
    assert not opted_in(job("x", priority=7100, **mid).spec, 7999)
    # without a value its class' default 7500 counts
    assert opted_in(job("x", labels=labels, **mid).spec, 7500)
    assert not opted_in(job("x", labels=labels, **mid).spec, 7499)


def test_the_order_by_annotation_then_priority_then_sub_priority() -> None:
    specs = [
        job("d", priority=5000, sub_priority=7).spec,
        job("c", priority=5000, sub_priority=3).spec,
        job("b", priority=4000).spec,
        job("a", priority=9000, annotations={EVICTION_PRIORITY_ANNOTATION: "-1"}).spec,
        job("e", priority=5000, annotations={EVICTION_PRIORITY_ANNOTATION: "bad"}).spec,
        job("f", priority=1, annotations={EVICTION_PRIORITY_ANNOTATION: "5"}).spec,
    ]
    # e has no sub-priority: its priority 5000 counts; f's annotation puts it last
    assert [s.name for s in sorted(specs, key=rank)] == ["a", "b", "c", "d", "e", "f"]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 500), st.booleans(), st.sampled_from(list(QosClass))), max_size=8),
    st.lists(st.tuples(st.integers(1, 2000), st.sampled_from(list(Resource))), max_size=4),
)
def test_never_more_than_needed_never_twice_and_remembered_as_json(
    pods: list[tuple[int, bool, QosClass]], needs: list[tuple[int, Resource]]
) -> None:
    readings = [job(f"p{i}", c, c * MIB, deleting=d, qos=q) for i, (c, d, q) in enumerate(pods)]
    observation = observation_of(*readings)
    tasks = [task(amount * (MIB if r is Resource.MEMORY else 1), *readings, resource=r) for amount, r in needs]
    evicts, after = choose(tasks, observation, Choices(), SETTINGS)
    assert len({e.uid for e in evicts}) == len(evicts)
    leaving = [candidate(p) for p in readings if p.spec.deleting or p.spec.uid in {e.uid for e in evicts}]
    if evicts:
        last = evicts[-1]
        # without the last one some task would have been short
        assert any(
            sum(t.measure(c) for c in leaving if c.pod.uid != last.uid) < t.amount
            for t in tasks
            if t.name == last.strategy
        )
    assert msgspec.json.decode(msgspec.json.encode(after), type=Choices) == after
    again, _ = choose(tasks, observation, after, SETTINGS)
    assert {e.uid for e in again} == {e.uid for e in evicts}
