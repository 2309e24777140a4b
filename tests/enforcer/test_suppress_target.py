"""How much CPU best effort may use: worked numbers of Koordinator's formula."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.kubernetes.protocol import NODE_RESERVATION_ANNOTATION, RAW_ALLOCATABLE_ANNOTATION
from cotenant.base.kubernetes.qos import PriorityClass, QosClass
from cotenant.enforcer.contract import (
    CpuUse,
    GroupReading,
    HostApplicationReading,
    KubeQos,
    Level,
    NodeForecast,
    Observation,
)
from cotenant.enforcer.strategies.suppression.suppress import Suppress, SuppressState
from cotenant.enforcer.strategies.suppression.suppress_target import (
    NodeCpuDemand,
    demand,
    online_ahead,
    reserved_millicores,
)
from tests.enforcer.readings import node, observation_of, pod, policy

BE: dict[str, Any] = {"qos": QosClass.BE, "kube": KubeQos.BEST_EFFORT}


def target(at: Observation, **thresholds: Any) -> int | None:
    """As suppression applies it; millicores."""
    rules = policy({"resourceUsedThresholdWithBE": {"enable": True, **thresholds}})
    return Suppress().step(at, rules, SuppressState()).plan.best_effort_target_millicores


def node_with(total: float | None, **of_node: Any) -> Observation:
    return observation_of(
        pod("web", qos=QosClass.LS, cpu=CpuUse(1200.9)),
        pod("plain", cpu=CpuUse(300.0)),
        pod("job", cpu=CpuUse(900.0), **BE),
        pod("new", qos=QosClass.LS, cpu=CpuUse(None)),
        machine=node(10, total, **of_node),
    )


def test_who_uses_what() -> None:
    # LS 1200 (cut off) + 300 without a label; system = 3000 - 1500 - 900 = 600
    assert demand(node_with(3000.0)) == NodeCpuDemand(10_000, 1500, 900, 600, 0)


def test_the_target_leaves_room_for_everybody_else() -> None:
    # 65 % of 10000 = 6500; - 1500 - 600 = 4400
    assert target(node_with(3000.0)) == 4400
    # 40 % of 10000 = 4000; - 2100 = 1900
    assert target(node_with(3000.0), cpuSuppressThresholdPercent=40) == 1900


def test_it_may_be_negative_unless_a_share_is_promised() -> None:
    # 10 % of 10000 = 1000; - 2100 = -1100; promised 5 % of 10000 = 500
    assert target(node_with(3000.0), cpuSuppressThresholdPercent=10) == -1100
    assert target(node_with(3000.0), cpuSuppressThresholdPercent=10, cpuSuppressMinPercent=5) == 500


def test_what_is_reserved_counts_where_the_system_uses_less() -> None:
    # 6500 of the threshold, 1500 of the pods, the larger of 600 and 1000
    assert target(node_with(3000.0, capacity={"cpu": 10_000}, allocatable={"cpu": 9_000})) == 4000


@given(ratio=st.integers(100, 400), reserved=st.integers(0, 3000))
def test_what_the_kubelet_keeps_is_the_same_on_an_amplified_node(ratio: int, reserved: int) -> None:
    raw = 4000 - reserved
    annotations = {RAW_ALLOCATABLE_ANNOTATION: json.dumps({"cpu": f"{raw}m"})}
    allocatable = {"cpu": raw * ratio // 100}
    machine = node(4, capacity={"cpu": 4000}, allocatable=allocatable, annotations=annotations)
    assert reserved_millicores(machine) == reserved


@pytest.mark.parametrize(
    ("annotation", "millicores"),
    [
        ('{"resources": {"cpu": "1500m"}}', 1500),
        ('{"resources": {"cpu": 2}}', 2000),
        ('{"reservedCPUs": "0-2", "resources": {"cpu": "1"}}', 3000),  # CPUs by number win over the amount
        ('{"resources": {"cpu": "1"}, "applyPolicy": "ReservedCPUsOnly"}', 0),
        ("{", 0),
        ('{"resources": {"cpu": "many"}}', 0),
    ],
)
def test_the_annotation_reserves(annotation: str, millicores: int) -> None:
    assert reserved_millicores(node(4, annotations={NODE_RESERVATION_ANNOTATION: annotation})) == millicores


def test_a_kubernetes_best_effort_pod_counts_as_best_effort_whatever_its_label() -> None:
    cpu_demand = demand(
        observation_of(pod("x", qos=QosClass.LS, kube=KubeQos.BEST_EFFORT, cpu=CpuUse(500)), machine=node(4, 500.0))
    )
    assert cpu_demand == NodeCpuDemand(4000, 0, 500, 0, 0)


def test_host_applications_count_by_their_class() -> None:
    groups = [GroupReading(f"app{i}", Level.HOST_APPLICATION, CpuUse(400.0)) for i in range(2)]
    apps = tuple(
        HostApplicationReading(q.value, q, PriorityClass.NONE, g)
        for q, g in zip((QosClass.LS, QosClass.BE), groups, strict=True)
    )
    base = observation_of(machine=node(4, 1000.0))
    cpu_demand = demand(Observation(0.0, 0.0, base.node, host_applications=apps))
    # of 1000 both use 400, which leaves 200 to the system
    assert cpu_demand == NodeCpuDemand(4000, 400, 400, 200, 0)


def test_an_unknown_use_of_the_machine_is_not_zero() -> None:
    assert demand(node_with(None)) is None


CPU = st.one_of(st.none(), st.floats(0, 1e6, allow_nan=False))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(list(QosClass)), st.sampled_from(list(KubeQos)), CPU), max_size=5), CPU)
def test_no_term_is_negative_and_more_use_of_others_never_raises_the_target(
    pods: list[tuple[QosClass, KubeQos, float | None]], total: float | None
) -> None:
    readings = [pod(f"p{i}", qos=q, kube=k, cpu=CpuUse(c)) for i, (q, k, c) in enumerate(pods)]
    before = observation_of(*readings, machine=node(8, total))
    cpu_demand, first = demand(before), target(before)
    more = target(observation_of(*readings, machine=node(8, None if total is None else total + 500)))
    assert (cpu_demand is None) == (first is None) == (total is None)
    if cpu_demand is not None and first is not None and more is not None:
        assert min(cpu_demand.latency_sensitive, cpu_demand.best_effort, cpu_demand.system, cpu_demand.reserved) >= 0
        assert more <= first


def forecast(*values: int, start: float = 0.0, valid: float = 1e9) -> NodeForecast:
    return NodeForecast(start, valid, q95_cpu_millicores=values)


@pytest.mark.parametrize(
    ("at", "ahead", "online"),
    [
        (0.0, 600.0, 1000),  # the same half hour: no rise
        (1300.0, 600.0, 2000),  # 1300 + 600 reaches the next one: 3000 - 2000 = 1000 more
        (0.0, 1800.0, 2000),
        (1800.0, 3600.0, 1000),  # from 3000 down to 500
        (5400.0, 600.0, 1000),  # behind the last one
        (-10.0, 600.0, 1000),  # before the first one
    ],
)
def test_room_is_kept_for_an_expected_rise(at: float, ahead: float, online: int) -> None:
    assert online_ahead(1000, forecast(2000, 3000, 500), at, ahead) == online


def test_the_rise_never_leads_above_what_is_forecast_for_the_whole_node() -> None:
    assert online_ahead(2900, forecast(2000, 3000), 1700.0, 600.0) == 3000


def test_an_old_or_absent_forecast_changes_nothing() -> None:
    assert online_ahead(1000, forecast(2000, 3000, valid=1500.0), 1700.0, 600.0) == 1000
    assert online_ahead(1000, None, 0.0, 600.0) == online_ahead(1000, forecast(), 0.0, 600.0) == 1000


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 10**6),
    st.lists(st.integers(0, 10**6), max_size=6).map(tuple),
    st.floats(-1e4, 2e4),
    st.floats(1, 1e5),
)
def test_looking_ahead_never_gives_best_effort_more(
    online: int, values: tuple[int, ...], at: float, ahead: float
) -> None:
    assert online_ahead(online, forecast(*values), at, ahead) >= online
