"""CPU normalisation: a limit means the same work on a faster CPU."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.kubernetes.qos import QosClass
from cotenant.enforcer.contract import NO_LIMIT, CpuUse, Knob, KubeQos, PodReading
from cotenant.enforcer.decide.cpu_bandwidth import moved_by_burst, ratio_of
from cotenant.enforcer.strategies.burst import Burst, BurstState
from cotenant.enforcer.strategies.normalisation import Normalisation
from tests.enforcer.readings import container, node, observation_of, pod, policy, values

RATIO = "node.koordinator.sh/cpu-normalization-ratio"
WEB = "kubepods/burstable/podu-web"


def quotas_of(web: PodReading, ratio: str = "1.20", spec: Any = None) -> dict[str, Any]:
    machine = node(annotations={RATIO: ratio})
    return values(Normalisation().step(observation_of(web, machine=machine), policy(spec), None).plan, Knob.CPU_QUOTA)


def web(**others: Any) -> PodReading:
    main = container(limits={"cpu": 1000}, knobs={Knob.CPU_QUOTA: 100_000})
    return pod("web", main, knobs={Knob.CPU_QUOTA: 100_000}, **others)


@pytest.mark.parametrize("qos", [QosClass.LS, QosClass.NONE])
def test_a_limit_of_a_core_is_less_time_on_a_faster_cpu(qos: QosClass) -> None:
    # ceil(100,000 / 1.2) = 83,334
    assert quotas_of(web(qos=qos)) == {WEB: 83_334, f"{WEB}/id-main": 83_334}


@pytest.mark.parametrize("ratio", ["1", "1.00", "0.8", "0", "-2", "nan", "inf", "1e9", "fast", ""])
def test_a_ratio_that_is_not_above_one_changes_nothing(ratio: str) -> None:
    assert quotas_of(web(), ratio) == {}


@pytest.mark.parametrize(
    ("ratio", "reasons"), [("1.5", []), ("fast", ["RatioUnreadable"]), ("1e9", ["RatioUnreadable"])]
)
def test_a_ratio_that_is_no_number_is_told(ratio: str, reasons: list[str]) -> None:
    step = Normalisation().step(observation_of(machine=node(annotations={RATIO: ratio})), policy(), None)
    assert [v.reason for v in step.plan.verdicts] == reasons


@pytest.mark.parametrize(
    "others",
    [
        {"qos": QosClass.BE},
        {"qos": QosClass.LSR},
        {"qos": QosClass.SYSTEM},
        {"kube": KubeQos.BEST_EFFORT},
        {"annotations": {"scheduling.koordinator.sh/resource-status": '{"cpuset": "1"}'}},
        {"phase": "Failed"},
    ],
)
def test_pods_outside_the_share_pool_are_left_alone(others: dict[str, Any]) -> None:
    assert quotas_of(web(**others)) == {}


def test_without_limits_on_each_container_the_pod_stays_unlimited() -> None:
    main = container(limits={"cpu": 1000}, knobs={Knob.CPU_QUOTA: 100_000})
    two = pod("web", main, container("side", knobs={Knob.CPU_QUOTA: NO_LIMIT}), knobs={Knob.CPU_QUOTA: NO_LIMIT})
    assert quotas_of(two) == {f"{WEB}/id-main": 83_334}


def test_a_quota_has_one_owner() -> None:
    bursts = {"cpuBurstStrategy": {"policy": "auto"}}
    throttled = CpuUse(900.0, periods=10, throttled_periods=5)
    main = container(limits={"cpu": 1000}, knobs={Knob.CPU_QUOTA: 100_000}, cpu=throttled)
    moving = pod("web", main, knobs={Knob.CPU_QUOTA: 100_000})
    assert moved_by_burst(moving, policy(bursts), node())
    assert quotas_of(moving, spec=bursts) == {}
    machine = node(4, 900.0, annotations={RATIO: "1.20"})
    burst = Burst().step(observation_of(moving, machine=machine), policy(bursts), BurstState()).plan
    # 100,000 / 1.2 = 83,334; * 1.2 = 100,000
    assert values(burst, Knob.CPU_QUOTA)[f"{WEB}/id-main"] == 100_000


def test_a_bursting_pod_at_rest_still_keeps_to_the_faster_nodes_limit() -> None:
    bursts = policy({"cpuBurstStrategy": {"policy": "cfsQuotaBurstOnly"}})
    machine = node(4, 900.0, annotations={RATIO: "1.25"})
    state, quota = BurstState(), 100_000
    for tick in range(3):
        main = container(limits={"cpu": 1000}, knobs={Knob.CPU_QUOTA: quota}, cpu=CpuUse(100.0))
        moving = pod("web", main, knobs={Knob.CPU_QUOTA: quota})
        step = Burst().step(observation_of(moving, machine=machine, at=float(tick)), bursts, state)
        assert values(step.plan, Knob.CPU_QUOTA) == {WEB: 80_000, f"{WEB}/id-main": 80_000}
        state, quota = step.state, 80_000


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=12) | st.floats().map(str))
def test_no_annotation_makes_a_ratio_below_one_or_absurd(text: str) -> None:
    assert 1 <= ratio_of(node(annotations={RATIO: text})) <= 100


@settings(max_examples=50, deadline=None)
@given(st.floats(1.01, 100), st.integers(1, 200_000))
def test_a_normalised_quota_is_one_that_the_kernel_takes(ratio: float, limit: int) -> None:
    main = container(limits={"cpu": limit}, knobs={Knob.CPU_QUOTA: limit * 100})
    quota = quotas_of(pod("web", main), str(ratio))[f"{WEB}/id-main"]
    assert 1000 <= quota <= max(limit * 100, 1000)
    assert quota >= limit * 100 / ratio - 1e-6


@pytest.mark.parametrize(
    "facts",
    [
        {"kubelet_static_cpus": True, "kubelet_cpus": {"default/web": frozenset({2})}},
        {"kubelet_static_cpus": None, "kubelet_shared": frozenset({0, 1, 3})},
    ],
    ids=["by-podresources", "by-cgroups"],
)
def test_a_pod_to_which_the_kubelet_gave_cpus_keeps_its_quota(facts: dict[str, Any]) -> None:
    main = container(limits={"cpu": 1000}, knobs={Knob.CPU_QUOTA: 100_000, Knob.CPUSET_CPUS: "2"})
    own = pod("web", main, kube=KubeQos.GUARANTEED, knobs={Knob.CPU_QUOTA: 100_000})
    at = observation_of(own, machine=node(annotations={RATIO: "1.20"}, **facts))
    assert values(Normalisation().step(at, policy(), None).plan, Knob.CPU_QUOTA) == {}
    bursts = policy({"cpuBurstStrategy": {"policy": "auto"}})
    assert values(Burst().step(at, bursts, Burst().initial()).plan, Knob.CPU_QUOTA) == {}
