"""Native sidecars, init and ephemeral containers in every strategy, and no amount that the kubelet has not granted."""

from __future__ import annotations

from typing import Any

import pytest

from cotenant.base.kubernetes.pod_resources import ContainerKind, ResizeState
from cotenant.base.kubernetes.qos import PriorityClass, QosClass
from cotenant.base.resource import Resource
from cotenant.enforcer.contract import (
    NO_LIMIT,
    ContainerReading,
    CpuUse,
    Knob,
    KubeQos,
    MemoryUse,
    PodReading,
    ResctrlReading,
)
from cotenant.enforcer.decide.knobs import Dialect
from cotenant.enforcer.decide.settle import settle
from cotenant.enforcer.observe.cpusets import overclaims
from cotenant.enforcer.strategies.be_totals import BeTotals
from cotenant.enforcer.strategies.burst import Burst, BurstState, pool_millicores
from cotenant.enforcer.strategies.cpuset_pools import CpusetPools
from cotenant.enforcer.strategies.eviction.victims import requested
from cotenant.enforcer.strategies.memory_qos import MemoryProtection, MemoryState
from cotenant.enforcer.strategies.normalisation import Normalisation
from cotenant.enforcer.strategies.resctrl import Resctrl
from tests.enforcer.readings import GIB, MIB, container, node, observation_of, pod, policy, values
from tests.enforcer.v1_kernel import V1, V2

WEB = "kubepods/burstable/podu-web"
BATCH_JOB = "kubepods/besteffort/podu-job"
SIDECAR, INIT, DEBUG = ContainerKind.SIDECAR, ContainerKind.INIT, ContainerKind.EPHEMERAL
RATIO = {"node.koordinator.sh/cpu-normalization-ratio": "1.5"}
AUTO = policy({"cpuBurstStrategy": {"policy": "auto"}})
THROTTLED = CpuUse(400.0, periods=10, throttled_periods=4)
MEMORY_QOS = {"enable": True, "minLimitPercent": 100, "lowLimitPercent": 0, "throttlingPercent": 50, "oomKillGroup": 1}
PROTECTED = policy({"resourceQOSStrategy": {f"{c}Class": {"memoryQOS": MEMORY_QOS} for c in ("lsr", "ls", "be")}})
PINNED = {"scheduling.koordinator.sh/resource-status": '{"cpuset": "1-2"}'}


def limited(name: str, millicores: int, **others: Any) -> ContainerReading:
    """A container under the quota that the kubelet gives this limit."""
    amounts = {"cpu": millicores}
    others = {"limits": amounts, "requests": amounts, **others}
    return container(name, knobs={Knob.CPU_QUOTA: millicores * 100}, cpu=THROTTLED, **others)


def web(*containers: ContainerReading, quota: int = NO_LIMIT, **others: Any) -> PodReading:
    return pod("web", *containers, qos=QosClass.LS, knobs={Knob.CPU_QUOTA: quota}, **others)


def normalised(reading: PodReading) -> dict[str, Any]:
    observation = observation_of(reading, machine=node(annotations=RATIO))
    return values(Normalisation().step(observation, policy(), None).plan, Knob.CPU_QUOTA)


def test_a_sidecars_limit_is_part_of_its_pods_on_a_faster_node() -> None:
    # ceil(1000 * 100 / 1.5), ceil(2000 * 100 / 1.5), and of both together 300,000 / 1.5
    quotas = normalised(web(limited("main", 1000), limited("proxy", 2000, kind=SIDECAR), quota=300_000))
    assert quotas == {WEB: 200_000, f"{WEB}/id-main": 66_667, f"{WEB}/id-proxy": 133_334}


def test_a_pod_is_as_large_as_its_init_container_needs_it() -> None:
    # the larger of 1000 and 4000 m: 400,000 us, ceil(400,000 / 1.5)
    early = limited("setup", 4000, kind=INIT)
    assert normalised(web(limited("main", 1000), early, quota=400_000))[WEB] == 266_667


