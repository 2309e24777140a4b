"""Memory QoS: protection, throttling that never strangles, tiers' sums, annotations."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.kubernetes.qos import QosClass
from cotenant.enforcer.contract import NO_LIMIT, ContainerReading, Knob, KubeQos, MemoryUse, Observation, PodReading
from cotenant.enforcer.strategies.memory_qos import MemoryProtection, MemoryState, page_cache_limit, template
from tests.enforcer.readings import EVERY_KNOB, GIB, MIB, container, node, observation_of, pod, policy, values

WEB = "kubepods/burstable/podu-web"
MAIN = f"{WEB}/id-main"
V1_STOCK = EVERY_KNOB - {k for k in Knob if k.value.startswith("memory.") and k is not Knob.MEMORY_LIMIT}


def classes(**memory: Any) -> Any:
    qos = {"enable": True, "wmarkRatio": 0, "wmarkMinAdj": 0, **memory}
    return policy({"resourceQOSStrategy": {"lsClass": {"memoryQOS": qos}, "beClass": {"memoryQOS": qos}}})


PROTECTED = classes(minLimitPercent=50, lowLimitPercent=80, throttlingPercent=60)


def main(
    usage: int = 10 * MIB, request: int = 100 * MIB, limit: int = 200 * MIB, events: int = 0, **others: Any
) -> ContainerReading:
    memory = MemoryUse(usage, usage, usage, high_events=events)
    limits = {"memory": limit} if limit else {}
    return container("main", requests={"memory": request}, limits=limits, memory=memory, **others)


def web(*containers: ContainerReading, note: Any = None, **others: Any) -> PodReading:
    notes = {} if note is None else {"koordinator.sh/memoryQOS": note if isinstance(note, str) else json.dumps(note)}
    return pod("web", *(containers or (main(),)), annotations=notes, **others)


def memory_values(*pods: PodReading, of: Any = PROTECTED, **others: Any) -> dict[Knob, dict[str, Any]]:
    plan = MemoryProtection().step(observation_of(*pods, **others), of, MemoryState()).plan
    return {knob: values(plan, knob) for knob in Knob if values(plan, knob)}


def test_min_low_and_high_come_from_request_and_limit() -> None:
    amounts = memory_values(web())
    tiers = {"kubepods": 50 * MIB, "kubepods/burstable": 50 * MIB}
    assert amounts[Knob.MEMORY_MIN] == {**tiers, WEB: 50 * MIB, MAIN: 50 * MIB}
    assert amounts[Knob.MEMORY_LOW] == {**dict.fromkeys(tiers, 80 * MIB), WEB: 80 * MIB, MAIN: 80 * MIB}
    # 100 MiB + (200 - 100) MiB * 60 % = 160 MiB, whole pages already
    assert amounts[Knob.MEMORY_HIGH] == {MAIN: 160 * MIB}


def test_high_is_in_whole_pages() -> None:
    # 100 MiB + 60 % of 100 MiB + 1,000 bytes more: 600 bytes more, less than a page.
    assert memory_values(web(main(limit=200 * MIB + 1000)))[Knob.MEMORY_HIGH] == {MAIN: 160 * MIB}


def test_low_is_raised_to_min_only_where_there_is_a_low() -> None:
    assert memory_values(web(), of=classes(minLimitPercent=50, lowLimitPercent=10))[Knob.MEMORY_LOW][MAIN] == 50 * MIB
    assert Knob.MEMORY_LOW not in memory_values(web(), of=classes(minLimitPercent=50))


def test_without_a_limit_the_nodes_allocatable_stands_in() -> None:
    machine = node(allocatable={"memory": 1100 * MIB})
    # 100 MiB + (1,100 - 100) MiB * 60 %
    assert memory_values(web(main(limit=0)), machine=machine)[Knob.MEMORY_HIGH] == {MAIN: 700 * MIB}


def test_a_batch_pods_request_is_its_batch_memory() -> None:
    amounts = {"kubernetes.io/batch-memory": 100 * MIB}
    job = pod("job", container(requests=amounts, limits=amounts), qos=QosClass.BE, kube=KubeQos.BEST_EFFORT)
    tier_values = memory_values(job, of=classes(minLimitPercent=40))
    tiers = ("kubepods", "kubepods/besteffort")
    places = (*tiers, "kubepods/besteffort/podu-job", "kubepods/besteffort/podu-job/id-main")
    assert tier_values[Knob.MEMORY_MIN] == dict.fromkeys(places, 40 * MIB)


def test_tiers_protect_as_much_as_their_pods_together() -> None:
    pods = [pod(n, main(), kube=kube) for n, kube in (("a", KubeQos.BURSTABLE), ("b", KubeQos.BURSTABLE))]
    guaranteed = pod("c", main(), kube=KubeQos.GUARANTEED, qos=QosClass.LS)
    amounts = memory_values(*pods, guaranteed)[Knob.MEMORY_MIN]
    assert amounts["kubepods/burstable"] == 100 * MIB
    assert amounts["kubepods"] == 150 * MIB
    assert "kubepods/besteffort" not in amounts


def test_high_is_never_under_what_is_used_and_a_twentieth() -> None:
    # 1.05 * 200 MiB = 210 MiB = 53,760 pages exactly, above the 160 MiB of the formula.
    assert memory_values(web(main(usage=200 * MIB)))[Knob.MEMORY_HIGH] == {MAIN: 210 * MIB}


def test_without_a_reading_nothing_is_throttled() -> None:
    blind = container(requests={"memory": 100 * MIB}, limits={"memory": 200 * MIB})
    assert Knob.MEMORY_HIGH not in memory_values(web(blind))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 4 * GIB), st.integers(0, 2 * GIB), st.integers(0, 4 * GIB), st.integers(0, 100))
def test_high_always_leaves_room(usage: int, request: int, limit: int, percent: int) -> None:
    amounts = memory_values(web(main(usage, request, limit)), of=classes(throttlingPercent=percent, minLimitPercent=30))
    high = amounts.get(Knob.MEMORY_HIGH, {}).get(MAIN)
    assert high is None or (high >= request and high * 100 >= usage * 105 and high % 4096 == 0)
    assert (high is None) == (percent == 0 or limit == 0)  # this node says no allocatable


def livelock(ticks: int, rising: bool = True, usage: int = 100 * MIB) -> list[Any]:
    """A container held at memory.high: each tick it has as much as it is let have, and events rise."""
    state, high, plans = MemoryState(), NO_LIMIT, []
    for tick in range(ticks):
        usage = high if high != NO_LIMIT and rising else usage
        now = main(usage=usage, request=10 * MIB, events=34 * tick, knobs={Knob.MEMORY_HIGH: high})
        step = MemoryProtection().step(observation_of(web(now), at=float(tick)), classes(throttlingPercent=10), state)
        state, highs = step.state, values(step.plan, Knob.MEMORY_HIGH)
        high = int(highs.get(MAIN, NO_LIMIT))
        plans.append(step.plan)
    return plans


def test_a_livelock_ends_within_two_ticks_and_is_told() -> None:
    plans = livelock(64)
    throttled = [MAIN in values(plan, Knob.MEMORY_HIGH) for plan in plans]
    # Written at tick 0, stuck at 1 and 2; relieved from 2 on for 60 s.
    assert throttled[:2] == [True, True]
    assert not any(throttled[2:62])
    assert throttled[62]
    assert [v.reason for v in plans[2].verdicts] == ["MemoryThrottled"]
    assert [v.reason for plan in plans[:2] for v in plan.verdicts] == []


def test_throttling_that_finds_cache_to_drop_goes_on() -> None:
    # Events rise, but the memory in use stays far under memory.high: that is what it is for.
    plans = livelock(10, rising=False, usage=20 * MIB)
    assert all(MAIN in values(plan, Knob.MEMORY_HIGH) for plan in plans)


def test_off_is_off_and_a_stock_v1_kernel_is_not_asked() -> None:
    assert memory_values(web(), of=policy()) == {}
    assert memory_values(web(), of=PROTECTED, supported=V1_STOCK) == {}


def test_zero_percent_leaves_the_kubelets_own_values() -> None:
    assert memory_values(web(), of=classes()) == {}


def test_vendor_values_are_copied_to_pods_and_tiers_but_no_tier_dies_as_a_whole() -> None:
    vendor = classes(wmarkRatio=95, wmarkMinAdj=-25, priorityEnable=1, priority=7, oomKillGroup=1)
    amounts = memory_values(web(), of=vendor)
    assert amounts[Knob.MEMORY_WMARK_RATIO] == dict.fromkeys(
        ("kubepods/burstable", "kubepods/besteffort", WEB, MAIN), 95
    )
    assert amounts[Knob.MEMORY_WMARK_SCALE][WEB] == 20
    assert amounts[Knob.MEMORY_WMARK_MIN_ADJ][WEB] == -25
    assert amounts[Knob.MEMORY_PRIORITY][MAIN] == 7
    assert amounts[Knob.MEMORY_USE_PRIORITY_OOM][MAIN] == 1
    assert amounts[Knob.MEMORY_OOM_GROUP] == {WEB: 1, MAIN: 1}


@pytest.mark.parametrize(
    ("note", "minimum"),
    [
        ({"policy": "none"}, 0),
        ({"policy": "auto"}, 50),
        ({"policy": "default"}, 50),
        ({"policy": ""}, 50),
        ({"minLimitPercent": 20}, 20),
        ({"policy": "none", "minLimitPercent": 20}, 0),
        ({"policy": "sometimes", "minLimitPercent": 20}, 50),
        ({"minLimitPercent": 200}, 50),
        ("{", 50),
    ],
)
def test_an_annotation_decides_for_its_pod(note: Any, minimum: int) -> None:
    qos, verdicts = template(web(note=note).spec, classes(minLimitPercent=50))
    assert qos.min_limit_percent == minimum
    assert bool(verdicts) == (note in ("{", {"minLimitPercent": 200}, {"policy": "sometimes", "minLimitPercent": 20}))


def test_an_annotation_can_ask_for_what_its_class_has_off() -> None:
    off = classes(enable=False, minLimitPercent=50, lowLimitPercent=60)
    assert template(web().spec, off)[0].min_limit_percent == 0
    assert template(web(note={"policy": "auto"}).spec, off)[0].min_limit_percent == 50
    own = template(web(note={"lowLimitPercent": 30}).spec, off)[0]
    assert (own.min_limit_percent, own.low_limit_percent) == (0, 30)


@pytest.mark.parametrize(
    ("fields", "limit"),
    [
        ({}, 0),
        ({"pageCacheLimitSize": 50 * MIB, "pageCacheLimitPercent": 90}, 50 * MIB),
        ({"pageCacheLimitSize": GIB}, 200 * MIB),
        ({"pageCacheLimitPercent": 25}, 50 * MIB),
        ({"pageCacheEnable": False, "pageCacheLimitSize": 50 * MIB}, 0),
        ({"pageCacheLimitSize": 0, "pageCacheLimitPercent": 25}, 50 * MIB),
    ],
)
def test_the_page_cache_limit(fields: dict[str, Any], limit: int) -> None:
    qos = classes(**fields).classes.ls_class.memory_qos
    assert page_cache_limit(web().spec, qos) == limit


SIZE, ENABLE, SYNC = Knob.PAGE_CACHE_LIMIT, Knob.PAGE_CACHE_LIMIT_ENABLE, Knob.PAGE_CACHE_LIMIT_SYNC


@pytest.mark.parametrize(
    ("fields", "switches"),
    [
        ({}, {}),
        ({"pageCacheLimitPercent": 25}, {SIZE: 50 * MIB, ENABLE: 1}),  # a limit without its switch does nothing
        ({"pageCacheEnable": True}, {ENABLE: 1}),
        ({"pageCacheEnable": False, "pageCacheLimitPercent": 25}, {ENABLE: 0}),
        ({"pageCacheEnable": True, "pageCacheReclaimSync": True}, {ENABLE: 1, SYNC: 1}),
        ({"pageCacheReclaimSync": False}, {SYNC: 0}),
    ],
)
def test_the_page_cache_switches_are_written_with_the_limit(fields: dict[str, Any], switches: dict[Knob, int]) -> None:
    plan = MemoryProtection().step(observation_of(web()), classes(**fields), MemoryState()).plan
    assert {w.knob: w.value for w in plan.wants if w.knob in (SIZE, ENABLE, SYNC)} == switches
    stock = MemoryProtection().step(
        observation_of(web(), supported=frozenset({Knob.MEMORY_LOW})), classes(**fields), MemoryState()
    )
    assert not {w.knob for w in stock.plan.wants} & {SIZE, ENABLE, SYNC}


def test_ended_pods_protect_nothing() -> None:
    assert memory_values(web(phase="Succeeded")) == {}


def test_what_it_remembers_survives_a_restart() -> None:
    observed: Observation = observation_of(web(main(events=5, knobs={Knob.MEMORY_HIGH: 160 * MIB})))
    state = MemoryProtection().step(observed, PROTECTED, MemoryState()).state
    assert state.watched[MAIN].events == 5
    assert msgspec.json.decode(msgspec.json.encode(state), type=MemoryState) == state


@settings(max_examples=40, deadline=None)
@given(
    st.text(max_size=40)
    | st.dictionaries(
        st.sampled_from(["policy", "minLimitPercent", "priority"]),
        st.none() | st.integers() | st.sampled_from(["auto", "none", "x"]) | st.lists(st.none(), max_size=1),
    ).map(json.dumps)
)
def test_no_annotation_breaks_the_tick(note: str) -> None:
    amounts = memory_values(web(note=note))
    assert all(value >= 0 for places in amounts.values() for value in places.values())
