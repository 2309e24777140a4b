"""Pods leave a node that is too full, or whose mid and batch requests outgrew it: worked numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cotenant.base.colocation.reclaim_policies import Band
from cotenant.base.kubernetes.protocol import EXTENDED_RESOURCES
from cotenant.base.kubernetes.qos import PriorityClass, QosClass
from cotenant.base.resource import Resource
from cotenant.enforcer.contract import CpuUse, KubeQos, MemoryUse, Observation, PodReading
from cotenant.enforcer.decide.container_resources import BATCH_CPU, BATCH_MEMORY
from cotenant.enforcer.model.node_policy import Thresholds
from cotenant.enforcer.strategies.eviction.fullness import by_allocatable, by_use, to_release, withdrawn_classes
from cotenant.enforcer.strategies.eviction.victims import EVICTION_ENABLED_LABEL
from tests.enforcer.readings import GIB, MIB, container, node, observation_of, pod, policy

MID_CPU = EXTENDED_RESOURCES[Band.MID, Resource.CPU]
OPEN = {EVICTION_ENABLED_LABEL: "true"}


def limits(**thresholds: Any) -> Thresholds:
    return policy({"resourceUsedThresholdWithBE": {"enable": True, **thresholds}}).thresholds


def some(
    name: str, cpu: float | None = 100.0, memory: int = MIB, amounts: dict[str, int] | None = None, **others: Any
) -> PodReading:
    """A batch pod that may be evicted."""
    fields = {"qos": QosClass.BE, "kube": KubeQos.BEST_EFFORT, "labels": OPEN, **others}
    return pod(name, container(requests=amounts or {}), cpu=CpuUse(cpu), memory=MemoryUse(memory, memory), **fields)


def node_with(*pods: PodReading, cpu: float | None = 9000.0, available: int = 2 * GIB, **of: Any) -> Observation:
    """10 cores, 8 GiB."""
    return observation_of(*pods, machine=replace(node(10, cpu, **of), memory_available_bytes=available))


@pytest.mark.parametrize(
    ("cpu", "lower", "amount"),
    [
        (9000.0, None, 200),  # 90 %; lower 88: 10000 * 2 / 100
        (8999.0, None, 0),  # 89 %
        (9599.0, None, 700),  # 95 % (cut off) - 88
        (9000.0, 60, 3000),
        (9000.0, 90, 200),  # not below the threshold: threshold - 2
        (None, None, 0),
    ],
)
def test_how_much_a_full_node_releases(cpu: float | None, lower: int | None, amount: int) -> None:
    assert to_release(node_with(cpu=cpu), Resource.CPU, 90, lower)[0] == amount


def test_memory_is_what_is_not_available() -> None:
    # 6 of 8 GiB = 75 %; lower 68: 8 GiB * 7 / 100
    assert to_release(node_with(), Resource.MEMORY, 70, None) == (8 * GIB * 7 // 100, 75)


def test_candidates_opted_in_by_rank_and_then_by_use() -> None:
    pods = [
        some("small", 10.0),
        some("big", 500.0),
        some("silent", None),
        some("closed", labels={}),
        some("mid", qos=QosClass.LS, priority_class=PriorityClass.MID, priority=7000),
        some("high", qos=QosClass.LS, priority_class=PriorityClass.PROD, priority=9000),
    ]
    task = by_use(
        node_with(*pods), limits(cpuEvictThresholdPercent=90, evictEnabledPriorityThreshold=7999), Resource.CPU
    )
    # batch without a value counts 5500
    assert task is not None and [c.pod.name for c in task.candidates] == ["big", "small", "mid"]
    assert task.amount == 200


@pytest.mark.parametrize(
    "thresholds",
    [
        {},
        {"cpuEvictThresholdPercent": 90},
        {"evictEnabledPriorityThreshold": 7999},
        {"cpuEvictThresholdPercent": 91, "evictEnabledPriorityThreshold": 7999},
        {"cpuEvictThresholdPercent": 90, "evictEnabledPriorityThreshold": 7999, "enable": False},
    ],
)
def test_off_or_not_needed(thresholds: dict[str, Any]) -> None:
    assert by_use(node_with(some("a")), limits(**thresholds), Resource.CPU) is None


ALLOCATABLE = {"cpuAllocatableEvictThresholdPercent": 110, "allocatableEvictPriorityThreshold": 7999}


def test_a_class_that_outgrew_the_node_releases_down_to_the_lower_bound() -> None:
    pods = [some("a", amounts={BATCH_CPU: 800}), some("b", amounts={BATCH_CPU: 400})]
    (task,) = by_allocatable(node_with(*pods, allocatable={BATCH_CPU: 1000}), limits(**ALLOCATABLE), Resource.CPU)
    # 1200 of 1000 = 120 % > 110 %: 1200 - 100 % of 1000; larger request first
    assert task.amount == 200
    assert [c.pod.name for c in task.candidates] == ["a", "b"]
    assert [task.measure(c) for c in task.candidates] == [800, 400]


def test_at_the_threshold_nobody_leaves() -> None:
    pods = [some("a", amounts={BATCH_CPU: 1100})]
    assert (
        list(by_allocatable(node_with(*pods, allocatable={BATCH_CPU: 1000}), limits(**ALLOCATABLE), Resource.CPU)) == []
    )


def test_nothing_left_counts_as_one_millicore() -> None:
    pods = [some("a", amounts={BATCH_CPU: 500})]
    (task,) = by_allocatable(node_with(*pods, allocatable={BATCH_CPU: 0}), limits(**ALLOCATABLE), Resource.CPU)
    assert task.amount == 499


def test_a_class_that_is_not_offered_is_not_one_with_nothing_left() -> None:
    seen_ = node_with(some("a", amounts={BATCH_CPU: 500}))
    assert list(by_allocatable(seen_, limits(**ALLOCATABLE), Resource.CPU)) == []
    assert [v.reason for v in withdrawn_classes(seen_, limits(**ALLOCATABLE))] == ["ClassWithdrawn"]
    assert list(withdrawn_classes(seen_, limits())) == []


def test_mid_and_batch_are_counted_apart() -> None:
    mid = some("m", amounts={MID_CPU: 3000}, qos=QosClass.LS, priority_class=PriorityClass.MID)
    batch = some("b", amounts={BATCH_CPU: 900})
    batch_amounts = {MID_CPU: 1000, BATCH_CPU: 1000}
    (task,) = by_allocatable(node_with(mid, batch, allocatable=batch_amounts), limits(**ALLOCATABLE), Resource.CPU)
    assert [c.pod.name for c in task.candidates] == ["m"]
    assert task.counts(mid.spec) and not task.counts(batch.spec)


def test_the_priority_bound_holds_for_requests_too() -> None:
    pods = [some("a", amounts={BATCH_CPU: 2000})]
    low = {**ALLOCATABLE, "allocatableEvictPriorityThreshold": 5000}
    (task,) = by_allocatable(node_with(*pods, allocatable={BATCH_CPU: 1000}), limits(**low), Resource.CPU)
    assert list(task.candidates) == []


def test_memory_works_alike() -> None:
    pods = [some("a", amounts={BATCH_MEMORY: 3 * GIB})]
    thresholds = {"memoryAllocatableEvictThresholdPercent": 100, "memoryAllocatableEvictLowerPercent": 90}
    at = limits(**thresholds, allocatableEvictPriorityThreshold=7999)
    (task,) = by_allocatable(node_with(*pods, allocatable={BATCH_MEMORY: 2 * GIB}), at, Resource.MEMORY)
    # 3 GiB - 90 % of 2 GiB
    assert task.amount == 3 * GIB - 90 * 2 * GIB // 100
    assert task.name == "MemoryAllocatableEvict"