@pytest.mark.parametrize(
    ("dialect", "runs", "pod_quota"), [(V1, False, 200_000), (V1, True, 166_600), (V2, False, 166_600)]
)
def test_on_cgroup_v1_a_pod_leaves_what_a_container_starts_with(dialect: Dialect, runs: bool, pod_quota: int) -> None:
    """500 + 2000 m on CPUs 1.5 times as fast: 166,667 us; the sidecar's start sets 200,000, which v1 refuses above."""
    reading = web(limited("main", 500), limited("proxy", 2000, kind=SIDECAR, running=runs), quota=250_000)
    observation = observation_of(reading, machine=node(annotations=RATIO))
    plan = Normalisation().step(observation, policy(), None).plan
    written = {w.path: w.value for w in settle([plan], observation, {}, dialect).writes}
    assert (written[WEB], written[f"{WEB}/id-main"]) == (pod_quota, 33_300)


@pytest.mark.parametrize("resize", [ResizeState.INFEASIBLE, ResizeState.DEFERRED, ResizeState.IN_PROGRESS])
def test_a_resize_that_is_not_done_makes_no_limit(resize: ResizeState) -> None:
    """1 -> 100 CPUs, of which the kubelet has granted none: ceil(1000 * 100 / 1.5); without its word nothing."""
    huge = {"cpu": 100_000}
    reading = limited(
        "main", 1000, limits=huge, requests=huge, actual_limits={"cpu": 1000}, actual_requests={"cpu": 1000}
    )
    pod_reading = web(reading, quota=100_000, resize=resize)
    assert normalised(pod_reading) == {WEB: 66_667, f"{WEB}/id-main": 66_667}
    silent = web(limited("main", 1000, limits=huge, requests=huge), quota=100_000, resize=resize)
    assert normalised(silent) == {}


def test_a_pods_own_limit_is_divided_and_not_its_containers_sum() -> None:
    reading = web(limited("main", 500), limited("two", 500), quota=70_000, own_limits={"cpu": 700})
    assert normalised(reading)[WEB] == 46_667  # ceil(70,000 / 1.5)


def test_an_ephemeral_container_keeps_what_the_kubelet_gave_it() -> None:
    debug = container("debug", kind=DEBUG, knobs={Knob.CPU_QUOTA: 70_000})
    reading = web(limited("main", 500), debug, quota=70_000, own_limits={"cpu": 700})
    assert f"{WEB}/id-debug" not in normalised(reading)
    plan = Burst().step(observation_of(reading, machine=node(4, 500.0)), AUTO, BurstState()).plan
    assert f"{WEB}/id-debug" not in {w.path for w in plan.wants}


def test_a_burst_starts_from_what_was_granted_and_goes_back_there() -> None:
    huge = {"cpu": 100_000}
    reading = limited("main", 1000, limits=huge, actual_limits={"cpu": 1000}, actual_requests={"cpu": 1000})
    pod_reading = web(reading, quota=100_000, resize=ResizeState.INFEASIBLE)
    plan = Burst().step(observation_of(pod_reading, machine=node(4, 500.0)), AUTO, BurstState()).plan
    # 100,000 * 1.2
    assert values(plan, Knob.CPU_QUOTA) == {WEB: 120_000, f"{WEB}/id-main": 120_000}
    assert {w.back_to for w in plan.wants if w.knob is Knob.CPU_QUOTA} == {100_000}


def test_a_sidecar_bursts_with_its_pod() -> None:
    reading = web(limited("main", 500), limited("proxy", 1000, kind=SIDECAR), quota=150_000)
    plan = Burst().step(observation_of(reading, machine=node(4, 500.0)), AUTO, BurstState()).plan
    # 50,000 * 1.2, 100,000 * 1.2, and what both move by: 150,000 + 10,000 + 20,000
    expected = {WEB: 180_000, f"{WEB}/id-main": 60_000, f"{WEB}/id-proxy": 120_000}
    assert values(plan, Knob.CPU_QUOTA) == expected


