"""Zeros that stand for usage that nobody measured lower nothing, by any strategy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cotenant.base.cluster import PodPhase, PodRow
from cotenant.base.reasons import Reason
from cotenant.base.resource import MIB, Resource
from cotenant.recommender.base import load_strategy, recommend
from cotenant.recommender.evidence import Evidence
from cotenant.recommender.model.recommendation import Action
from cotenant.recommender.settings import RecommenderSettings
from cotenant.recommender.unmeasured import doubts, withhold_unmeasured
from tests.support.evidence import END, Case, evidence_of

SLOTS = 10 * 288  # ten days of 5 minutes
STRATEGIES = ["cotenant", "krr-simple", "krr-simple-limit", "vpa"]
ZEROS, CORES, BYTES = np.zeros(SLOTS), np.full(SLOTS, 500.0), np.full(SLOTS, 800.0 * MIB)


def case(cpu: np.ndarray, memory: np.ndarray, **more: object) -> Case:
    amounts = {Resource.CPU: 600, Resource.MEMORY: 1024 * MIB}
    return Case(cpu=cpu, memory=memory, requests=amounts, limits=amounts, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    ("cpu", "memory"),
    [
        (ZEROS, ZEROS),  # gVisor: every series of the container is 0
        (CORES, ZEROS),  # the memory cgroup is off
        (np.stack([CORES, ZEROS]), np.stack([BYTES, ZEROS])),  # one of two pods is on a node that does not measure
        (CORES, np.where(np.arange(SLOTS) % 7 == 0, 0.0, np.nan)),  # zeros with gaps
    ],
    ids=["all zeros", "no memory", "one pod", "gaps"],
)
def test_no_amount_falls_on_zeros_of_memory(strategy: str, cpu: np.ndarray, memory: np.ndarray) -> None:
    evidence = evidence_of(case(cpu, memory))
    (recommendation,) = recommend(load_strategy(strategy), evidence, RecommenderSettings())
    (withheld,) = withhold_unmeasured([recommendation], evidence)
    for before, after in zip(recommendation.values, withheld.values, strict=True):
        if before.action is Action.WITHHELD or (before.change or 0) > 0:
            assert after == before
        else:  # 600m and 1Gi stand: nothing is lowered, no limit is taken away
            assert (after.action, after.amount, after.now) == (Action.WITHHELD, None, before.now)
            assert after.reason is Reason.UNMEASURED
    assert not [v for v in withheld.values if v.action is not Action.WITHHELD and (v.change or 0) <= 0]


def with_pod_row(evidence: Evidence, **says: object) -> Evidence:
    """The evidence where the row of the first pod says something."""
    row = PodRow("shop", "web-0", END, **says)  # type: ignore[arg-type]
    return replace(evidence, inventory=replace(evidence.inventory, pod_rows=(row,)))


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("idle", [("c0",), ("",), ("side", "c0")], ids=["its own", "its pod's", "two containers"])
def test_zero_millicores_are_true_where_a_counter_stands_still(strategy: str, idle: tuple[str, ...]) -> None:
    # memory is measured (800 MiB), and CPU was counted once: 0 millicores is what a sleeping process uses
    evidence = with_pod_row(evidence_of(case(ZEROS, BYTES)), idle=idle)
    assert doubts(evidence) == {}
    recommendations = recommend(load_strategy(strategy), evidence, RecommenderSettings())
    assert withhold_unmeasured(recommendations, evidence) == recommendations


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    ("cpu", "memory", "idle"),
    [
        (ZEROS, BYTES, ()),
        (ZEROS, BYTES, ("side",)),  # of another container
        (ZEROS, np.full(SLOTS, np.nan), ()),  # memory is not scraped: a container that is there has a process
        (np.stack([ZEROS, ZEROS]), np.stack([BYTES, BYTES]), ("c0",)),  # the first pod sleeps, of the other none knows
        (np.stack([CORES, ZEROS]), np.stack([BYTES, BYTES]), ()),
        (np.where(np.arange(SLOTS) % 7 == 0, 0.0, np.nan), BYTES, ()),
    ],
    ids=["alone", "another's counter", "no memory", "one of two proven", "one of two", "gaps"],
)
def test_cpu_is_not_lowered_on_zeros_that_nothing_proves(
    strategy: str, cpu: np.ndarray, memory: np.ndarray, idle: tuple[str, ...]
) -> None:
    evidence = evidence_of(case(cpu, memory))
    evidence = with_pod_row(evidence, idle=idle) if idle else evidence
    (recommendation,) = recommend(load_strategy(strategy), evidence, RecommenderSettings())
    (withheld,) = withhold_unmeasured([recommendation], evidence)
    for before, after in zip(recommendation.values, withheld.values, strict=True):
        # memory is measured where there is any, and stays as it was
        if before.resource is Resource.MEMORY or before.action is Action.WITHHELD or (before.change or 0) > 0:
            assert after == before
        else:
            assert (after.action, after.amount, after.reason) == (Action.WITHHELD, None, Reason.CPU_UNMEASURED)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("beyond", [(Resource.CPU,), (Resource.MEMORY,), tuple(Resource)])
def test_nothing_is_lowered_of_which_the_pod_uses_more_than_its_containers(
    strategy: str, beyond: tuple[Resource, ...]
) -> None:
    # containers show 100m and 100 MiB of 600m and 1 GiB; the pod's row is larger
    requests = {Resource.CPU: 600, Resource.MEMORY: 1024 * MIB}
    evidence = evidence_of(Case(cpu=CORES / 5, memory=BYTES / 8, requests=requests))
    evidence = with_pod_row(evidence, beyond=dict.fromkeys(beyond, 500))
    (recommendation,) = recommend(load_strategy(strategy), evidence, RecommenderSettings())
    (withheld,) = withhold_unmeasured([recommendation], evidence)
    for before, after in zip(recommendation.values, withheld.values, strict=True):
        if before.resource not in beyond or before.action is Action.WITHHELD or (before.change or 0) > 0:
            assert after == before
        else:
            assert (after.action, after.amount, after.reason) == (Action.WITHHELD, None, Reason.POD_USES_MORE)
    assert any(v.action is not Action.WITHHELD and (v.change or 0) < 0 for v in recommendation.values)


def test_a_first_scrape_before_the_process_has_a_page_is_no_absence() -> None:
    started = np.full(SLOTS, np.nan)
    started[-2:] = 0.0
    assert doubts(evidence_of(case(CORES, np.stack([BYTES, started])))) == {}
    started[-3:] = 0.0
    assert len(doubts(evidence_of(case(CORES, np.stack([BYTES, started]))))) == 1


@pytest.mark.parametrize(("slots", "is_doubted"), [(1, True), (2, True), (3, False), (6, False)])
def test_rates_over_five_minutes_lower_no_cpu_of_pods_that_end_sooner(slots: int, is_doubted: bool) -> None:
    # A pod of 90 s that uses 100m has 9 core-seconds: 30m over the slot, or as much in two slots together. One with
    # three slots filled the middle one.
    begins = range(0, SLOTS - 10, SLOTS // 12)
    lives = np.full((len(begins), SLOTS), np.nan)
    for row, begin in enumerate(begins):
        lives[row, begin : begin + slots] = 1.0
    doubted = doubts(evidence_of(case(30 * lives, BYTES * lives)))
    assert list(doubted.values()) == ([{Resource.CPU: Reason.CPU_UNMEASURED}] if is_doubted else [])


NONE = np.full(SLOTS, np.nan)
LONG, YOUNG = END - 86400, END - 1800


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    ("cpu", "memory", "pod", "why"),
    [
        (np.stack([CORES, NONE]), np.stack([BYTES, NONE]), {}, dict.fromkeys(Resource, Reason.UNMEASURED)),
        (np.stack([CORES, CORES]), np.stack([BYTES, NONE]), {}, dict.fromkeys(Resource, Reason.UNMEASURED)),
        # memory of both is known
        (np.stack([CORES, NONE]), np.stack([BYTES, BYTES]), {}, {Resource.CPU: Reason.CPU_UNMEASURED}),
        # the source has no memory of anybody
        (np.stack([CORES, NONE]), (), {}, {Resource.CPU: Reason.CPU_UNMEASURED}),
        # half an hour old, not begun, over: nothing was due, or nothing runs
        (np.stack([CORES, NONE]), np.stack([BYTES, NONE]), {"start_seconds": YOUNG}, {}),
        (np.stack([CORES, NONE]), np.stack([BYTES, NONE]), {"phase": PodPhase.PENDING}, {}),
        (np.stack([CORES, NONE]), np.stack([BYTES, NONE]), {"phase": PodPhase.SUCCEEDED}, {}),
        (np.stack([CORES, NONE]), np.stack([BYTES, NONE]), {"end_seconds": END - 7200}, {}),
    ],
    ids=["both", "memory", "CPU", "CPU without memory", "young", "pending", "succeeded", "ended"],
)
def test_nothing_is_lowered_of_which_one_running_pod_of_two_has_no_sample(
    strategy: str, cpu: np.ndarray, memory: np.ndarray, pod: dict[str, Any], why: dict[Resource, Reason]
) -> None:
    # 100m and 100 MiB are used of 600m and 1 GiB, as far as anybody measured
    scaled = memory / 8 if len(memory) else memory
    evidence = evidence_of(Case(cpu=cpu / 5, memory=scaled, requests={Resource.CPU: 600, Resource.MEMORY: 1024 * MIB}))
    first, second = (replace(running_pod, start_seconds=LONG) for running_pod in evidence.inventory.pods)
    evidence = replace(evidence, inventory=replace(evidence.inventory, pods=(first, replace(second, **pod))))
    (recommendation,) = recommend(load_strategy(strategy), evidence, RecommenderSettings())
    (withheld,) = withhold_unmeasured([recommendation], evidence)
    assert any(v.action is not Action.WITHHELD and (v.change or 0) < 0 for v in recommendation.values)
    for before, after in zip(recommendation.values, withheld.values, strict=True):
        if before.resource not in why or before.action is Action.WITHHELD or (before.change or 0) > 0:
            assert after == before
        else:
            assert (after.action, after.amount, after.reason) == (Action.WITHHELD, None, why[before.resource])
