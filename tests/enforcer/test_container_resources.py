"""What a best-effort container gets: numbers derived from Koordinator's formulas."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.kubernetes.pod_resources import ContainerKind
from cotenant.base.kubernetes.protocol import EXTENDED_SPEC_ANNOTATION, RESOURCE_STATUS_ANNOTATION, SKIP_HOOKS_LABEL
from cotenant.base.kubernetes.qos import QosClass
from cotenant.enforcer.contract import NO_LIMIT, ContainerSpec, KubeQos, PodSpec
from cotenant.enforcer.decide.container_resources import (
    BATCH_CPU,
    BATCH_MEMORY,
    LEAVE,
    SHARES_MIN,
    ContainerSettings,
    container_resources,
    decision,
    pod_resources,
    quota_of,
    shares_of,
)
from cotenant.enforcer.model.node_policy import NodePolicy, decode

MIB = 2**20
PLAIN = decode({})


def policy(suppress: str = "cpuset", enable: bool = True) -> NodePolicy:
    return decode({"resourceUsedThresholdWithBE": {"enable": enable, "cpuSuppressPolicy": suppress}})


def batch(cpu: int | None, memory: int | None, name: str = "main", limits: bool = True) -> ContainerSpec:
    amounts = {k: v for k, v in ((BATCH_CPU, cpu), (BATCH_MEMORY, memory)) if v is not None}
    return ContainerSpec(name, requests=amounts, limits=amounts if limits else {})


def pod(*containers: ContainerSpec, annotation: object = None, qos: QosClass = QosClass.BE, **more: Any) -> PodSpec:
    text = annotation if isinstance(annotation, str) else json.dumps(annotation)
    annotations = {} if annotation is None else {EXTENDED_SPEC_ANNOTATION: text}
    extra = {k: more.pop(k) for k in list(more) if k == "annotations"}
    annotations |= extra.get("annotations", {})
    return PodSpec("jobs", "p", "u", qos_class=qos, containers=containers, annotations=annotations, **more)


def of(spec: PodSpec, at: NodePolicy = PLAIN, ratio: float = 1.0, name: str = "main") -> ContainerSettings:
    container = next(c for c in (*spec.containers, *spec.init_containers) if c.name == name)
    return container_resources(spec, container, at, ratio)


@pytest.mark.parametrize(
    ("millicores", "shares"),
    # m * 1024 // 1000, within 2..262144
    [
        (-5, 2),
        (0, 2),
        (1, 2),
        (2, 2),
        (3, 3),
        (250, 256),
        (1000, 1024),
        (1500, 1536),
        (256_000, 262_144),
        (10**9, 262_144),
    ],
)
def test_shares_follow_the_request(millicores: int, shares: int) -> None:
    assert shares_of(millicores) == shares


@pytest.mark.parametrize(
    ("millicores", "ratio", "quota"),
    # m * 100, at least 1000; ceil(quota / ratio) above 1: 50000 / 1.2 = 41666.7; 1000 * 100 / 3 = 33333.3
    [
        (0, 1, -1),
        (-1, 1, -1),
        (5, 1, 1000),
        (500, 1, 50_000),
        (500, 1.2, 41_667),
        (1000, 3, 33_334),
        (500, 0.5, 50_000),
    ],
)
def test_quota_follows_the_limit(millicores: int, ratio: float, quota: int) -> None:
    assert quota_of(millicores, ratio) == quota


def test_the_annotation_decides() -> None:
    sides = {"requests": {BATCH_CPU: 500, BATCH_MEMORY: "64Mi"}, "limits": {BATCH_CPU: "1k", BATCH_MEMORY: "128Mi"}}
    spec = pod(batch(9999, 999 * MIB), annotation={"containers": {"main": sides}})
    # 500 * 1024 // 1000 = 512; 1k = 1000 millicores * 100 us
    assert of(spec) == ContainerSettings(512, 100_000, 128 * MIB)
    assert pod_resources(spec, PLAIN) == ContainerSettings(512, 100_000, 128 * MIB)


WIDE = {BATCH_CPU: 64_000, BATCH_MEMORY: 2**40}


@pytest.mark.parametrize(
    "annotation",
    [
        {"containers": {"main": {"requests": WIDE, "limits": WIDE}}},
        {"containers": {"main": {"requests": WIDE}}},
        {"containers": {"main": {"requests": WIDE, "limits": {BATCH_CPU: 0, BATCH_MEMORY: 0}}}},
        {"containers": {"main": {"requests": WIDE}, "other": {"limits": WIDE}}},
        "{",
    ],
)
def test_the_annotation_of_a_running_pod_never_widens_what_it_was_admitted_with(annotation: object) -> None:
    spec = pod(batch(500, 64 * MIB), annotation=annotation)
    admitted = ContainerSettings(512, 50_000, 64 * MIB)  # 500 * 1024 // 1000 shares, 500 * 100 us
    assert of(spec) == admitted
    assert replace(pod_resources(spec, PLAIN), broken="") == admitted


AMOUNTS = st.fixed_dictionaries({}, optional={BATCH_CPU: st.integers(0, 10**6), BATCH_MEMORY: st.integers(0, 2**41)})
SIDES = st.fixed_dictionaries({}, optional={"requests": AMOUNTS, "limits": AMOUNTS})


@given(AMOUNTS, AMOUNTS, SIDES)
@settings(max_examples=100)
def test_no_annotation_gives_a_pod_more_weight_or_a_looser_limit(
    requests: dict[str, int], limits: dict[str, int], sides: dict[str, dict[str, int]]
) -> None:
    container = ContainerSpec("main", requests=requests, limits=limits)
    admitted = decision(pod(container), PLAIN)
    annotated = decision(pod(container, annotation={"containers": {"main": sides}}), PLAIN)
    for plain, mine in ((admitted.pod, annotated.pod), (admitted.containers["main"], annotated.containers["main"])):
        assert (mine.cpu_shares or SHARES_MIN) <= (plain.cpu_shares or SHARES_MIN)
        for of_plain, of_mine in ((plain.cpu_quota, mine.cpu_quota), (plain.memory_limit, mine.memory_limit)):
            assert (of_plain or -1) < 0 or 0 < (of_mine or -1) <= (of_plain or -1)


def test_a_runtime_that_sees_no_resources_goes_by_the_annotation_alone() -> None:
    sides = {"requests": {BATCH_CPU: 500}, "limits": {BATCH_CPU: 500}}
    spec = pod(ContainerSpec("main"), annotation={"containers": {"main": sides}}, resources_known=False)
    assert of(spec) == ContainerSettings(512, 50_000, NO_LIMIT)


def test_without_it_the_containers_own_batch_requests_count() -> None:
    assert of(pod(batch(2000, 64 * MIB))) == ContainerSettings(2048, 200_000, 64 * MIB)


def test_a_pod_is_the_sum_of_its_containers() -> None:
    spec = pod(batch(500, 10 * MIB), batch(250, 20 * MIB, "side"))
    # shares of 750: 768; quota 75000; memory 30 MiB
    assert pod_resources(spec, PLAIN) == ContainerSettings(768, 75_000, 30 * MIB)
    assert pod_resources(spec, PLAIN, 1.5) == ContainerSettings(768, 50_000, 30 * MIB)


def test_one_container_without_a_limit_leaves_the_pod_without() -> None:
    spec = pod(batch(500, 10 * MIB), batch(250, None, "side", limits=False))
    assert pod_resources(spec, PLAIN) == ContainerSettings(768, NO_LIMIT, NO_LIMIT)
    assert of(spec, name="side") == ContainerSettings(256, NO_LIMIT, NO_LIMIT)


def test_a_sidecar_that_the_annotation_does_not_name_has_the_smallest_share_and_no_limit() -> None:
    spec = pod(
        batch(None, None), ContainerSpec("side"), annotation={"containers": {"main": {"limits": {BATCH_CPU: 500}}}}
    )
    assert of(spec, name="side") == ContainerSettings(2, NO_LIMIT, NO_LIMIT)
    assert pod_resources(spec, PLAIN).cpu_quota == NO_LIMIT


def test_no_quota_of_its_own_while_best_effort_as_a_whole_has_one() -> None:
    spec = pod(batch(500, MIB))
    assert of(spec, policy("cfsQuota")).cpu_quota == NO_LIMIT
    assert pod_resources(spec, policy("cfsQuota")).cpu_quota == NO_LIMIT
    assert of(spec, policy("cfsQuota", enable=False)).cpu_quota == 50_000
    assert of(spec, policy("cpuset")).cpu_quota == 50_000


@pytest.mark.parametrize("qos", [q for q in QosClass if q is not QosClass.BE])
def test_only_pods_labelled_best_effort_are_touched(qos: QosClass) -> None:
    spec = pod(batch(500, MIB), annotation={"containers": {"main": {"limits": {BATCH_CPU: 500}}}}, qos=qos)
    assert of(spec) == LEAVE == pod_resources(spec, PLAIN)


def test_a_best_effort_pod_without_batch_resources_is_left_alone() -> None:
    assert of(pod(ContainerSpec("main"))) == LEAVE
    assert pod_resources(pod(ContainerSpec("main")), PLAIN) == LEAVE


def test_a_pod_may_ask_to_be_left_alone() -> None:
    spec = pod(batch(500, MIB), labels={SKIP_HOOKS_LABEL: "true"})
    assert of(spec) == LEAVE == pod_resources(spec, PLAIN)


def test_whole_cpus_of_its_own_come_without_a_quota() -> None:
    annotations = {RESOURCE_STATUS_ANNOTATION: '{"cpuset": "2-3"}'}
    spec = pod(ContainerSpec("main", limits={"cpu": 2000}), qos=QosClass.LSR, annotations=annotations)
    assert of(spec) == ContainerSettings(None, NO_LIMIT, None, "2-3")
    assert pod_resources(spec, PLAIN) == ContainerSettings(None, NO_LIMIT)


def test_more_cpus_than_it_asks_for_do_not_free_a_pod_of_its_limit() -> None:
    annotations = {RESOURCE_STATUS_ANNOTATION: '{"cpuset": "2-3"}'}
    spec = pod(ContainerSpec("main", limits={"cpu": 500}), qos=QosClass.LS, annotations=annotations)
    assert of(spec) == LEAVE == pod_resources(spec, PLAIN)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"containers": 5}', '{"containers": {"main": {"limits": {"kubernetes.io/batch-cpu": "x"}}}}'],
)
def test_an_unreadable_annotation_changes_nothing_and_says_so(text: str) -> None:
    spec = pod(ContainerSpec("main"), annotation=text, resources_known=False)
    assert of(spec).empty and pod_resources(spec, PLAIN).empty
    assert "jobs/p" in of(spec).broken


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 200_000), st.integers(0, 2**40)), min_size=1, max_size=4),
    st.floats(0.5, 5, allow_nan=False),
    st.integers(0, 200_000),
)
def test_nothing_is_below_what_the_kernel_takes_and_no_child_above_its_parent(
    amounts: list[tuple[int, int]], ratio: float, first: int
) -> None:
    containers = tuple(batch(cpu, memory, f"c{i}") for i, (cpu, memory) in enumerate(amounts))
    spec = pod(*containers, init_containers=(batch(first, MIB, "init"),))
    pod_values = pod_resources(spec, PLAIN, ratio)
    for container in (*spec.containers, *spec.init_containers):
        own = container_resources(spec, container, PLAIN, ratio)
        if own == LEAVE:
            continue
        assert own.cpu_shares is not None and 2 <= own.cpu_shares <= 262_144
        assert own.cpu_quota is not None and (own.cpu_quota == NO_LIMIT or own.cpu_quota >= 1000)
        assert own.memory_limit is not None and (own.memory_limit == NO_LIMIT or own.memory_limit > 0)
        if pod_values.cpu_quota is not None and pod_values.cpu_quota != NO_LIMIT:
            assert NO_LIMIT < own.cpu_quota <= pod_values.cpu_quota or container.name == "init"
            assert own.cpu_quota <= pod_values.cpu_quota


def sidecar(cpu: int | None, memory: int | None, name: str = "proxy") -> ContainerSpec:
    return replace(batch(cpu, memory, name), kind=ContainerKind.SIDECAR)


def before(cpu: int | None, memory: int | None, name: str = "setup") -> ContainerSpec:
    return replace(batch(cpu, memory, name), kind=ContainerKind.INIT)


@pytest.mark.parametrize("annotated", [False, True])
@pytest.mark.parametrize(
    ("early", "shares", "quota", "memory"),
    [
        # 500 m and 64 Mi beside 1000 m and 192 Mi: 1500 * 1024 // 1000 shares, 1500 * 100 us, 256 Mi
        ((sidecar(1000, 192 * MIB),), 1536, 150_000, 256 * MIB),
        # the larger of 500 and 4000 m, of 64 and 4096 Mi
        ((before(4000, 4096 * MIB),), 4096, 400_000, 4096 * MIB),
        # the larger of 1500 and 5000 m, of 256 and 292 Mi
        ((sidecar(1000, 192 * MIB), before(4000, 100 * MIB)), 5120, 500_000, 292 * MIB),
        # the init container is done when the sidecar starts
        ((before(600, 100 * MIB), sidecar(1000, 192 * MIB)), 1536, 150_000, 256 * MIB),
        # one without limits
        ((sidecar(None, None),), 512, NO_LIMIT, NO_LIMIT),
        ((before(None, None),), 512, NO_LIMIT, NO_LIMIT),
    ],
)
def test_a_pod_has_what_its_containers_need_at_once(
    early: tuple[ContainerSpec, ...], shares: int, quota: int, memory: int, annotated: bool
) -> None:
    """The annotation names the containers alone, as the protocol has it."""
    sides = {"requests": {BATCH_CPU: 500, BATCH_MEMORY: 64 * MIB}, "limits": {BATCH_CPU: 500, BATCH_MEMORY: 64 * MIB}}
    note = {"containers": {"main": sides}} if annotated else None
    spec = pod(batch(500, 64 * MIB), init_containers=early, annotation=note)
    pod_decision = decision(spec, PLAIN)
    assert pod_decision.pod == ContainerSettings(shares, quota, memory)
    assert pod_decision.containers["main"] == ContainerSettings(512, 50_000, 64 * MIB)
    for container in early:
        millicores = container.limits.get(BATCH_CPU, 0)
        limit = container.limits.get(BATCH_MEMORY, NO_LIMIT)
        assert pod_decision.containers[container.name] == ContainerSettings(
            shares_of(millicores), quota_of(millicores), limit
        )


def test_an_ephemeral_container_is_left_alone_and_takes_no_limit_from_its_pod() -> None:
    debug = ContainerSpec("debug", kind=ContainerKind.EPHEMERAL)
    spec_with_debug = pod(batch(500, 64 * MIB), ephemeral_containers=(debug,))
    for spec in (spec_with_debug, pod(batch(500, 64 * MIB))):  # the API server has it, or has not yet
        assert container_resources(spec, debug, PLAIN) == LEAVE
        assert pod_resources(spec, PLAIN) == ContainerSettings(512, 50_000, 64 * MIB)


def test_a_pod_whose_only_batch_container_is_a_sidecar_is_one_too() -> None:
    spec = pod(ContainerSpec("main"), init_containers=(sidecar(1000, 192 * MIB),))
    assert decision(spec, PLAIN).containers["proxy"] == ContainerSettings(1024, 100_000, 192 * MIB)


def test_limits_of_the_kubelets_own_beside_batch_resources_stay() -> None:
    """A sidecar that was injected after the translation: Kubernetes' class is Burstable then, with its own limits."""
    injected = ContainerSpec("proxy", requests={"cpu": 100}, limits={"cpu": 200, "memory": 64 * MIB})
    spec = pod(batch(500, 64 * MIB), injected, kube_qos=KubeQos.BURSTABLE)
    pod_decision = decision(spec, PLAIN)
    assert pod_decision.containers["main"] == ContainerSettings(512, 50_000, 64 * MIB)
    assert pod_decision.containers["proxy"].empty
    assert (pod_decision.pod.cpu_quota, pod_decision.pod.memory_limit) == (None, None)