def test_a_pod_of_its_own_limit_moves_from_there() -> None:
    """Its containers' limits add up to more than its own 700 m: it is not lifted to their sum."""
    reading = web(limited("main", 500), limited("two", 500), quota=70_000, own_limits={"cpu": 700})
    plan = Burst().step(observation_of(reading, machine=node(4, 500.0)), AUTO, BurstState()).plan
    # 70,000 and 10,000 for each container
    assert values(plan, Knob.CPU_QUOTA)[WEB] == 90_000
    assert [w.back_to for w in plan.wants if w.path == WEB and w.knob is Knob.CPU_QUOTA] == [70_000]


def test_cpus_that_an_lsr_pods_sidecar_asks_for_are_not_shared() -> None:
    bound = pod("db", limited("main", 1000), limited("proxy", 1000, kind=SIDECAR), qos=QosClass.LSR)
    assert pool_millicores(observation_of(bound, machine=node(4))) == 2000


def batch_amounts(cpu: int, memory: int, name: str = "main", **others: Any) -> ContainerReading:
    amounts = {"kubernetes.io/batch-cpu": cpu, "kubernetes.io/batch-memory": memory}
    return container(name, requests=amounts, limits=amounts, **others)


def job(*containers: ContainerReading, **others: Any) -> PodReading:
    return pod("job", *containers, qos=QosClass.BE, kube=KubeQos.BEST_EFFORT, **others)


def test_a_batch_pods_sidecar_has_its_part_of_the_pods_limits() -> None:
    debug = container("debug", kind=DEBUG)
    reading = job(batch_amounts(500, 64 * MIB), batch_amounts(1000, 192 * MIB, "proxy", kind=SIDECAR), debug)
    plan = BeTotals().step(observation_of(reading), policy(), None).plan
    assert values(plan, Knob.MEMORY_LIMIT) == {
        BATCH_JOB: 256 * MIB,
        f"{BATCH_JOB}/id-main": 64 * MIB,
        f"{BATCH_JOB}/id-proxy": 192 * MIB,
    }
    assert values(plan, Knob.CPU_QUOTA)[BATCH_JOB] == 150_000
    assert f"{BATCH_JOB}/id-debug" not in {want.path for want in plan.wants}


@pytest.mark.parametrize("prefix", ["", "kubernetes.io/batch-"], ids=["as it was", "translated"])
def test_a_batch_pod_s_sandbox_lives_in_the_pod_s_limits_beside_its_containers(prefix: str) -> None:
    """A virtual machine is charged to its pod: at 64 MiB for both it would be killed by a limit of ours."""
    reading = job(batch_amounts(500, 64 * MIB), overhead={f"{prefix}cpu": 250, f"{prefix}memory": 160 * MIB})
    plan = BeTotals().step(observation_of(reading), policy(), None).plan
    assert values(plan, Knob.MEMORY_LIMIT) == {BATCH_JOB: (64 + 160) * MIB, f"{BATCH_JOB}/id-main": 64 * MIB}
    assert values(plan, Knob.CPU_QUOTA) == {BATCH_JOB: (500 + 250) * 100, f"{BATCH_JOB}/id-main": 50_000}
    # the kubelet weighs a pod with its overhead, too: 750 * 1024 // 1000
    assert values(plan, Knob.CPU_SHARES)[BATCH_JOB] == 768
    # a pod without a limit gets none by its overhead
    free = job(batch_amounts(0, 0), batch_amounts(500, 64 * MIB, "other"), overhead={"memory": 160 * MIB})
    assert values(BeTotals().step(observation_of(free), policy(), None).plan, Knob.MEMORY_LIMIT)[BATCH_JOB] == NO_LIMIT


