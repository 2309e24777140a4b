"""With the journal lost, only what no kubelet can have set is named, and only the kubelet's own value is given."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cotenant.base.kubernetes.pod_resources import ResizeState
from cotenant.enforcer.contract import (
    NO_LIMIT,
    ContainerReading,
    ContainerSpec,
    GroupReading,
    Knob,
    KubeQos,
    Level,
    NodeReading,
    Observation,
    PodReading,
    PodSpec,
    Value,
)
from cotenant.enforcer.decide.changes import OriginalValue
from cotenant.enforcer.decide.kubelet_values import lost_notes, unexplained_limits, values_before_hooks
from cotenant.enforcer.decide.settle import AFTER_IDLE

MIB = 1 << 20
POD, CONTAINER = "kubepods/burstable/podu", "kubepods/burstable/podu/c"


def observation_of(tier: dict[Knob, Value] | None = None, container: dict[Knob, Value] | None = None) -> Observation:
    spec = ContainerSpec(
        "c", id="c", requests={"cpu": 500, "memory": 64 * MIB}, limits={"cpu": 1000, "memory": 128 * MIB}, running=True
    )
    group = GroupReading(CONTAINER, Level.CONTAINER, knobs=container or {})
    pod = PodReading(
        PodSpec("ns", "p", "u", KubeQos.BURSTABLE, containers=(spec,)),
        GroupReading(POD, Level.POD),
        (ContainerReading(spec, group),),
    )
    tiers = {KubeQos.BEST_EFFORT: GroupReading("kubepods/besteffort", Level.QOS, knobs=tier or {})}
    kubepods = GroupReading("kubepods", Level.KUBEPODS, knobs={Knob.CPUSET_CPUS: "0-7"})
    return Observation(1.0, 1.0, NodeReading("n", (), 1, 1), kubepods, tiers, (pod,))


def values_of_notes(
    notes: dict[tuple[str, Knob], OriginalValue],
) -> dict[tuple[str, Knob], tuple[Value, tuple[Value, ...]]]:
    return {place: (note.original, note.written) for place, note in notes.items()}


def test_a_suppressed_tier_is_set_free() -> None:
    tier: dict[Knob, Value] = {Knob.CPU_QUOTA: 5000, Knob.CPU_SHARES: 2, Knob.CPUSET_CPUS: "0-1", Knob.CPU_IDLE: 0}
    assert values_of_notes(lost_notes(observation_of(tier))) == {
        ("kubepods/besteffort", Knob.CPU_QUOTA): (NO_LIMIT, (5000,)),
        ("kubepods/besteffort", Knob.CPUSET_CPUS): ("0-7", ("0-1",)),
    }


def test_an_idle_tier_gets_its_shares_back_which_the_kernel_hides() -> None:
    assert values_of_notes(lost_notes(observation_of({Knob.CPU_IDLE: 1}))) == {
        ("kubepods/besteffort", Knob.CPU_IDLE): (0, (1,)),
        ("kubepods/besteffort", Knob.CPU_SHARES): (2, AFTER_IDLE),
    }


def test_what_the_kubelet_may_have_set_on_a_pod_with_amounts_stays_as_it_is() -> None:
    """Less than the spec asks for: of a resize that is not done, by MemoryQoS, by an operator, by who knows whom."""
    squeezed: dict[Knob, Value] = {
        Knob.CPU_SHARES: 2, Knob.CPU_QUOTA: 20_000, Knob.MEMORY_LIMIT: 32 * MIB, Knob.MEMORY_HIGH: 16 * MIB,
        Knob.MEMORY_MIN: MIB, Knob.CPUSET_CPUS: "3",
    }  # fmt: skip
    assert lost_notes(observation_of(container=squeezed)) == {}
    assert lost_notes(observation_of({Knob.CPU_SHARES: 2, Knob.MEMORY_LIMIT: 64 * MIB, Knob.MEMORY_HIGH: MIB})) == {}


def test_a_person_is_told_of_limits_below_what_the_kubelet_has_granted() -> None:
    # 1000 m are 100 ms a period; 128 Mi is the limit
    squeezed: dict[Knob, Value] = {Knob.CPU_QUOTA: 20_000, Knob.MEMORY_LIMIT: 32 * MIB}
    ending = "no original value is known, so the value is left as it is"
    assert list(unexplained_limits(observation_of(container=squeezed))) == [
        (CONTAINER, f"ns/p/c: cpu.quota is 20000 us and the kubelet has granted 100000 us; {ending}"),
        (
            CONTAINER,
            f"ns/p/c: memory.limit is {32 * MIB} bytes and the kubelet has granted {128 * MIB} bytes; {ending}",
        ),
    ]
    granted: dict[Knob, Value] = {Knob.CPU_QUOTA: 100_000, Knob.MEMORY_LIMIT: 128 * MIB}
    assert list(unexplained_limits(observation_of(container=granted))) == []


def test_nobody_is_told_of_a_limit_that_a_resize_has_not_reached() -> None:
    squeezed: dict[Knob, Value] = {Knob.CPU_QUOTA: 20_000}
    observation = observation_of(container=squeezed)
    (pod,) = observation.pods
    waiting = replace(pod, spec=replace(pod.spec, resize=ResizeState.DEFERRED))
    assert list(unexplained_limits(replace(observation, pods=(waiting,)))) == []


@pytest.mark.parametrize(("resize", "is_weight_known"), [(ResizeState.NONE, True), (ResizeState.IN_PROGRESS, False)])
def test_an_idle_pod_is_woken_only_where_the_weight_is_known_that_the_kernel_hides(
    resize: ResizeState, is_weight_known: bool
) -> None:
    """Idle off, the kernel sets 1024: more than a request of 500 m, which is 512."""
    observation = observation_of(container={Knob.CPU_IDLE: 1})
    (pod,) = observation.pods
    observation = replace(observation, pods=(replace(pod, spec=replace(pod.spec, resize=resize)),))
    woken = {(CONTAINER, Knob.CPU_IDLE): (0, (1,)), (CONTAINER, Knob.CPU_SHARES): (512, AFTER_IDLE)}
    assert values_of_notes(lost_notes(observation)) == (woken if is_weight_known else {})


def test_pods_of_class_best_effort_have_the_smallest_weight_whatever_stands_there() -> None:
    batch = PodReading(
        PodSpec("ns", "b", "b"), GroupReading("kubepods/besteffort/podb", Level.POD, knobs={Knob.CPU_SHARES: 512})
    )
    values = lost_notes(replace(observation_of({Knob.CPU_SHARES: 2}), pods=(batch,)))
    assert values_of_notes(values) == {("kubepods/besteffort/podb", Knob.CPU_SHARES): (2, (512,))}


def test_a_buffer_of_saved_quota_is_nobodys_but_an_agents() -> None:
    assert values_of_notes(lost_notes(observation_of(container={Knob.CPU_BURST: 50_000}))) == {
        (CONTAINER, Knob.CPU_BURST): (0, (50_000,))
    }


@pytest.mark.parametrize("tier_cpus", ["0-7", "0-1"])
def test_cpus_of_a_container_are_the_runtimes_choice_unless_the_tier_is_narrowed_too(tier_cpus: str) -> None:
    """The kubelet's static CPU manager and NRI policies place containers; nobody but an agent narrows the tier."""
    path = "kubepods/besteffort/podb"
    batch = PodReading(PodSpec("ns", "b", "b"), GroupReading(path, Level.POD, knobs={Knob.CPUSET_CPUS: "0"}))
    values = lost_notes(replace(observation_of({Knob.CPUSET_CPUS: tier_cpus}), pods=(batch,)))
    assert ((path, Knob.CPUSET_CPUS) in values) == (tier_cpus == "0-1")


