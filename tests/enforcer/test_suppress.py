"""Best effort gives way: protection, the two policies round by round, starvation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.allocation.cpu_topology import parse_cpus
from cotenant.base.kubernetes.protocol import RESOURCE_STATUS_ANNOTATION
from cotenant.base.kubernetes.qos import QosClass
from cotenant.enforcer.contract import (
    NO_LIMIT,
    CpuUse,
    Knob,
    KubeQos,
    Level,
    NodeForecast,
    Observation,
    StrategyPlan,
    Value,
)
from cotenant.enforcer.model.node_policy import NodePolicy
from cotenant.enforcer.settings import BestEffortSettings
from cotenant.enforcer.strategies.suppression.suppress import Suppress, SuppressState, floor_shares, quota_for
from tests.enforcer.readings import EVERY_KNOB, container, node, observation_of, pod, policy, values

TIER = "kubepods/besteffort"
BE: dict[str, Any] = {"qos": QosClass.BE, "kube": KubeQos.BEST_EFFORT}


def slo(suppress: str = "cfsQuota", **thresholds: Any) -> NodePolicy:
    return policy({"resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressPolicy": suppress, **thresholds}})


def node_with(
    online: float | None, job: float = 500.0, cpus: int = 10, tier: dict[Knob, Value] | None = None, **of: Any
) -> Observation:
    """`online` millicores of a latency-sensitive pod, `job` of a best-effort one, no system."""
    total = None if online is None else online + job
    observation = observation_of(
        pod("web", container(), qos=QosClass.LS, cpu=CpuUse(online)),
        pod("job", container(), cpu=CpuUse(job), **BE),
        machine=node(cpus, total, **of),
    )
    group = replace(observation.tiers[KubeQos.BEST_EFFORT], knobs=tier or {})
    return replace(observation, tiers={**observation.tiers, KubeQos.BEST_EFFORT: group})


def run(
    *worlds: Observation, at: NodePolicy | None = None, **suppress_settings: Any
) -> tuple[list[StrategyPlan], SuppressState]:
    strategy = Suppress(BestEffortSettings(**suppress_settings))
    state, plans = strategy.initial(), []
    for observation in worlds:
        step = strategy.step(observation, at or slo(), state)
        state = step.state
        plans.append(step.plan)
    return plans, state


def quotas(*worlds: Observation, at: NodePolicy | None = None, **run_settings: Any) -> list[Value | None]:
    return [values(p, Knob.CPU_QUOTA).get(TIER) for p in run(*worlds, at=at, **run_settings)[0]]


def test_a_policy_that_is_off_wants_nothing() -> None:
    off = policy({"resourceUsedThresholdWithBE": {"enable": False}})
    assert run(node_with(2000.0), at=off) == ([StrategyPlan()], SuppressState())


def test_switching_off_forgets_and_wants_nothing_any_more() -> None:
    strategy = Suppress()
    suppressed = strategy.step(node_with(2000.0), slo(), strategy.initial())
    assert suppressed.plan.wants
    off = policy({"resourceUsedThresholdWithBE": {"enable": False}})
    assert strategy.step(node_with(2000.0), off, suppressed.state).plan == StrategyPlan()


def test_without_a_tier_there_is_nothing_to_hold() -> None:
    assert Suppress().step(observation_of(machine=node(2, 0.0)), slo(), SuppressState()).plan.wants
    bare = replace(observation_of(machine=node(2, 0.0)), tiers={})
    assert Suppress().step(bare, slo(), SuppressState()).plan == StrategyPlan()


# protection


def test_the_tier_has_the_smallest_weight() -> None:
    (plan,), _ = run(node_with(2000.0))
    assert values(plan, Knob.CPU_SHARES) == {TIER: 2}
    assert values(plan, Knob.CPU_IDLE) == {}


def test_idle_where_it_is_chosen_and_the_kernel_has_it() -> None:
    (plan,), _ = run(node_with(2000.0), protect="idle")
    assert (values(plan, Knob.CPU_IDLE), values(plan, Knob.CPU_SHARES)) == ({TIER: 1}, {})
    old = replace(node_with(2000.0), supported=EVERY_KNOB - {Knob.CPU_IDLE})
    (plan,), _ = run(old, protect="idle")
    assert (values(plan, Knob.CPU_IDLE), values(plan, Knob.CPU_SHARES)) == ({}, {TIER: 2})


def test_no_protection_where_it_is_switched_off() -> None:
    (plan,), _ = run(node_with(2000.0), protect="none")
    assert {w.knob for w in plan.wants} == {Knob.CPU_QUOTA}


# policy cfsQuota


@pytest.mark.parametrize(
    ("millicores", "before", "after"),
    # a machine of 10 cores: 1,000,000 us; 1 % = 10,000, 10 % = 100,000
    [
        (4500, NO_LIMIT, 450_000),
        (-100, 450_000, 2000),
        (4550, 450_000, 450_000),  # 5,000 more: not moved
        (4450, 450_000, 450_000),  # 5,000 less: not moved
        (4600, 450_000, 460_000),  # exactly 1 %: moved
        (4400, 450_000, 440_000),
        (10_000, 450_000, 550_000),  # growth is capped
        (0, 8000, 2000),  # the least is always reached
        (10, NO_LIMIT, 2000),
        (21, NO_LIMIT, 2100),  # upstream would leave it without a quota: |2100 + 1| < 10,000
    ],
)
def test_the_next_quota(millicores: int, before: int, after: int) -> None:
    assert quota_for(millicores, before, 10_000) == after


def test_the_quota_follows_the_others_down_at_once_and_up_step_by_step() -> None:
    # 65 % of 10000 = 6500, without 2000, 6000, 1000: targets 4500, 500, 5500
    cpu_quotas = quotas(node_with(2000.0), node_with(6000.0), *[node_with(1000.0)] * 6)
    assert cpu_quotas == [450_000, 50_000, 150_000, 250_000, 350_000, 450_000, 550_000, 550_000]


def test_one_tick_from_a_load_step_to_suppression() -> None:
    assert quotas(node_with(500.0), node_with(6400.0))[-1] == 10_000


def test_a_quota_that_stood_there_before_us_is_where_growth_begins() -> None:
    assert quotas(node_with(1000.0, tier={Knob.CPU_QUOTA: 20_000})) == [120_000]


def test_a_writer_who_takes_the_quota_away_does_not_speed_up_growth() -> None:
    wild = node_with(1000.0, tier={Knob.CPU_QUOTA: NO_LIMIT})
    assert quotas(node_with(6000.0), wild) == [50_000, 150_000]


def test_without_figures_the_last_quota_holds() -> None:
    assert quotas(node_with(None)) == [None]
    assert quotas(node_with(6000.0), node_with(None), node_with(6000.0)) == [50_000, 50_000, 50_000]


def test_at_a_threshold_of_100_percent_no_quota_is_narrower_than_the_machine() -> None:
    everything = slo(cpuSuppressThresholdPercent=100)
    # whatever others use; without protection by weight the quota still follows them, and at 99 % too
    assert quotas(node_with(2000.0), node_with(9000.0), at=everything) == [1_000_000, 1_000_000]
    assert quotas(node_with(2000.0), at=everything, protect="none") == [800_000]
    assert quotas(node_with(2000.0), at=slo(cpuSuppressThresholdPercent=99)) == [790_000]


def test_at_a_threshold_of_100_percent_what_is_reserved_and_not_used_stays_free() -> None:
    everything = slo(cpuSuppressThresholdPercent=100)
    reserving = node_with(2000.0, capacity={"cpu": 10_000}, allocatable={"cpu": 9000})
    assert quotas(reserving, at=everything) == [900_000]


def test_after_interference_best_effort_gets_back_step_by_step_what_it_may_use() -> None:
    strategy, at, state, steps = Suppress(), slo(cpuSuppressThresholdPercent=100), SuppressState(), []
    # held at 500 m, on one CPU; then free: a tenth of the machine a tick, on as many CPUs as the quota fills
    for bound in [None, 500, *[None] * 11]:
        step = strategy.step(node_with(2000.0), at, state, cap_millicores=bound)
        state = step.state
        cpus = values(step.plan, Knob.CPUSET_CPUS).get(TIER)
        steps.append((values(step.plan, Knob.CPU_QUOTA)[TIER], cpus))
    grown = [(50_000 + 100_000 * n, f"0-{n}") for n in range(1, 10)]
    assert steps == [(1_000_000, None), (50_000, "0"), *grown, (1_000_000, None), (1_000_000, None)]


@pytest.mark.parametrize("suppress", ["cpuset", "cfsQuota"])
def test_interference_leaves_best_effort_fewer_cpus_under_either_policy(suppress: str) -> None:
    # of 2 CPUs: policy cpuset alone never takes one of them, and a quota of one core would still run on both
    step = Suppress().step(node_with(600.0, cpus=2), slo(suppress), SuppressState(), cap_millicores=700)
    assert set(values(step.plan, Knob.CPUSET_CPUS).items()) == {
        (path, "0") for path in (TIER, f"{TIER}/podu-job", f"{TIER}/podu-job/id-main")
    }


def test_a_promised_share_is_kept() -> None:
    # 6500 - 9000 is negative; 20 % of 10000 = 2000
    assert quotas(node_with(9000.0), at=slo(cpuSuppressMinPercent=20)) == [200_000]


def test_a_quota_leaves_the_cpus_of_lse_pods_alone() -> None:
    observation = node_with(2000.0)
    owner = pod(
        "db",
        container(requests={"cpu": 10_000}),
        qos=QosClass.LSE,
        annotations={RESOURCE_STATUS_ANNOTATION: '{"cpuset": "8-9"}'},
    )
    (plan,), _ = run(replace(observation, pods=(*observation.pods, owner)))
    assert values(plan, Knob.CPUSET_CPUS) == dict.fromkeys(
        (TIER, f"{TIER}/podu-job", f"{TIER}/podu-job/id-main"), "0-7"
    )
    (plan,), _ = run(observation)
    assert values(plan, Knob.CPUSET_CPUS) == {}


def test_best_effort_is_not_moved_where_no_cpu_is_left_for_it() -> None:
    owner = pod(
        "db",
        container(requests={"cpu": 10_000}),
        qos=QosClass.LSE,
        annotations={RESOURCE_STATUS_ANNOTATION: '{"cpuset": "0-9"}'},
    )
    observation = replace(node_with(2000.0), pods=(*node_with(2000.0).pods, owner))
    (plan,), _ = run(observation)
    assert values(plan, Knob.CPUSET_CPUS) == {}
    (plan,), _ = run(observation, at=slo("cpuset"))
    assert [(v.reason, v.warning) for v in plan.verdicts] == [("FewCpus", True)]


# policy cpuset


def cpusets(*worlds: Observation, **run_settings: Any) -> list[dict[str, Value]]:
    return [values(p, Knob.CPUSET_CPUS) for p in run(*worlds, at=slo("cpuset"), **run_settings)[0]]


def test_tier_pods_and_containers_get_the_same_cpus_from_the_top_down() -> None:
    (cpus_of,) = cpusets(node_with(2000.0))
    # 4500 -> 5 CPUs
    assert list(cpus_of.items()) == [(p, "0-4") for p in (TIER, f"{TIER}/podu-job", f"{TIER}/podu-job/id-main")]


def test_cpus_shrink_at_once_and_grow_by_a_tenth() -> None:
    cpus_of = cpusets(node_with(2000.0), node_with(9000.0), *[node_with(1000.0)] * 6)
    # 5; -2500 -> 2; then one more a round up to 5500 -> 6
    assert [f[TIER] for f in cpus_of] == ["0-4", "0-1", "0-2", "0-3", "0-4", "0-5", "0-5", "0-5"]


@pytest.mark.parametrize("static", [True, None])
def test_where_the_kubelet_gives_cpus_out_or_may_do_so_only_containers_are_moved(static: bool | None) -> None:
    (cpus_of,) = cpusets(node_with(2000.0, kubelet_static_cpus=static))
    assert cpus_of == {f"{TIER}/podu-job/id-main": "0-4"}


def test_cpus_that_the_kubelet_keeps_free_of_others_are_not_best_efforts() -> None:
    (cpus_of,) = cpusets(node_with(2000.0, kubelet_static_cpus=None, kubelet_shared=frozenset(range(3, 10))))
    # 4500 -> 5 of the 7 CPUs where the kubelet lets others run
    assert cpus_of == {f"{TIER}/podu-job/id-main": "3-7"}


@pytest.mark.parametrize("by", ["cpuset", "cfsQuota"])
def test_pods_with_claims_keep_their_cpus_where_the_node_offers_cores_and_others_are_kept_off(by: str) -> None:
    observation = node_with(2000.0, offered_cpus=frozenset({0, 1}))
    (plan,), _ = run(
        replace(observation, pods=(*observation.pods, pod("own", container(), claims=True, **BE))), at=slo(by)
    )
    # 10 CPUs without the offered two; by cpuset the 5 of them that the target fills. The tier keeps the offered too.
    expected = {"cpuset": "2-6", "cfsQuota": "2-9"}
    assert values(plan, Knob.CPUSET_CPUS) == {f"{TIER}/podu-job/id-main": expected[by]}


def test_one_cpu_is_never_taken_away() -> None:
    (cpus_of,) = cpusets(node_with(900.0, cpus=1))
    assert set(cpus_of.values()) == {"0"}


def test_changing_the_policy_drops_what_the_other_one_held() -> None:
    strategy = Suppress()
    first = strategy.step(node_with(2000.0), slo("cpuset"), strategy.initial())
    second = strategy.step(node_with(2000.0), slo("cfsQuota"), first.state)
    assert values(second.plan, Knob.CPUSET_CPUS) == {}
    assert values(second.plan, Knob.CPU_QUOTA) == {TIER: 450_000}
    assert (second.state.cpus, second.state.quota) == (None, 450_000)


# interference and forecast


def test_what_interference_leaves_is_a_further_bound() -> None:
    step = Suppress().step(node_with(2000.0), slo(), SuppressState(), cap_millicores=300)
    assert values(step.plan, Knob.CPU_QUOTA) == {TIER: 30_000}
    wide = Suppress().step(node_with(2000.0), slo(), SuppressState(), cap_millicores=9000)
    assert values(wide.plan, Knob.CPU_QUOTA) == {TIER: 450_000}


def test_an_expected_peak_is_kept_free_ahead() -> None:
    # at 1700 s the next half hour, expected 3000 higher, is 100 s away: 6500 - 2000 - 3000 = 1500
    ahead = NodeForecast(0.0, 1e9, q95_cpu_millicores=(2500, 5500))
    soon = replace(node_with(2000.0), forecast=ahead, wall_seconds=1700.0)
    assert quotas(soon, suppress_target="forecast-ahead") == [150_000]
    assert quotas(soon) == [450_000]


# starvation


def test_the_weight_that_yields_a_share() -> None:
    # x / (x + 4096) = 20 % -> 1024
    assert floor_shares(20, 4096) == 1024
    assert floor_shares(0, 4096) == 2
    assert floor_shares(100, 4096) == 262_144


def starving(busy: bool = True, job: float = 50.0) -> Observation:
    observation = node_with(10_000.0 - job if busy else 5000.0, job=job)
    burstable = replace(observation.tiers[KubeQos.BURSTABLE], knobs={Knob.CPU_SHARES: 9216})
    return replace(observation, tiers={**observation.tiers, KubeQos.BURSTABLE: burstable})


def shares(*worlds: Observation, **run_settings: Any) -> list[Value]:
    plans, _ = run(*worlds, at=slo(**run_settings), starve_seconds=3.0)
    return [values(p, Knob.CPU_SHARES)[TIER] for p in plans]


def test_a_promised_share_is_given_by_weight_to_who_starves() -> None:
    # 10 % beside 9216: 9216 * 10 / 90 = 1024, from the third second on; back after 3 s with idle CPU
    worlds = [*[starving()] * 3, starving(job=1000.0), *[starving(busy=False)] * 3]
    assert shares(*worlds, cpuSuppressMinPercent=10) == [2, 2, 1024, 1024, 1024, 1024, 2]


def test_a_weight_that_yields_less_than_was_promised_grows_by_what_is_missing() -> None:
    # 950 of 1000 promised: 1.05 / 0.95 of 1024; then enough, and it stays; too much: back, but not below 1024
    uses = [50.0, 50.0, 50.0, 950.0, 1020.0, 1400.0, 1400.0]
    cpu_shares = shares(*(starving(job=job) for job in uses), cpuSuppressMinPercent=10)
    assert cpu_shares == [2, 2, 1024, 1132, 1132, 1024, 1024]


def test_what_a_lifted_tier_gets_at_most_is_bounded() -> None:
    # best effort that does not want its share is given half as much weight again, and no more
    assert max(shares(*[starving()] * 9, cpuSuppressMinPercent=10)) == 1536


def test_without_a_promise_nobody_is_lifted() -> None:
    assert set(shares(*[starving()] * 6)) == {2}


def test_best_effort_that_wants_nothing_does_not_starve() -> None:
    assert set(shares(*[starving(busy=False)] * 6, cpuSuppressMinPercent=10)) == {2}


def test_waiting_tasks_show_that_it_wants_more() -> None:
    observation = starving(busy=False)
    tier = replace(observation.tiers[KubeQos.BEST_EFFORT], cpu_pressure_percent=80.0)
    pressed = replace(observation, tiers={**observation.tiers, KubeQos.BEST_EFFORT: tier})
    assert shares(*[pressed] * 3, cpuSuppressMinPercent=10)[-1] == 1024


# what is told


def test_pods_whose_label_and_place_disagree_are_told_of() -> None:
    pods = [pod("a", qos=QosClass.BE, kube=KubeQos.BURSTABLE), pod("b", qos=QosClass.LS, kube=KubeQos.BEST_EFFORT)]
    step = Suppress().step(observation_of(*pods, machine=node(2, 0.0)), slo(), SuppressState())
    assert [(v.subject, v.reason) for v in step.plan.verdicts] == [
        ("default/a", "OutsideTier"),
        ("default/b", "InsideTier"),
    ]


def test_every_want_says_why() -> None:
    (plan,), _ = run(node_with(2000.0))
    assert [w.why for w in plan.wants if w.knob is Knob.CPU_QUOTA] == [
        "65 % of 10000 m minus 2000 m of other pods and the system"
    ]


@st.composite
def stories(draw: st.DrawFn) -> tuple[NodePolicy, list[Observation]]:
    at = slo(
        draw(st.sampled_from(["cpuset", "cfsQuota"])),
        cpuSuppressThresholdPercent=draw(st.integers(0, 100)),
        **({"cpuSuppressMinPercent": draw(st.integers(0, 100))} if draw(st.booleans()) else {}),
    )
    cpus = draw(st.integers(1, 12))
    use = st.one_of(st.none(), st.floats(0, 15_000))
    return at, [node_with(draw(use), draw(st.floats(0, 12_000)), cpus) for _ in range(draw(st.integers(1, 6)))]


@settings(max_examples=80, deadline=None)
@given(stories(), st.sampled_from(["shares", "idle", "none"]))
def test_whatever_happens_values_are_sound_and_only_best_effort_is_touched(
    story: tuple[NodePolicy, list[Observation]], protect: Any
) -> None:
    at, worlds = story
    plans, state = run(*worlds, at=at, protect=protect)
    for plan, observation in zip(plans, worlds, strict=True):
        for want in plan.wants:
            assert want.path == TIER or want.path.startswith(f"{TIER}/")
            if want.knob is Knob.CPU_QUOTA:
                assert isinstance(want.value, int) and 2000 <= want.value <= max(
                    observation.node.cpu_millicores * 110, 2000
                )
            if want.knob is Knob.CPUSET_CPUS:
                assert want.value != ""
        assert len({(w.path, w.knob) for w in plan.wants}) == len(plan.wants)
    assert msgspec.json.decode(msgspec.json.encode(state), type=SuppressState) == state


@settings(max_examples=60, deadline=None)
@given(stories())
def test_an_unchanged_world_settles_and_then_repeats_the_same_wants(
    story: tuple[NodePolicy, list[Observation]],
) -> None:
    at, worlds = story
    plans, _ = run(*worlds, *[worlds[-1]] * 14, at=at, starve_seconds=1000.0)
    assert plans[-1].wants == plans[-2].wants
    level = {w.level for w in plans[-1].wants}
    assert level <= {Level.QOS, Level.POD, Level.CONTAINER}


@settings(max_examples=60, deadline=None)
@given(stories(), st.lists(st.integers(0, 20_000), min_size=1, max_size=3).map(tuple))
def test_forecast_ahead_never_gives_more_than_reactive(
    story: tuple[NodePolicy, list[Observation]], ahead: tuple[int, ...]
) -> None:
    at, worlds = story
    worlds = [replace(w, forecast=NodeForecast(w.wall_seconds, 1e12, q95_cpu_millicores=ahead)) for w in worlds]
    reactive, _ = run(worlds[0], at=at)
    looking, _ = run(worlds[0], at=at, suppress_target="forecast-ahead", ahead_seconds=3600.0)
    for knob, size in ((Knob.CPU_QUOTA, int), (Knob.CPUSET_CPUS, lambda text: len(parse_cpus(text)))):
        more, less = values(reactive[0], knob), values(looking[0], knob)
        assert more.keys() == less.keys()
        assert all(size(less[path]) <= size(more[path]) for path in more)