def test_a_batch_pod_asks_for_its_sidecars_too_and_for_its_largest_init_container() -> None:
    reading = job(batch_amounts(500, GIB), batch_amounts(1000, GIB, "proxy", kind=SIDECAR))
    assert (requested(reading.spec, Resource.CPU), requested(reading.spec, Resource.MEMORY)) == (1500, 2 * GIB)
    early = batch_amounts(1000, 4 * GIB, "setup", kind=INIT)
    reading = job(batch_amounts(500, GIB), early, priority_class=PriorityClass.BATCH)
    assert requested(reading.spec, Resource.MEMORY) == 4 * GIB


def protected(*containers: ContainerReading, **others: Any) -> dict[Knob, dict[str, Any]]:
    reading = web(*containers, **others)
    plan = MemoryProtection().step(observation_of(reading, machine=node(4)), PROTECTED, MemoryState()).plan
    return {knob: values(plan, knob) for knob in (Knob.MEMORY_MIN, Knob.MEMORY_HIGH, Knob.MEMORY_OOM_GROUP)}


def in_memory(name: str, request: int, limit: int, **others: Any) -> ContainerReading:
    amounts = {"requests": {"memory": request}, "limits": {"memory": limit}}
    return container(name, memory=MemoryUse(MIB, MIB), **{**amounts, **others})


def test_sidecars_and_init_containers_are_protected_and_throttled_by_their_own_amounts() -> None:
    early, proxy = in_memory("setup", GIB, GIB, kind=INIT), in_memory("proxy", 64 * MIB, 128 * MIB, kind=SIDECAR)
    amounts = protected(in_memory("main", 128 * MIB, 256 * MIB), early, proxy)
    # 100 % of the request; the pod's is the larger of 1 Gi (the init container alone) and 128 + 64 Mi
    assert amounts[Knob.MEMORY_MIN][f"{WEB}/id-proxy"] == 64 * MIB
    assert amounts[Knob.MEMORY_MIN][WEB] == GIB
    # 64 + (128 - 64) * 50 %
    assert amounts[Knob.MEMORY_HIGH][f"{WEB}/id-proxy"] == 96 * MIB


def test_memory_that_was_never_granted_protects_nobody_and_throttles_nobody() -> None:
    too_much = {"requests": {"memory": 64 * GIB}, "limits": {"memory": 64 * GIB}}
    in_status = {"actual_requests": {"memory": 128 * MIB}, "actual_limits": {"memory": 256 * MIB}}
    amounts = protected(in_memory("main", 0, 0, **too_much, **in_status), resize=ResizeState.INFEASIBLE)
    assert amounts[Knob.MEMORY_MIN] == {WEB: 128 * MIB, f"{WEB}/id-main": 128 * MIB, "kubepods": 128 * MIB} | {
        "kubepods/burstable": 128 * MIB
    }
    assert amounts[Knob.MEMORY_HIGH] == {f"{WEB}/id-main": 192 * MIB}  # 128 + (256 - 128) * 50 %
    silent = protected(in_memory("main", 0, 0, **too_much), resize=ResizeState.DEFERRED)
    assert silent[Knob.MEMORY_MIN] == {} and silent[Knob.MEMORY_HIGH] == {}


def test_an_ephemeral_container_is_neither_throttled_nor_ended_as_a_whole() -> None:
    debug = container("debug", kind=DEBUG, memory=MemoryUse(MIB, MIB))
    amounts = protected(in_memory("main", 128 * MIB, 256 * MIB), debug)
    assert not any(f"{WEB}/id-debug" in places for places in amounts.values())


