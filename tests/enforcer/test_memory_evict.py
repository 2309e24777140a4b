"""Best effort leaves before memory runs out: worked numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cotenant.base.kubernetes.qos import QosClass
from cotenant.enforcer.contract import KubeQos, MemoryUse, Observation, PodReading
from cotenant.enforcer.model.node_policy import Thresholds
from cotenant.enforcer.settings import BestEffortSettings
from cotenant.enforcer.strategies.eviction.fullness import MemoryTrend, best_effort_memory
from cotenant.enforcer.strategies.eviction.victims import Task
from tests.enforcer.readings import GIB, MIB, node, observation_of, pod, policy

SETTINGS = BestEffortSettings()


def limits(**thresholds: Any) -> Thresholds:
    return policy({"resourceUsedThresholdWithBE": {"enable": True, **thresholds}}).thresholds


def job(name: str, memory: int, qos: QosClass = QosClass.BE, **others: Any) -> PodReading:
    return pod(name, qos=qos, kube=KubeQos.BEST_EFFORT, memory=MemoryUse(memory, memory), **others)


def node_with(available: int, *pods: PodReading) -> Observation:
    """8 GiB."""
    return observation_of(*pods, machine=replace(node(4), memory_available_bytes=available))


def memory_task(seen_: Observation, at: Thresholds | None = None, trend: MemoryTrend | None = None) -> Task | None:
    return best_effort_memory(seen_, at or limits(), trend or MemoryTrend(), SETTINGS)[0]


@pytest.mark.parametrize(
    ("available", "thresholds", "percent"),
    [
        (2 * GIB, {}, 7),  # 75 % used; 75 - 68
        (2 * GIB, {"memoryEvictLowerPercent": 50}, 25),
        (int(2.4 * GIB), {}, 2),  # 70 %, at the threshold
        (int(2.5 * GIB), {}, 0),  # 68.75 % -> 68
        (2 * GIB, {"memoryEvictThresholdPercent": 80}, 0),
        (2 * GIB, {"enable": False}, 0),
    ],
)
def test_how_much_is_released(available: int, thresholds: dict[str, Any], percent: int) -> None:
    task = memory_task(node_with(available, job("a", GIB)), limits(**thresholds))
    assert (task.amount if task else 0) == 8 * GIB * percent // 100


def test_lowest_priority_first_then_the_largest_then_the_last_name() -> None:
    pods = [
        job("a", GIB, priority=5000),
        job("b", GIB, priority=5000),
        job("c", 2 * GIB, priority=5000),
        job("d", MIB, priority=4000),
        job("e", 3 * GIB, priority=5500),
        job("plain", 4 * GIB, qos=QosClass.NONE),
        job("web", 4 * GIB, qos=QosClass.LS),
    ]
    task = memory_task(node_with(GIB, *pods))
    assert task is not None and [c.pod.name for c in task.candidates] == ["d", "c", "b", "a", "e"]


def test_what_a_pod_has_in_the_page_cache_frees_nothing() -> None:
    cached = pod("z", qos=QosClass.BE, kube=KubeQos.BEST_EFFORT, memory=MemoryUse(4 * GIB, 4 * GIB, anon=MIB))
    task = memory_task(node_with(GIB, cached, job("a", GIB)))
    assert task is not None
    assert [(c.pod.name, task.measure(c)) for c in task.candidates] == [("a", GIB), ("z", MIB)]


def test_page_cache_is_no_use() -> None:
    assert memory_task(node_with(6 * GIB, job("a", GIB))) is None


def test_an_emergency_does_not_wait() -> None:
    task = memory_task(node_with(GIB, job("a", GIB)))
    assert task is not None and not task.urgent
    # 5 % of 8 GiB is 409.6 MiB
    task = memory_task(node_with(409 * MIB, job("a", GIB)))
    assert task is not None and task.urgent and "memory runs out" in task.why


def test_an_emergency_holds_above_any_threshold() -> None:
    task = memory_task(node_with(0, job("a", GIB)), limits(memoryEvictThresholdPercent=100, memoryEvictLowerPercent=99))
    assert task is not None and task.urgent
    # what is missing to 5 %, more than 1 % of the threshold
    assert task.amount == 8 * GIB * 5 // 100


def test_memory_that_falls_fast_is_an_emergency_over_the_threshold() -> None:
    # 1 GiB a second; 2 GiB left: gone within the cool-down of 4 s
    task = memory_task(node_with(2 * GIB, job("a", GIB)), trend=MemoryTrend(3 * GIB))
    assert task is not None and task.urgent
    # 256 MiB a second: 8 s
    task = memory_task(node_with(2 * GIB, job("a", GIB)), trend=MemoryTrend(2 * GIB + 256 * MIB))
    assert task is not None and not task.urgent
    # below the threshold a fall alone evicts nobody
    assert memory_task(node_with(4 * GIB, job("a", GIB)), trend=MemoryTrend(8 * GIB)) is None


def test_the_trend_is_remembered() -> None:
    assert best_effort_memory(node_with(5 * GIB), limits(), MemoryTrend(), SETTINGS) == (None, MemoryTrend(5 * GIB))
