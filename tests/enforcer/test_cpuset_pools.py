"""CPUs by what the scheduler gave out: bound pods, share pools, NUMA nodes, SYSTEM, the kubelet's static manager."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.allocation.cpu_topology import Processor, parse_cpus, regular_topology
from cotenant.base.kubernetes.qos import QosClass
from cotenant.enforcer.contract import NO_LIMIT, Knob, KubeQos, NodeReading, PodReading, StrategyPlan
from cotenant.enforcer.decide.container_resources import container_resources
from cotenant.enforcer.observe.cpusets import beside_static_kubelet
from cotenant.enforcer.report.topology_writer import MachineCpus, node_cpus
from cotenant.enforcer.strategies.cpuset_pools import CpusetPools
from tests.enforcer.readings import GIB, container, observation_of, pod, policy, values

STATUS = "scheduling.koordinator.sh/resource-status"
SYSTEM = {"node.koordinator.sh/system-qos-resource": '{"cpuset": "7"}'}
WEB = "kubepods/burstable/podu-web/id-main"


def machine(**others: Any) -> NodeReading:
    """8 CPUs, 0-3 on NUMA node 0 and 4-7 on node 1."""
    facts = {"kubelet_static_cpus": False, **others}
    return NodeReading("n1", tuple(Processor(i, i, i // 4, i // 4) for i in range(8)), 8 * GIB, 4 * GIB, **facts)


def given_pod(name: str, qos: QosClass, cpus: str = "", numa: tuple[int, ...] = (), **others: Any) -> PodReading:
    status: dict[str, Any] = {"cpuset": cpus} if cpus else {}
    if numa:
        status["numaNodeResources"] = [{"node": n, "resources": {"cpu": "2"}} for n in numa]
    notes = {STATUS: json.dumps(status)} if status else {}
    asks = {"cpu": others.pop("asks", 8000)}
    return pod(name, container("main", requests=asks), container("side"), qos=qos, annotations=notes, **others)


def web(qos: QosClass = QosClass.LS, **others: Any) -> PodReading:
    return pod("web", container(), qos=qos, **others)


def decided(*pods: PodReading, node: NodeReading | None = None, of: Any = None, **how: Any) -> StrategyPlan:
    return CpusetPools(**how).step(observation_of(*pods, machine=node or machine()), of or policy(), None).plan


def cpus(*pods: PodReading, **how: Any) -> dict[str, Any]:
    return values(decided(*pods, **how), Knob.CPUSET_CPUS)


def test_bound_pods_run_on_their_cpus_without_a_quota_and_the_rest_is_shared() -> None:
    plan = decided(given_pod("db", QosClass.LSR, "1-2"), given_pod("rt", QosClass.LSE, "4"), web())
    at = "kubepods/burstable/podu-"
    assert values(plan, Knob.CPUSET_CPUS) == {
        f"{at}db/id-main": "1-2",
        f"{at}db/id-side": "1-2",
        f"{at}rt/id-main": "4",
        f"{at}rt/id-side": "4",
        WEB: "0,3,5-7",
    }
    unlimited = [f"{at}{name}{part}" for name in ("db", "rt") for part in ("", "/id-main", "/id-side")]
    assert values(plan, Knob.CPU_QUOTA) == dict.fromkeys(unlimited, NO_LIMIT)


def test_who_names_more_cpus_than_it_asks_for_gets_none_and_shuts_nobody_out() -> None:
    plan = decided(given_pod("db", QosClass.LSE, "0-6", asks=2000), web())
    assert values(plan, Knob.CPUSET_CPUS) == {}
    assert values(plan, Knob.CPU_QUOTA) == {}
    assert [v.reason for v in plan.verdicts] == ["AssignedCpusNotRequested"]
    exact = decided(given_pod("db", QosClass.LSE, "0-1", asks=2000), web())
    assert values(exact, Knob.CPUSET_CPUS)[WEB] == "2-7"


def test_numa_nodes_choose_the_part_of_the_pool() -> None:
    assert (
        cpus(given_pod("db", QosClass.LSR, "5"), given_pod("near", QosClass.LS, numa=(1,)))[
            "kubepods/burstable/podu-near/id-main"
        ]
        == "4,6-7"
    )


def test_reserved_and_exclusive_system_cpus_are_not_shared() -> None:
    notes = {**SYSTEM, "node.koordinator.sh/reservation": '{"reservedCPUs": "0-1"}'}
    assert cpus(web(), node=machine(annotations=notes)) == {WEB: "2-6"}
    lent = {"node.koordinator.sh/system-qos-resource": '{"cpuset": "7", "cpusetExclusive": false}'}
    assert cpus(web(), node=machine(annotations=lent)) == {}  # everything is shared: nothing to say


def test_system_pods_get_the_systems_cpus_when_there_are_any() -> None:
    assert cpus(web(QosClass.SYSTEM), node=machine(annotations=SYSTEM)) == {WEB: "7"}
    assert cpus(web(QosClass.SYSTEM)) == {}


@pytest.mark.parametrize(
    ("qos", "kube", "static", "moved"),
    [
        (QosClass.NONE, KubeQos.BURSTABLE, False, True),
        (QosClass.NONE, KubeQos.BURSTABLE, True, False),
        (QosClass.LS, KubeQos.BURSTABLE, True, True),
        (QosClass.NONE, KubeQos.BEST_EFFORT, False, False),
        (QosClass.BE, KubeQos.BEST_EFFORT, False, False),
    ],
)
def test_who_is_moved_to_the_share_pool(qos: QosClass, kube: KubeQos, static: bool, moved: bool) -> None:
    cpusets = cpus(given_pod("db", QosClass.LSR, "0"), web(qos, kube=kube), node=machine(kubelet_static_cpus=static))
    assert any("podu-web" in path for path in cpusets) is moved


def test_cpus_that_the_kubelet_gave_to_one_pod_are_nobody_elses_and_it_keeps_them() -> None:
    node = machine(kubelet_static_cpus=True, kubelet_cpus={"default/own": frozenset({2, 3})})
    own = pod("own", container(), qos=QosClass.LS, kube=KubeQos.GUARANTEED)
    # 8 CPUs without 2 and 3; the pod itself is the kubelet's to place, whatever its label says
    assert cpus(own, web(), node=node) == {WEB: "0-1,4-7"}


def test_where_the_node_offers_cores_a_pod_with_claims_keeps_its_cpus_and_the_others_are_kept_off() -> None:
    batch = given_pod("job", QosClass.BE, kube=KubeQos.BEST_EFFORT)
    claimed = [
        pod(f"own-{qos}", container(), qos=qos, kube=kube, claims=True)
        for qos, kube in [(QosClass.LS, KubeQos.BURSTABLE), (QosClass.BE, KubeQos.BEST_EFFORT)]
    ]
    at = "kubepods/besteffort/podu-job/id-"
    # 8 CPUs without the offered 2 and 3, for best effort too; containers of pods with claims stay where they are
    offering = machine(offered_cpus=frozenset({2, 3}))
    assert cpus(*claimed, web(), batch, node=offering) == dict.fromkeys((WEB, f"{at}main", f"{at}side"), "0-1,4-7")
    # without offered cores a claim is of another device, and its pod shares as all do: beside an LSE pod on CPU 5
    cpusets = cpus(given_pod("rt", QosClass.LSE, "5"), claimed[0])
    assert cpusets["kubepods/burstable/podu-own-LS/id-main"] == "0-4,6-7"


def test_best_effort_is_placed_by_numa_only_when_switched_on_and_not_held_otherwise() -> None:
    pods = (given_pod("db", QosClass.LSR, "4"), given_pod("rt", QosClass.LSE, "5"))
    batch = given_pod("job", QosClass.BE, numa=(1,), kube=KubeQos.BEST_EFFORT)
    at = "kubepods/besteffort/podu-job/id-main"
    assert at not in cpus(pods[0], batch)
    # LSR lends CPU 4, LSE keeps 5.
    assert cpus(*pods, batch, best_effort_pools=True)[at] == "4,6-7"
    suppressing = policy({"resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressPolicy": "cpuset"}})
    assert at not in cpus(*pods, batch, best_effort_pools=True, of=suppressing)
    bound = given_pod("job", QosClass.BE, "2", kube=KubeQos.BEST_EFFORT)
    assert cpus(bound)[at] == "2"
    assert cpus(bound, of=suppressing) == {}


def test_best_effort_is_kept_off_the_cpus_of_lse_pods_and_lent_those_of_lsr_pods() -> None:
    batch = given_pod("job", QosClass.BE, kube=KubeQos.BEST_EFFORT)
    pods = (given_pod("db", QosClass.LSR, "4"), given_pod("rt", QosClass.LSE, "5"))
    at = "kubepods/besteffort/podu-job/id-main"
    assert cpus(*pods, batch)[at] == "0-4,6-7"
    suppressing = policy({"resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressPolicy": "cpuset"}})
    assert at not in cpus(*pods, batch, of=suppressing)  # suppress leaves them out itself


def test_where_the_kubelet_gives_cpus_out_an_annotation_is_not_followed_and_the_pod_is_told() -> None:
    reading = given_pod("db", QosClass.LSE, "1-2")
    bound, node = replace(reading, spec=beside_static_kubelet(reading.spec)), machine(kubelet_static_cpus=True)
    plan = decided(bound, web(), node=node)
    # all 8 CPUs are shared, which is what the kubelet sets: nobody is moved
    assert values(plan, Knob.CPUSET_CPUS) == {} and values(plan, Knob.CPU_QUOTA) == {}
    assert container_resources(bound.spec, bound.spec.containers[0], policy()).cpuset_cpus is None
    published = node_cpus(observation_of(bound, machine=node), MachineCpus(regular_topology(1, 8, 1), {}))
    assert (published.pods, published.shared) == ((), frozenset(range(8)))
    (verdict,) = plan.verdicts
    assert verdict.reason == "KubeletOwnsCpus" and "names CPUs 1-2" in verdict.message


@pytest.mark.parametrize(("static", "policy_name"), [(True, "static"), (False, "none"), (None, "unknown")])
def test_the_kubelets_policy_is_published_as_what_is_known_of_it(static: bool | None, policy_name: str) -> None:
    observation = observation_of(machine=machine(kubelet_static_cpus=static))
    assert node_cpus(observation, MachineCpus(regular_topology(1, 8, 1), {})).kubelet_policy == policy_name


def test_an_empty_pool_moves_nobody_and_is_told() -> None:
    plan = decided(given_pod("db", QosClass.LSE, "0-7"), web())
    assert WEB not in values(plan, Knob.CPUSET_CPUS)
    assert [(v.subject, v.reason) for v in plan.verdicts] == [("default/web", "SharePoolEmpty")]


def test_cpus_that_went_offline_are_left_out_and_told() -> None:
    plan = decided(given_pod("db", QosClass.LSR, "7-9"))
    assert set(values(plan, Knob.CPUSET_CPUS).values()) == {"7"}
    assert [v.reason for v in plan.verdicts] == ["AssignedCpusOffline"]
    assert values(decided(given_pod("db", QosClass.LSR, "20")), Knob.CPUSET_CPUS) == {}


def test_an_annotation_that_cannot_be_read_is_told() -> None:
    plan = decided(pod("db", container(), qos=QosClass.LSR, annotations={STATUS: '{"cpuset": "3-1"}'}))
    assert plan.wants == ()
    assert [v.reason for v in plan.verdicts] == ["AnnotationUnreadable"]


def test_a_pod_that_asks_to_be_left_alone_is() -> None:
    label = {"runtimeproxy.koordinator.sh/skip-hookserver": "true"}
    assert cpus(given_pod("db", QosClass.LSR, "0"), web(labels=label)).keys() & {WEB} == set()


lists = st.sets(st.integers(0, 9), max_size=4).map(lambda s: ",".join(map(str, sorted(s))))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(list(QosClass)), lists, st.sets(st.integers(0, 2), max_size=2)), max_size=6),
    st.booleans(),
)
def test_nobody_shares_an_exclusive_cpu_and_nobody_gets_none(
    pods: list[tuple[QosClass, str, set[int]]], pools: bool
) -> None:
    readings = [given_pod(f"p{i}", qos, text, tuple(numa)) for i, (qos, text, numa) in enumerate(pods)]
    wants = cpus(*readings, web(), best_effort_pools=pools)
    exclusive = {c for qos, text, _ in pods if qos is QosClass.LSE for c in parse_cpus(text)}
    assert all(parse_cpus(text) <= set(range(8)) and text for text in wants.values())
    assert not parse_cpus(wants.get(WEB, "")) & exclusive