def test_the_kubelets_own_memory_high_and_min_stay_where_they_are_stricter() -> None:
    """MemoryQoS: memory.min is the request, memory.high nearer to it than the policy's."""
    knobs = {Knob.MEMORY_MIN: 128 * MIB, Knob.MEMORY_HIGH: 140 * MIB, Knob.MEMORY_OOM_GROUP: 0}
    half = {**MEMORY_QOS, "minLimitPercent": 50}
    at = policy({"resourceQOSStrategy": {"lsClass": {"memoryQOS": half}}})
    observation = observation_of(web(in_memory("main", 128 * MIB, 256 * MIB, knobs=knobs)), machine=node(4))
    plan = MemoryProtection().step(observation, at, MemoryState()).plan
    main = f"{WEB}/id-main"
    assert (values(plan, Knob.MEMORY_MIN)[main], values(plan, Knob.MEMORY_HIGH)[main]) == (64 * MIB, 192 * MIB)
    written = {(w.path, w.knob) for w in settle([plan], observation, {}, V2).writes}
    assert (main, Knob.MEMORY_OOM_GROUP) in written
    assert not {(main, Knob.MEMORY_MIN), (main, Knob.MEMORY_HIGH)} & written


@pytest.mark.parametrize("kind", [SIDECAR, INIT, DEBUG])
def test_every_container_of_a_pod_runs_on_the_pods_own_cpus(kind: ContainerKind) -> None:
    amounts: dict[str, Any] = {} if kind is DEBUG else {"limits": {"cpu": 1000}, "requests": {"cpu": 1000}}
    more = container("more", kind=kind, knobs={Knob.CPUSET_CPUS: "0-3"}, **amounts)
    bound = pod("web", limited("main", 2000), more, qos=QosClass.LSR, annotations=PINNED)
    plan = CpusetPools().step(observation_of(bound, machine=node(4)), policy(), None).plan
    assert values(plan, Knob.CPUSET_CPUS) == dict.fromkeys((f"{WEB}/id-main", f"{WEB}/id-more"), "1-2")


@pytest.mark.parametrize(("off", "quota"), [(False, 200_000), (True, NO_LIMIT)])
def test_a_quota_that_the_kubelet_never_sets_is_not_given_back(off: bool, quota: int) -> None:
    """cpuCFSQuota: false: the hook's "no quota" is the kubelet's own."""
    bound = pod("web", limited("main", 2000), qos=QosClass.LSR, annotations=PINNED)
    machine = node(4, kubelet_quotas_off=off)
    plan = CpusetPools().step(observation_of(bound, machine=machine), policy(), None).plan
    assert [w.made_from for w in plan.wants if (w.path, w.knob) == (f"{WEB}/id-main", Knob.CPU_QUOTA)] == [quota]


@pytest.mark.parametrize(
    ("containers", "over"),
    [
        ((limited("main", 1000),), True),
        ((limited("main", 1000), limited("proxy", 1000, kind=SIDECAR)), False),
        ((limited("main", 1000), limited("setup", 2000, kind=INIT)), False),
        ((limited("main", 1000), limited("setup", 1000, kind=INIT)), True),
        # a resize to 2 CPUs that the kubelet calls infeasible
        ((limited("main", 2000, actual_requests={"cpu": 1000}, allocated={"cpu": 1000}),), True),
    ],
)
def test_cpus_beyond_what_a_scheduler_counts_are_claimed_too_many(
    containers: tuple[ContainerReading, ...], over: bool
) -> None:
    reading = pod("web", *containers, annotations=PINNED, resize=ResizeState.INFEASIBLE)
    assert overclaims(reading.spec) is over


def test_tasks_of_every_container_belong_to_their_class_group() -> None:
    reading = web(limited("main", 100), limited("proxy", 100, kind=SIDECAR), container("debug", kind=DEBUG))
    machine = node(4, resctrl=ResctrlReading(0xFFF, (0,), (0,)))
    at = policy({"resourceQOSStrategy": {"lsClass": {"resctrlQOS": {"enable": True}}}})
    (group,) = Resctrl().step(observation_of(reading, machine=machine), at, None).plan.surfaces
    assert all(f"{WEB}/id-{name}" in group.value for name in ("main", "proxy", "debug"))
