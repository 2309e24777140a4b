"""Best effort that starves past its satisfaction is evicted: worked numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.kubernetes.qos import QosClass
from cotenant.base.resource import Resource
from cotenant.enforcer.contract import CpuUse, Knob, KubeQos, Observation, PodReading, Value
from cotenant.enforcer.decide.container_resources import BATCH_CPU
from cotenant.enforcer.model.node_policy import Thresholds
from cotenant.enforcer.strategies.eviction.cpu_evict import Sample, real_limit, satisfaction, window
from cotenant.enforcer.strategies.eviction.victims import Task, candidate
from tests.enforcer.readings import container, node, observation_of, pod, policy

BOUNDS = {"cpuEvictBESatisfactionLowerPercent": 40, "cpuEvictBESatisfactionUpperPercent": 60}


def limits(**thresholds: Any) -> Thresholds:
    return policy({"resourceUsedThresholdWithBE": {"enable": True, **BOUNDS, **thresholds}}).thresholds


def job(name: str, use: float, request: int, qos: QosClass = QosClass.BE, **others: Any) -> PodReading:
    inside = container(requests={BATCH_CPU: request})
    return pod(name, inside, qos=qos, kube=KubeQos.BEST_EFFORT, cpu=CpuUse(use), **others)


def node_with(
    online: float, *jobs: PodReading, knobs: dict[Knob, Value] | None = None, at: float = 0.0, **of: Any
) -> Observation:
    """10 cores, `online` millicores of a latency-sensitive pod."""
    total = online + sum(p.group.cpu.millicores or 0 for p in jobs if p.group)
    observation = observation_of(
        pod("web", qos=QosClass.LS, cpu=CpuUse(online)), *jobs, machine=node(10, total, **of), at=at
    )
    tier = replace(observation.tiers[KubeQos.BEST_EFFORT], knobs=knobs or {})
    return replace(observation, tiers={**observation.tiers, KubeQos.BEST_EFFORT: tier})


def fires(*worlds: Observation, at: Thresholds | None = None) -> Task | None:
    samples: tuple[Sample, ...] = ()
    for observation in worlds:
        samples = window(observation, at or limits(), samples)
    return satisfaction(worlds[-1], at or limits(), samples)[0]


STARVED = node_with(8000.0, job("a", 1500.0, 4000), job("b", 500.0, 2000))


def test_the_release_brings_satisfaction_back_to_the_upper_bound() -> None:
    # left 10000 - 8000 = 2000 of 6000 asked: 33 % <= 40 %; used 2000 of 2000 >= 90 %; 6000 * 60 % - 2000 = 1600
    task = fires(STARVED)
    assert task is not None and task.amount == 1600


def test_lowest_priority_first_then_who_uses_most_of_its_request() -> None:
    jobs = [
        job("a", 900.0, 1000, priority=5500),
        job("b", 100.0, 200, priority=5000),
        job("c", 190.0, 200, priority=5000),
    ]
    task = fires(node_with(8800.0, *jobs, job("d", 10.0, 9000, priority=5000)))
    # 5000 before 5500; 190/200, 100/200, 10/9000
    assert task is not None and [c.pod.name for c in task.candidates] == ["c", "b", "d", "a"]


def test_a_pod_without_a_figure_is_no_candidate() -> None:
    silent = job("new", 0.0, 4000)
    silent = replace(silent, group=replace(silent.group, cpu=CpuUse(None)) if silent.group else None)
    task = fires(node_with(8000.0, job("a", 2000.0, 4000), silent))
    assert task is not None and [c.pod.name for c in task.candidates] == ["a"]


def test_a_pod_frees_its_request() -> None:
    task = fires(STARVED)
    assert task is not None and [task.measure(c) for c in task.candidates] == [4000, 2000]


def test_who_uses_little_of_what_it_may_does_not_starve() -> None:
    # 1700 of 2000 = 85 % < 90 %
    assert fires(node_with(8000.0, job("a", 1700.0, 6000))) is None
    assert fires(node_with(8000.0, job("a", 1700.0, 6000)), at=limits(cpuEvictBEUsageThresholdPercent=85)) is not None


def test_less_than_one_core_counts_as_used_up() -> None:
    # left 900 of 6000, used 0
    task = fires(node_with(9100.0, job("a", 0.0, 6000)))
    assert task is not None and task.amount == 3600 - 900


@pytest.mark.parametrize(("request_", "amount"), [(5000, 1000), (4999, None)])
def test_at_the_lower_bound_it_fires(request_: int, amount: int | None) -> None:
    # 2000 / 5000 = 40 %: 3000 - 2000
    task = fires(node_with(8000.0, job("a", 2000.0, request_)))
    assert (task.amount if task else None) == amount


@pytest.mark.parametrize(
    ("knobs", "capacity", "limit"),
    [
        ({}, 3000, 3000),
        ({Knob.CPU_QUOTA: 150_000}, 3000, 1500),
        ({Knob.CPU_QUOTA: -1, Knob.CPUSET_CPUS: "0-1"}, 3000, 2000),
        ({Knob.CPU_QUOTA: 150_000, Knob.CPUSET_CPUS: "0"}, 3000, 1000),
        ({Knob.CPUSET_CPUS: ""}, -500, 0),
        ({Knob.CPUSET_CPUS: "x"}, 3000, 3000),
    ],
)
def test_the_limit_is_the_tightest_bound(knobs: dict[Knob, Value], capacity: int, limit: int) -> None:
    assert real_limit(node_with(0.0, knobs=knobs), capacity) == limit


def test_by_allocatable_the_nodes_batch_cpu_is_the_limit() -> None:
    by = limits(cpuEvictPolicy="evictByAllocatable")
    full = node_with(0.0, job("a", 1000.0, 4000), allocatable={BATCH_CPU: 1000})
    task = fires(full, at=by)
    assert task is not None and task.amount == 2400 - 1000
    assert fires(node_with(0.0, job("a", 1000.0, 4000)), at=by) is None  # the node offers none: not known, not zero


def test_both_the_mean_and_now_must_starve_and_the_smaller_release_counts() -> None:
    at = limits(cpuEvictTimeWindowSeconds=4)
    fine, bad = (node_with(o, job("a", 10_000 - o, 6000), at=float(t)) for t, o in enumerate((4000.0, 9000.0)))
    # mean limit (6000 + 1000) / 2 = 3500 of 6000 = 58 %
    assert fires(fine, bad, at=at) is None
    worlds = [node_with(o, job("a", 10_000 - o, 6000), at=float(t)) for t, o in enumerate((8000.0, 9000.0))]
    task = fires(*worlds, at=at)
    # mean limit 1500: 3600 - 1500 = 2100; now 1000: 2600
    assert task is not None and task.amount == 2100


def test_a_third_of_the_window_must_be_seen() -> None:
    at = limits(cpuEvictTimeWindowSeconds=9)
    worlds = [replace(STARVED, at_seconds=float(t)) for t in range(3)]
    assert fires(*worlds[:2], at=at) is None
    assert fires(*worlds, at=at) is not None


def test_old_samples_leave_the_window() -> None:
    at = limits(cpuEvictTimeWindowSeconds=3)
    samples: tuple[Sample, ...] = ()
    for t in range(10):
        samples = window(replace(STARVED, at_seconds=float(t)), at, samples)
    assert [s.at_seconds for s in samples] == [7.0, 8.0, 9.0]


def test_without_this_ticks_figures_nothing_fires() -> None:
    blind = replace(STARVED, at_seconds=1.0, node=replace(STARVED.node, cpu=CpuUse(None)))
    assert fires(STARVED, blind, at=limits(cpuEvictTimeWindowSeconds=60)) is None


@pytest.mark.parametrize(("lower", "upper"), [(0, 50), (61, 90), (50, 50), (50, 100), (60, 40)])
def test_bounds_that_make_no_sense_evict_nobody_and_are_told(lower: int, upper: int) -> None:
    at = limits(cpuEvictBESatisfactionLowerPercent=lower, cpuEvictBESatisfactionUpperPercent=upper)
    task, verdicts = satisfaction(STARVED, at, window(STARVED, at, ()))
    assert task is None
    assert [v.reason for v in verdicts] == ["EvictionBoundsInvalid"]


def test_unset_bounds_and_switched_off_thresholds_are_off() -> None:
    off = policy({"resourceUsedThresholdWithBE": {"enable": True}}).thresholds
    assert satisfaction(STARVED, off, window(STARVED, off, ())) == (None, ())
    assert fires(STARVED, at=limits(enable=False)) is None


def test_only_pods_labelled_be_count_and_are_candidates() -> None:
    plain = job("plain", 500.0, 3000, qos=QosClass.NONE)
    task = fires(node_with(8000.0, job("a", 1500.0, 5000), plain))
    # 5000 asked by labelled pods: 2000 / 5000 = 40 %; used 1500 of 2000 = 75 %
    assert task is None
    task = fires(node_with(9000.0, job("a", 900.0, 5000), plain))
    assert task is not None and [c.pod.name for c in task.candidates] == ["a"]


@settings(max_examples=80, deadline=None)
@given(
    st.floats(0, 12_000),
    st.lists(st.tuples(st.floats(0, 5000), st.integers(0, 8000)), max_size=4),
    st.integers(1, 60),
    st.integers(1, 99),
)
def test_a_release_is_positive_below_the_request_and_just_what_is_missing(
    online: float, jobs: list[tuple[float, int]], lower: int, upper: int
) -> None:
    at = limits(cpuEvictBESatisfactionLowerPercent=lower, cpuEvictBESatisfactionUpperPercent=upper)
    observation = node_with(online, *(job(f"j{i}", u, r) for i, (u, r) in enumerate(jobs)))
    task = fires(observation, at=at)
    if task is not None:
        requested = sum(candidate(p).requests[Resource.CPU] for p in observation.pods)
        assert 0 < task.amount <= requested * upper // 100
        assert lower < upper
