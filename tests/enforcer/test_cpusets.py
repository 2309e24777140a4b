"""Lists of CPUs and who owns which."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.allocation.cpu_annotations import system_cpus
from cotenant.base.allocation.cpu_topology import Processor, format_cpus, parse_cpus
from cotenant.base.errors import UsageError
from cotenant.base.kubernetes.protocol import (
    NODE_RESERVATION_ANNOTATION,
    RESOURCE_STATUS_ANNOTATION,
    SYSTEM_QOS_ANNOTATION,
)
from cotenant.base.kubernetes.qos import QosClass
from cotenant.enforcer.contract import ContainerSpec, Knob, KubeQos, NodeReading, PodReading, PodSpec
from cotenant.enforcer.observe.cpusets import (
    forbidden_cpus,
    kubelet_shared_cpus,
    overclaims,
    owned_cpus,
    pod_assignment,
)
from tests.enforcer import readings


def pod(qos: QosClass, status: str | None, phase: str = "Running", asks: int = 8000) -> PodSpec:
    annotations = {} if status is None else {RESOURCE_STATUS_ANNOTATION: status}
    main = ContainerSpec("main", requests={"cpu": asks})
    return PodSpec("a", "b", "u", qos_class=qos, phase=phase, annotations=annotations, containers=(main,))


def node(**annotations: str) -> NodeReading:
    names = {"reservation": NODE_RESERVATION_ANNOTATION, "system": SYSTEM_QOS_ANNOTATION}
    processors = tuple(Processor(i) for i in range(8))
    return NodeReading("n", processors, 2**30, 2**29, annotations={names[k]: v for k, v in annotations.items()})


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("0-2,5", {0, 1, 2, 5}), ("", set()), (" \n", set()), ("3", {3}), ("5,0-2,1", {0, 1, 2, 5}), ("0, 2", {0, 2})],
)
def test_a_list_names_its_cpus(text: str, cpus: set[int]) -> None:
    assert parse_cpus(text) == cpus


@pytest.mark.parametrize("text", ["0-", "-1", "2-1", "a", "0,,1", "0-99999999999", "8192", "0x1", "1.5", "٣", "0-1-2"])
def test_what_is_no_list_is_refused_with_the_part_that_is_wrong(text: str) -> None:
    with pytest.raises(UsageError, match=r"pod x: .* is not a CPU"):
        parse_cpus(text, "pod x")


def test_a_list_that_is_long_for_its_own_sake_is_refused() -> None:
    with pytest.raises(UsageError, match="characters"):
        parse_cpus("0-8191," * 10_000)
    assert len(parse_cpus(",".join(map(str, range(8192))))) == 8192
    assert parse_cpus(",".join(f"{i}-8191" for i in range(1000))) == set(range(8192))


@pytest.mark.parametrize("key", ["x", "cpuset", "numaNodeResources"])
def test_an_annotation_that_is_nested_for_its_own_sake_is_unreadable(key: str) -> None:
    deep = f'{{"{key}": {"[" * 100_000}{"]" * 100_000}}}'
    assert pod_assignment(pod(QosClass.LSR, deep)).broken
    assert system_cpus(node(system=deep).annotations, "n") == (frozenset(), False)
    assert forbidden_cpus(node(reservation=deep), []) == frozenset()


@settings(max_examples=60, deadline=None)
@given(st.sets(st.integers(0, 300)))
def test_writing_and_reading_a_list_gives_the_same_cpus(cpus: set[int]) -> None:
    text = format_cpus(cpus)
    assert parse_cpus(text) == cpus
    assert format_cpus(parse_cpus(text)) == text


def test_neighbours_are_joined_as_the_kernel_does() -> None:
    assert format_cpus([5, 0, 1, 2, 7, 8]) == "0-2,5,7-8"


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=30))
def test_no_text_in_an_annotation_breaks_the_reader(text: str) -> None:
    assigned = pod_assignment(pod(QosClass.LSR, text))
    assert assigned.cpus == frozenset() or not assigned.broken
    assert system_cpus(node(system=text).annotations, "n")[0] is not None


def test_a_pods_cpus_and_numa_nodes_come_from_the_scheduler() -> None:
    text = '{"cpuset":"4-5","numaNodeResources":[{"node":1,"resources":{"cpu":"2"}},{"node":0,"resources":{}}]}'
    assigned = pod_assignment(pod(QosClass.LSR, text))
    assert (assigned.cpus, assigned.numa_nodes, assigned.broken) == (frozenset({4, 5}), (1,), "")


@pytest.mark.parametrize(
    ("resource", "numa_nodes"),
    [("kubernetes.io/batch-cpu", (1,)), ("kubernetes.io/mid-cpu", (1,)), ("kubernetes.io/batch-memory", ())],
)
def test_cpu_on_numa_nodes_is_seen_under_every_name_of_the_scheduler(
    resource: str, numa_nodes: tuple[int, ...]
) -> None:
    text = f'{{"numaNodeResources":[{{"node":1,"resources":{{"{resource}":"2000"}}}}]}}'
    assert pod_assignment(pod(QosClass.BE, text)).numa_nodes == numa_nodes


def test_an_unreadable_annotation_is_not_the_same_as_none() -> None:
    assert pod_assignment(pod(QosClass.LSR, None)).broken == ""
    assert "a/b" in pod_assignment(pod(QosClass.LSR, '{"cpuset":"4-"}')).broken


def test_a_pod_that_ended_owns_nothing() -> None:
    pods = [pod(QosClass.LSE, '{"cpuset":"1"}'), pod(QosClass.LSE, '{"cpuset":"2"}', phase="Succeeded")]
    assert owned_cpus(pods, QosClass.LSE) == {1}
    assert owned_cpus(pods, QosClass.LSR) == frozenset()


def test_a_pod_owns_no_more_cpus_than_it_asks_for() -> None:
    assert overclaims(pod(QosClass.LSE, '{"cpuset":"0-2"}', asks=2999))
    assert owned_cpus([pod(QosClass.LSE, '{"cpuset":"0-2"}', asks=2999)], QosClass.LSE) == frozenset()
    assert owned_cpus([pod(QosClass.LSE, '{"cpuset":"0-2"}', asks=3000)], QosClass.LSE) == {0, 1, 2}


def test_cpus_that_a_sidecar_asks_for_are_its_pods_too() -> None:
    # 2 CPUs of the main container and one of a sidecar, which stands among the init containers
    sidecar = ContainerSpec("proxy", requests={"cpu": 1000})
    three = replace(pod(QosClass.LSE, '{"cpuset":"0-2"}', asks=2000), init_containers=(sidecar,))
    assert not overclaims(three)
    assert owned_cpus([three], QosClass.LSE) == {0, 1, 2}


def test_cpus_of_lse_pods_of_the_reservation_of_system_and_of_claims_are_forbidden() -> None:
    pods = [pod(QosClass.LSE, '{"cpuset":"6-7"}'), pod(QosClass.LSR, '{"cpuset":"4-5"}')]
    assert forbidden_cpus(node(reservation='{"reservedCPUs":"0"}', system='{"cpuset":"1"}'), pods) == {0, 1, 6, 7}
    assert forbidden_cpus(node(system='{"cpuset":"1","cpusetExclusive":false}'), pods) == {6, 7}
    assert forbidden_cpus(node(reservation="not json"), pods) == {6, 7}
    assert forbidden_cpus(replace(node(), offered_cpus=frozenset({2, 3})), pods) == {2, 3, 6, 7}


def placed(name: str, cpus: str | None, kube: KubeQos = KubeQos.BURSTABLE) -> PodReading:
    """A pod whose container's cgroup has these CPUs; None: its cpuset was not read."""
    knobs = {} if cpus is None else {Knob.CPUSET_CPUS: cpus}
    return readings.pod(name, readings.container(knobs=knobs), kube=kube)


@pytest.mark.parametrize(
    ("web", "job", "ours", "shared"),
    [
        ("2-5", "4-6", [], {2, 3, 4, 5, 6}),  # CPUs 0, 1 and 7 are kept free of both
        ("2-5", "0-7", ["job"], {2, 3, 4, 5}),  # what we wrote says nothing of the kubelet
        ("2-5", "", [], set(range(8))),  # on cgroup v2 an empty list is that of the parent
        ("2-5", None, [], {2, 3, 4, 5}),
        ("2-9", "x", [], {2, 3, 4, 5, 6, 7}),  # CPUs 8 and 9 are offline
        (None, None, [], set()),
    ],
)
def test_where_a_kubelet_lets_others_run_is_told_by_cgroups_that_it_and_not_we_set(
    web: str | None, job: str | None, ours: list[str], shared: set[int]
) -> None:
    pods = [placed("web", web), placed("job", job, KubeQos.BEST_EFFORT), placed("own", "0-1", KubeQos.GUARANTEED)]
    groups = {pod.spec.name: pod.containers[0].group for pod in pods}
    written = {(group.path, Knob.CPUSET_CPUS) for name in ours if (group := groups[name])}
    assert kubelet_shared_cpus(pods, frozenset(range(8)), written) == shared
