"""CPU burst: buffers, quota steps, the node's guard, the limiter. Expected numbers by the formulas of koordlet."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.kubernetes.qos import QosClass
from cotenant.enforcer.contract import NO_LIMIT, CpuUse, Knob, Observation, PodReading
from cotenant.enforcer.model.node_policy import CpuBurst
from cotenant.enforcer.strategies.burst import (
    Burst,
    BurstState,
    PoolLoad,
    QuotaMove,
    QuotaStep,
    Tokens,
    buffer_microseconds,
    next_quota,
    pod_quota,
    pool_load,
    random_part,
    restrict_move,
    update_tokens,
)
from tests.enforcer.readings import EVERY_KNOB, container, node, observation_of, pod, policy, values

AUTO = policy({"cpuBurstStrategy": {"policy": "auto"}})
WEB = "kubepods/burstable/podu-web"
MAIN = f"{WEB}/id-main"
THROTTLED = CpuUse(400.0, periods=10, throttled_periods=4)
CALM = CpuUse(200.0, periods=10)


def strategy(**fields: Any) -> CpuBurst:
    return msgspec.structs.replace(policy().cpu_burst, **{"policy": "auto", **fields})


def web(cpu: CpuUse = CALM, quota: int = 50_000, annotation: Any = None, **others: Any) -> PodReading:
    main = container(limits={"cpu": 500}, knobs={Knob.CPU_QUOTA: quota}, cpu=cpu)
    notes = {} if annotation is None else {"koordinator.sh/cpuBurst": annotation}
    return pod("web", main, knobs={Knob.CPU_QUOTA: quota}, annotations=notes, **others)


def idle(*pods: PodReading, at: float = 0.0, used: float | None = 500.0, **others: Any) -> Observation:
    return observation_of(*pods, machine=node(4, used), at=at, **others)


def test_an_unused_half_core_may_be_saved_up_but_never_more_than_the_kernel_takes() -> None:
    plan = Burst().step(idle(web()), AUTO, BurstState()).plan
    # 0.5 core * 1000 % * 100,000 us = 500,000 us, and the kernel refuses more than the quota of 50,000 us.
    assert values(plan, Knob.CPU_BURST) == {WEB: 50_000, MAIN: 50_000}
    # 0.5 core * 40 % * 100,000 us = 20,000 us
    assert buffer_microseconds(500, strategy(cpu_burst_percent=40), 50_000) == 20_000
    assert values(plan, Knob.CPU_QUOTA) == {}


def test_a_pods_buffer_is_the_sum_of_its_containers() -> None:
    two = [container(n, limits={"cpu": 300}, knobs={Knob.CPU_QUOTA: 30_000}) for n in ("a", "b")]
    free = container("c", knobs={Knob.CPU_QUOTA: NO_LIMIT})
    plan = Burst().step(idle(pod("web", *two, free, knobs={Knob.CPU_QUOTA: NO_LIMIT})), AUTO, BurstState()).plan
    # Two containers of min(0.3 * 1000 % * 100,000, 30,000) us; one without a limit has none.
    assert values(plan, Knob.CPU_BURST) == {WEB: 60_000, f"{WEB}/id-a": 30_000, f"{WEB}/id-b": 30_000}


@pytest.mark.parametrize(
    "others",
    [
        {"qos": QosClass.LSE},
        {"qos": QosClass.LSR},
        {"qos": QosClass.BE},
        {"phase": "Succeeded"},
    ],
)
def test_bound_best_effort_and_ended_pods_are_left_alone(others: dict[str, Any]) -> None:
    assert Burst().step(idle(web(THROTTLED, **others)), AUTO, BurstState()).plan.wants == ()


@pytest.mark.parametrize("qos", [QosClass.NONE, QosClass.LS, QosClass.SYSTEM])
def test_a_throttled_container_gets_a_fifth_more_and_its_pod_as_much(qos: QosClass) -> None:
    plan = Burst().step(idle(web(THROTTLED, qos=qos)), AUTO, BurstState()).plan
    # 50,000 * 1.2 = 60,000; the pod's moves by the same 10,000.
    assert values(plan, Knob.CPU_QUOTA) == {WEB: 60_000, MAIN: 60_000}
    assert {w.path: w.back_to for w in plan.wants if w.knob is Knob.CPU_QUOTA} == {WEB: 50_000, MAIN: 50_000}


def test_a_quota_that_nobody_enforces_stays_unlimited() -> None:
    plan = Burst().step(idle(web(THROTTLED, quota=NO_LIMIT)), AUTO, BurstState()).plan
    assert plan.wants == ()


def test_an_unlimited_pod_is_not_limited_when_its_container_moves() -> None:
    main = container(limits={"cpu": 500}, knobs={Knob.CPU_QUOTA: 50_000}, cpu=THROTTLED)
    plan = Burst().step(idle(pod("web", main, knobs={Knob.CPU_QUOTA: NO_LIMIT})), AUTO, BurstState()).plan
    assert values(plan, Knob.CPU_QUOTA) == {MAIN: 60_000}


def test_a_kernel_without_burst_is_asked_for_quotas_only() -> None:
    plan = Burst().step(idle(web(THROTTLED), supported=EVERY_KNOB - {Knob.CPU_BURST}), AUTO, BurstState()).plan
    assert {w.knob for w in plan.wants} == {Knob.CPU_QUOTA}


@pytest.mark.parametrize(
    ("name", "knobs"),
    [
        ("none", set()),
        ("cpuBurstOnly", {Knob.CPU_BURST}),
        ("cfsQuotaBurstOnly", {Knob.CPU_QUOTA}),
        ("auto", {Knob.CPU_BURST, Knob.CPU_QUOTA}),
    ],
)
def test_a_policy_uses_its_means_and_no_other(name: str, knobs: set[Knob]) -> None:
    only = policy({"cpuBurstStrategy": {"policy": name}})
    assert {w.knob for w in Burst().step(idle(web(THROTTLED)), only, BurstState()).plan.wants} == knobs


def test_an_annotation_overrides_field_by_field() -> None:
    note = json.dumps({"cpuBurstPercent": 20, "policy": None})
    plan = Burst().step(idle(web(THROTTLED, annotation=note)), AUTO, BurstState()).plan
    # 0.5 core * 20 % * 100,000 us; null is not set, so the policy stays auto.
    assert values(plan, Knob.CPU_BURST) == {WEB: 10_000, MAIN: 10_000}
    assert values(plan, Knob.CPU_QUOTA)[MAIN] == 60_000
    off = Burst().step(idle(web(THROTTLED, annotation='{"policy": "none"}')), AUTO, BurstState()).plan
    assert (off.wants, off.verdicts) == ((), ())


@pytest.mark.parametrize(
    "note", ["", "{", "[]", "7", '{"policy": "more"}', '{"cpuBurstPercent": "20"}', '{"cfsQuotaBurstPercent": 7}']
)
def test_an_annotation_that_cannot_be_read_leaves_the_nodes_policy(note: str) -> None:
    plan = Burst().step(idle(web(THROTTLED, annotation=note)), AUTO, BurstState()).plan
    assert values(plan, Knob.CPU_QUOTA)[MAIN] == 60_000
    assert [(v.subject, v.reason, v.warning) for v in plan.verdicts] == [("default/web", "AnnotationUnreadable", True)]


@pytest.mark.parametrize(
    ("move", "load", "expected"),
    [
        (QuotaMove.UP, PoolLoad.IDLE, QuotaMove.UP),
        (QuotaMove.UP, PoolLoad.COOLING, QuotaMove.REMAIN),
        (QuotaMove.UP, PoolLoad.UNKNOWN, QuotaMove.REMAIN),
        (QuotaMove.UP, PoolLoad.OVERLOAD, QuotaMove.DOWN),
        (QuotaMove.REMAIN, PoolLoad.IDLE, QuotaMove.REMAIN),
        (QuotaMove.REMAIN, PoolLoad.COOLING, QuotaMove.REMAIN),
        (QuotaMove.REMAIN, PoolLoad.UNKNOWN, QuotaMove.REMAIN),
        (QuotaMove.REMAIN, PoolLoad.OVERLOAD, QuotaMove.DOWN),
        *((QuotaMove.DOWN, load, QuotaMove.DOWN) for load in PoolLoad),
        *((QuotaMove.RESET, load, QuotaMove.RESET) for load in PoolLoad),
    ],
)
def test_the_nodes_guard(move: QuotaMove, load: PoolLoad, expected: QuotaMove) -> None:
    assert restrict_move(move, load) is expected


@pytest.mark.parametrize(
    ("move", "now", "percent", "then"),
    [
        (QuotaMove.UP, 50_000, 300, 60_000),
        (QuotaMove.UP, 50_001, 300, 60_001),  # 60,001.2
        (QuotaMove.UP, 140_000, 300, 150_000),  # 168,000 is above 50,000 * 300 %
        (QuotaMove.UP, 50_000, 100, 50_000),  # nothing above the limit
        (QuotaMove.DOWN, 100_000, 300, 80_000),
        (QuotaMove.DOWN, 60_000, 300, 50_000),  # 48,000 is below the limit
        (QuotaMove.REMAIN, 70_000, 300, 70_000),
        (QuotaMove.REMAIN, 20_000, 300, 50_000),  # somebody set it below the limit
        (QuotaMove.RESET, 150_000, 300, 50_000),
    ],
)
def test_one_step_of_a_quota_of_half_a_core(move: QuotaMove, now: int, percent: int, then: int) -> None:
    assert next_quota(strategy(cfs_quota_burst_percent=percent), 50_000, now, move).then == then


@pytest.mark.parametrize(
    ("used", "load"),
    [(1799.0, PoolLoad.IDLE), (1800.0, PoolLoad.COOLING), (1999.0, PoolLoad.COOLING), (2000.0, PoolLoad.OVERLOAD)],
)
def test_the_pool_is_loaded_by_its_threshold(used: float, load: PoolLoad) -> None:
    # 4 CPUs shared, threshold 50 %: overload from 2,000 millicores, cooling from 0.9 of that.
    assert pool_load(idle(), 50, ((0.0, used),)) is load


def test_bound_pods_take_cpus_from_the_pool_and_best_effort_only_use() -> None:
    bound = pod("db", container(requests={"cpu": 2000}), qos=QosClass.LSR, cpu=CpuUse(1500.0))
    batch = pod("job", container(requests={"cpu": 1000}), qos=QosClass.BE, cpu=CpuUse(1000.0))
    # used = 3,400 - 1,500 - 1,000 = 900; pool = 4,000 - 2,000; 45 %: cooling. With 3,500: 50 %, overload.
    for total, load in ((3400.0, PoolLoad.COOLING), (3500.0, PoolLoad.OVERLOAD)):
        step = Burst().step(idle(bound, batch, used=total), AUTO, BurstState())
        assert pool_load(idle(bound, batch, used=total), 50, step.state.pool_use) is load


def test_a_pool_without_cpus_is_full_and_without_a_measurement_unknown() -> None:
    bound = pod("db", container(requests={"cpu": 4000}), qos=QosClass.LSE)
    assert pool_load(idle(bound), 50, ((0.0, 0.0),)) is PoolLoad.OVERLOAD
    assert pool_load(idle(), 50, ()) is PoolLoad.UNKNOWN
    plan = Burst().step(idle(web(THROTTLED), used=None), AUTO, BurstState()).plan
    assert values(plan, Knob.CPU_QUOTA) == {}


def test_the_guard_looks_at_the_mean_of_five_ticks() -> None:
    state = BurstState()
    for tick, used in enumerate([4000.0, 500.0, 500.0, 500.0, 500.0]):
        state = Burst().step(idle(at=float(tick), used=used), AUTO, state).state
    # (4,000 + 4 * 500) / 5 = 1,200 of 4,000: idle; a sixth tick forgets the first.
    assert pool_load(idle(), 50, state.pool_use) is PoolLoad.IDLE
    assert len(state.pool_use) == 5
    state = Burst().step(idle(at=5.0, used=500.0), AUTO, state).state
    assert [used for _, used in state.pool_use] == [500.0] * 5


def test_a_limiter_spends_above_the_limit_and_saves_below_sixty_percent() -> None:
    burst = strategy(cfs_quota_burst_period_seconds=10, cfs_quota_burst_percent=300)
    start = update_tokens(burst, None, 0.0, 0.0, 0.5)
    # capacity 10 s * 200 %; it starts with 0.5 * 0.5 of it.
    assert (start.capacity, start.amount) == (2000, 500.0)
    assert update_tokens(burst, start, 250.0, 2.0, 0.0).amount == 200.0  # 500 - 150 * 2
    assert update_tokens(burst, start, 80.0, 2.0, 0.0).amount == 500.0
    assert update_tokens(burst, start, 20.0, 2.0, 0.0).amount == 660.0  # 500 + 80 * 2
    assert update_tokens(burst, start, 1000.0, 9.0, 0.0).amount == -2000  # no debt beyond the capacity
    other = strategy(cfs_quota_burst_period_seconds=20, cfs_quota_burst_percent=300)
    assert update_tokens(other, start, 250.0, 2.0, 0.0).amount == 0.0  # begun anew


def test_ticks_a_little_short_of_a_second_still_spend() -> None:
    burst = strategy(cfs_quota_burst_period_seconds=100, cfs_quota_burst_percent=300)
    tokens = Tokens(10_000.0, 20_000, 100, 0.0)
    for tick in range(1, 101):
        tokens = update_tokens(burst, tokens, 200.0, tick * 0.99, 0.0)
    # 99.0 s have passed: 98 or 99 whole ones at 100 a second.
    assert 10_000 - 9_900 <= tokens.amount <= 10_000 - 9_800


def test_a_container_without_savings_comes_down() -> None:
    limiting = policy({"cpuBurstStrategy": {"policy": "auto", "cfsQuotaBurstPeriodSeconds": 10}})
    state = BurstState(tokens={"u-web/main": Tokens(5.0, 2000, 10, 0.0)}, moved={"u-web/main": 50_000})
    busy = CpuUse(600.0, periods=10, throttled_periods=9)  # 120 % of the limit: spends 20 a second
    step = Burst().step(idle(web(busy, quota=100_000), at=1.0), limiting, state)
    assert step.state.tokens["u-web/main"].amount == -15.0
    assert values(step.plan, Knob.CPU_QUOTA)[MAIN] == 80_000


def test_a_period_of_zero_never_raises_a_quota() -> None:
    never = policy({"cpuBurstStrategy": {"policy": "auto", "cfsQuotaBurstPeriodSeconds": 0}})
    for throttled in (CpuUse(400.0, periods=10, throttled_periods=9), CpuUse(None, periods=10, throttled_periods=9)):
        step = Burst().step(idle(web(throttled)), never, BurstState())
        assert values(step.plan, Knob.CPU_QUOTA) == {}
        # a quota that an earlier policy had raised comes down: 100,000 * 0.8
        raised = BurstState(moved={"u-web/main": 50_000})
        step = Burst().step(idle(web(throttled, quota=100_000)), never, raised)
        assert values(step.plan, Knob.CPU_QUOTA)[MAIN] == 80_000


def test_a_limiter_nobody_asks_for_is_dropped_after_two_periods() -> None:
    limiting = policy({"cpuBurstStrategy": {"policy": "auto", "cfsQuotaBurstPeriodSeconds": 10}})
    state = Burst().step(idle(web(CALM)), limiting, BurstState()).state
    assert set(Burst().step(idle(at=20.0), limiting, state).state.tokens) == {"u-web/main"}
    assert Burst().step(idle(at=21.0), limiting, state).state.tokens == {}


def test_the_random_start_is_the_seeds_and_nothing_elses() -> None:
    parts = {random_part(seed, f"u-{i}/main") for seed in (1, 2) for i in range(20)}
    assert len(parts) == 40
    assert all(0 <= part < 1 for part in parts)
    assert random_part(1, "u-0/main") == random_part(1, "u-0/main")


def test_a_limit_changed_while_its_quota_was_raised_does_not_come_back_as_it_was() -> None:
    raised = Burst().step(idle(web(THROTTLED)), AUTO, BurstState()).state
    assert raised.moved == {"u-web/main": 50_000}
    smaller = container(limits={"cpu": 300}, knobs={Knob.CPU_QUOTA: 30_000}, cpu=CALM)
    step = Burst().step(idle(pod("web", smaller, knobs={Knob.CPU_QUOTA: 30_000}), at=1.0), AUTO, raised)
    assert values(step.plan, Knob.CPU_QUOTA)[MAIN] == 30_000
    assert {w.back_to for w in step.plan.wants if w.knob is Knob.CPU_QUOTA} == {30_000}
    after = Burst().step(idle(pod("web", smaller, knobs={Knob.CPU_QUOTA: 30_000}), at=2.0), AUTO, step.state)
    assert values(after.plan, Knob.CPU_QUOTA) == {}


def test_a_reading_from_before_it_was_given_back_raises_nothing() -> None:
    plan = Burst().step(idle(web(CALM, quota=60_000)), AUTO, BurstState()).plan
    assert values(plan, Knob.CPU_QUOTA) == {}


def test_a_faster_node_bursts_from_its_smaller_limit() -> None:
    faster = node(4, 500.0, annotations={"node.koordinator.sh/cpu-normalization-ratio": "1.25"})
    step = Burst().step(observation_of(web(THROTTLED, quota=40_000), machine=faster), AUTO, BurstState())
    # 50,000 / 1.25 = 40,000; * 1.2 = 48,000
    assert values(step.plan, Knob.CPU_QUOTA) == {WEB: 48_000, MAIN: 48_000}


def test_what_it_remembers_survives_a_restart() -> None:
    limiting = policy({"cpuBurstStrategy": {"policy": "auto", "cfsQuotaBurstPeriodSeconds": 10}})
    state = Burst(7).step(idle(web(THROTTLED)), limiting, Burst(7).initial()).state
    assert msgspec.json.decode(msgspec.json.encode(state), type=BurstState) == state


quotas = st.tuples(
    st.integers(1000, 10**6), st.integers(100, 400), st.integers(0, 100), st.sampled_from(QuotaMove)
).map(lambda t: next_quota(strategy(cfs_quota_burst_percent=t[1]), t[0], t[0] + t[0] * t[2] // 100, t[3]))


@settings(max_examples=60, deadline=None)
@given(st.lists(quotas, min_size=1, max_size=4), st.integers(0, 10**5))
def test_containers_fit_in_their_pod_and_a_pod_at_rest_is_as_it_was(moved: list[QuotaStep], overhead: int) -> None:
    value, base = pod_quota(sum(q.now for q in moved) + overhead, moved)
    assert value >= sum(q.then for q in moved)
    assert all(q.base <= q.then <= q.ceiling for q in moved)
    assert base == sum(q.base for q in moved) + overhead
    at_rest = [replace(q, then=q.base) for q in moved]
    assert pod_quota(sum(q.now for q in moved) + overhead, at_rest)[0] == base


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 5000), st.floats(0, 60)), max_size=8),
    st.integers(1, 600),
    st.integers(100, 1000),
    st.floats(0, 1, exclude_max=True),
)
def test_savings_stay_within_the_capacity(
    uses: list[tuple[float, float]], period: int, percent: int, start: float
) -> None:
    burst = strategy(cfs_quota_burst_period_seconds=period, cfs_quota_burst_percent=percent)
    tokens, at = update_tokens(burst, None, 0.0, 0.0, start), 0.0
    assert 0 <= tokens.amount <= tokens.capacity / 2
    for use, passed in uses:
        at += passed
        tokens = update_tokens(burst, tokens, use, at, start)
        assert -tokens.capacity <= tokens.amount <= tokens.capacity
        assert 0 <= at - tokens.counted_seconds < 1 + 1e-6


@settings(max_examples=40, deadline=None)
@given(
    st.text(max_size=60)
    | st.dictionaries(
        st.sampled_from(["policy", "cpuBurstPercent"]), st.none() | st.integers() | st.text(max_size=9)
    ).map(json.dumps)
)
def test_no_annotation_breaks_the_tick(note: str) -> None:
    plan = Burst().step(idle(web(THROTTLED, annotation=note)), AUTO, BurstState()).plan
    assert all(w.value >= 1 for w in plan.wants if isinstance(w.value, int))
