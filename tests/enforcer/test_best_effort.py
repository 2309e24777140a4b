"""All of best effort in one round: what one part finds reaches the others, and an old world harms nobody."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.kubernetes.qos import PriorityClass, QosClass
from cotenant.enforcer.contract import (
    CpuUse,
    Evict,
    Knob,
    KubeQos,
    MemoryUse,
    Observation,
    PodReading,
    StrategyPlan,
)
from cotenant.enforcer.decide.container_resources import BATCH_CPU
from cotenant.enforcer.decide.loop import AgentMode, Ages, Memory, decide
from cotenant.enforcer.model.node_policy import NodePolicy
from cotenant.enforcer.settings import BestEffortSettings
from cotenant.enforcer.strategies.best_effort import BestEffort, BestEffortState
from cotenant.enforcer.strategies.eviction.victims import EVICTION_ENABLED_LABEL
from tests.enforcer.readings import GIB, container, node, observation_of, pod, policy, values

TIER = "kubepods/besteffort"
BOUNDS = {
    "cpuSuppressPolicy": "cfsQuota",
    "cpuSuppressThresholdPercent": 99,
    "cpuEvictBESatisfactionLowerPercent": 40,
    "cpuEvictBESatisfactionUpperPercent": 60,
}


def slo(**thresholds: Any) -> NodePolicy:
    return policy({"resourceUsedThresholdWithBE": {"enable": True, **BOUNDS, **thresholds}})


def web(cpu: float, wait: float = 0.0) -> PodReading:
    reading = pod("web", qos=QosClass.LS, cpu=CpuUse(cpu), memory=MemoryUse(GIB, GIB))
    assert reading.group is not None
    return replace(reading, group=replace(reading.group, cpu_pressure_percent=wait))


def job(name: str, cpu: float, request: int = 1000, memory: int = GIB, **others: Any) -> PodReading:
    fields: dict[str, Any] = {"qos": QosClass.BE, "kube": KubeQos.BEST_EFFORT, **others}
    inside = container(requests={BATCH_CPU: request})
    return pod(name, inside, cpu=CpuUse(cpu), memory=MemoryUse(memory, memory), **fields)


def node_with(*pods: PodReading, at: float = 0.0, available: int = 6 * GIB) -> Observation:
    """10 cores, 8 GiB."""
    total = sum(p.group.cpu.millicores or 0.0 for p in pods if p.group)
    return observation_of(*pods, machine=replace(node(10, total), memory_available_bytes=available), at=at)


def run(
    *worlds: Observation, at: NodePolicy | None = None, **strategy_settings: Any
) -> tuple[list[StrategyPlan], BestEffortState]:
    strategy = BestEffort(BestEffortSettings(**strategy_settings))
    state, plans = strategy.initial(), []
    for observation in worlds:
        step = strategy.step(observation, at or slo(), state)
        state = step.state
        plans.append(step.plan)
    return plans, state


def names(evictions: tuple[Evict, ...]) -> list[tuple[str, str]]:
    return [(e.name, e.strategy) for e in evictions]


STARVED = (web(9000.0), job("a", 600.0, 4000), job("b", 400.0, 2000))


def test_best_effort_that_starves_is_suppressed_and_one_pod_leaves() -> None:
    (plan,), _ = run(node_with(*STARVED))
    # 99 % of 10000 - 9000; left 1000: 6000 * 60 % - 1000 = 2600: b uses 400 / 2000 of its request, a 600 / 4000
    assert values(plan, Knob.CPU_QUOTA) == {TIER: 90_000}
    assert names(plan.evictions) == [("b", "BECPUEvict"), ("a", "BECPUEvict")]


def test_each_half_can_be_switched_off() -> None:
    (plan,), _ = run(node_with(*STARVED), suppress=False)
    assert (plan.wants, len(plan.evictions)) == ((), 2)
    (plan,), _ = run(node_with(*STARVED), evict=False)
    assert (len(plan.wants), plan.evictions) == (2, ())


def test_who_left_for_memory_counts_for_cpu() -> None:
    # 87 % of memory used: (87 - 68) % of 8 GiB = 1.52 GiB. a has 2 GiB and frees 4000 millicores of requests
    pods = (web(9000.0), job("a", 600.0, 4000, 2 * GIB), job("b", 400.0, 2000))
    (plan,), _ = run(node_with(*pods, available=GIB))
    assert names(plan.evictions) == [("a", "BEMemoryEvict")]


def test_a_policy_that_is_off_does_and_remembers_nothing() -> None:
    off = policy({"resourceUsedThresholdWithBE": {**BOUNDS, "enable": False}})
    assert run(node_with(*STARVED, available=0), at=off) == ([StrategyPlan()], BestEffortState())


def test_an_antagonist_is_first_held_then_evicted_with_the_reason() -> None:
    quick: dict[str, Any] = {"interference_samples": 30, "interference_patience_seconds": 10.0}
    quiet = [node_with(web(1000.0, 1.0), job("a", 0.0), job("b", 0.0), at=float(t)) for t in range(40)]
    loud = [node_with(web(1000.0, 40.0), job("a", 4000.0), job("b", 200.0), at=40.0 + t) for t in range(30)]
    plans, _ = run(*quiet, *loud, **quick)
    quotas = [values(p, Knob.CPU_QUOTA)[TIER] for p in plans[40:]]
    # confirmed in the third tick: half of 4200, then a quarter
    assert quotas[1] == 890_000 and quotas[2] == 210_000 and quotas[13] == 105_000
    evictions = [p.evictions for p in plans[40:]]
    first = next(i for i, e in enumerate(evictions) if e)
    assert first == 22
    assert names(evictions[first]) == [("a", "Interference")]
    assert "suppression did not help" in evictions[first][0].why


def test_nobody_is_evicted_where_nobody_may_be_and_that_is_told() -> None:
    (plan,), _ = run(node_with(web(9000.0), available=GIB))
    assert plan.evictions == ()
    assert [v.reason for v in plan.verdicts] == ["NobodyToEvict"]


@pytest.mark.parametrize("blind", ["policy_age_seconds", "pods_age_seconds"])
def test_on_old_knowledge_nobody_is_evicted_and_best_effort_gets_no_more(blind: str) -> None:
    ages, strategies = Ages(policy_ttl_seconds=300.0, pods_ttl_seconds=120.0), (BestEffort(),)
    _, memory = decide(node_with(*STARVED), slo(), Memory(), strategies, ages)
    old: dict[str, Any] = {blind: 301.0}
    free = replace(node_with(web(100.0), *STARVED[1:], at=1.0), **old)
    now, _ = decide(free, slo(), memory, strategies, ages)
    assert now.mode is AgentMode.HOLD
    assert now.evictions == ()
    assert {(w.path, w.value) for w in now.wants if w.knob is Knob.CPU_QUOTA} == {(TIER, 90_000)}


def test_without_figures_nobody_is_evicted_and_suppression_holds() -> None:
    blind = node_with(*STARVED, at=1.0)
    blind = replace(blind, node=replace(blind.node, cpu=CpuUse(None)))
    plans, _ = run(node_with(web(9000.0), job("a", 600.0)), blind)
    assert values(plans[1], Knob.CPU_QUOTA) == values(plans[0], Knob.CPU_QUOTA)
    assert plans[1].evictions == ()


@st.composite
def nodes(draw: st.DrawFn) -> Observation:
    pods = [
        pod(
            f"p{i}",
            container(requests={BATCH_CPU: draw(st.integers(0, 5000))}),
            qos=draw(st.sampled_from(list(QosClass))),
            kube=draw(st.sampled_from(list(KubeQos))),
            cpu=CpuUse(draw(st.one_of(st.none(), st.floats(0, 12_000)))),
            memory=draw(st.one_of(st.none(), st.integers(0, 8 * GIB).map(lambda m: MemoryUse(m, m)))),
            labels=draw(st.sampled_from([{}, {EVICTION_ENABLED_LABEL: "true"}])),
            priority=draw(st.sampled_from([0, 5500, 7100, 9000])),
            priority_class=draw(st.sampled_from(list(PriorityClass))),
            deleting=draw(st.booleans()),
        )
        for i in range(draw(st.integers(0, 6)))
    ]
    observation = node_with(*pods, available=draw(st.integers(0, 8 * GIB)))
    cpu = CpuUse(draw(st.one_of(st.none(), st.floats(0, 12_000))))
    machine = replace(
        observation.node, cpu=cpu, allocatable=draw(st.sampled_from([{}, {BATCH_CPU: 0}, {BATCH_CPU: 3000}]))
    )
    return replace(observation, node=machine)


EVERYTHING = slo(
    cpuEvictThresholdPercent=80,
    evictEnabledPriorityThreshold=7999,
    cpuAllocatableEvictThresholdPercent=110,
    allocatableEvictPriorityThreshold=7999,
)


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(st.lists(nodes(), min_size=1, max_size=4))
def test_whoever_is_evicted_is_best_effort_or_asked_for_it(worlds: list[Observation]) -> None:
    worlds = [replace(w, at_seconds=float(t)) for t, w in enumerate(worlds)]
    plans, state = run(*worlds, at=EVERYTHING)
    for observation, plan in zip(worlds, plans, strict=True):
        specs = {p.spec.uid: p.spec for p in observation.pods}
        for eviction in plan.evictions:
            spec = specs[eviction.uid]
            assert spec.qos_class is QosClass.BE or (
                spec.labels.get(EVICTION_ENABLED_LABEL) == "true" and spec.priority <= 7999
            )
            assert not spec.deleting
        assert len({e.uid for e in plan.evictions}) == len(plan.evictions)
        assert {w.path.startswith(TIER) for w in plan.wants} <= {True}
    assert msgspec.json.decode(msgspec.json.encode(state), type=BestEffortState) == state


@settings(max_examples=40, deadline=None)
@given(nodes())
def test_an_unchanged_world_repeats_its_evictions_instead_of_choosing_more(moment: Observation) -> None:
    plans, _ = run(*(replace(moment, at_seconds=float(t)) for t in range(3)), at=EVERYTHING)
    assert {e.uid for e in plans[1].evictions} == {e.uid for e in plans[0].evictions}
    assert {e.uid for e in plans[2].evictions} == {e.uid for e in plans[0].evictions}