def test_under_the_kubelets_static_manager_a_containers_cpus_are_the_kubelets() -> None:
    path, inner = "kubepods/besteffort/podb", "kubepods/besteffort/podb/c"
    spec = ContainerSpec("c", "c", running=True)
    container = ContainerReading(spec, GroupReading(inner, Level.CONTAINER, knobs={Knob.CPUSET_CPUS: "0"}))
    batch = PodReading(PodSpec("ns", "b", "b", containers=(spec,)), GroupReading(path, Level.POD), (container,))
    for static in (False, True):
        machine = NodeReading("n", (), 1, 1, kubelet_static_cpus=static)
        values = lost_notes(replace(observation_of({Knob.CPUSET_CPUS: "0-1"}), pods=(batch,), node=machine))
        assert ((inner, Knob.CPUSET_CPUS) in values) is not static


@pytest.mark.parametrize("limit", [333, 700, 5])
@pytest.mark.parametrize("period", [1_000, 10_000, 99_999, 1_000_000])
def test_a_quota_in_another_period_is_not_told_of(limit: int, period: int) -> None:
    """What the kubelet writes, max(limit * period / 1000, 1000 us), and the agent reads per 100 ms, rounded up."""
    written = max(limit * period // 1000, 1000)
    spec = ContainerSpec("c", "c", limits={"cpu": limit}, running=True)
    read: dict[Knob, Value] = {Knob.CPU_QUOTA: -(-written * 100_000 // period)}
    pod = PodReading(
        PodSpec("ns", "p", "u", KubeQos.BURSTABLE, containers=(spec,)),
        GroupReading(POD, Level.POD, knobs=read),
        (ContainerReading(spec, GroupReading(CONTAINER, Level.CONTAINER, knobs=read)),),
    )
    assert list(unexplained_limits(replace(observation_of(), pods=(pod,)))) == []


@pytest.mark.parametrize(
    ("actual", "off", "quota"),
    [
        (None, False, 50_000),  # no report, no resize: the spec is what the kubelet has set
        ({"cpu": 500}, False, 50_000),
        ({"cpu": 200}, False, None),  # the runtime says another: whose it is nobody knows
        (None, True, NO_LIMIT),  # cpuCFSQuota: false
    ],
)
def test_before_a_hook_a_container_had_what_kubelet_and_spec_agree_on(
    actual: dict[str, int] | None, off: bool, quota: int | None
) -> None:
    container = ContainerSpec("c", limits={"cpu": 500}, actual_limits=actual)
    pod = PodSpec("ns", "p", "u", KubeQos.BURSTABLE, containers=(container,))
    assert values_before_hooks(pod, container, off).get(Knob.CPU_QUOTA) == quota


def test_before_a_hook_a_batch_container_had_nothing_whatever_its_runtime_says() -> None:
    """The report shows what the hook has set: 500 m of batch-cpu as a limit of cpu."""
    container = ContainerSpec("c", limits={"kubernetes.io/batch-cpu": 500}, actual_limits={"cpu": 500})
    pod = PodSpec("ns", "p", "u", containers=(container,))
    assert values_before_hooks(pod, container) == {
        Knob.CPU_SHARES: 2,
        Knob.CPU_QUOTA: NO_LIMIT,
        Knob.MEMORY_LIMIT: NO_LIMIT,
    }
