"""A node's CPUs as its NodeResourceTopology: what is written is what is read, in Koordinator's form."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.allocation.cpu_annotations import CpuAssignment, assignment_of, assignment_text, wish_of
from cotenant.base.allocation.cpu_ownership import CpuState, owners
from cotenant.base.allocation.cpu_topology import Cpus, CpuTopology, regular_topology
from cotenant.base.allocation.topology_document import (
    NodeCpus,
    PodCpus,
    annotations_of,
    described_machine,
    parse_topology,
    zones_of,
)
from cotenant.base.errors import UsageError
from cotenant.base.kubernetes.protocol import CPU_TOPOLOGY_ANNOTATION
from tests.base.allocation.cpu_machines import machines

SMALL = regular_topology(sockets=1, cores_per_socket=2, threads_per_core=2)


def document(annotations: dict[str, str]) -> dict[str, Any]:
    return {"kind": "NodeResourceTopology", "metadata": {"name": "n1", "annotations": annotations}}


@st.composite
def node_cpus(draw: st.DrawFn) -> NodeCpus:
    topology = draw(machines())
    some: st.SearchStrategy[Cpus] = st.frozensets(st.sampled_from(sorted(topology.cpus)))
    names = st.text("ab-", min_size=1, max_size=5)
    pods = st.lists(st.builds(PodCpus, names, names, names, some, st.booleans()), max_size=3).map(tuple)
    policies = st.sampled_from(["", "none", "static", "unknown"])
    return NodeCpus(topology, draw(policies), draw(some), draw(pods), draw(some), draw(some))


@pytest.mark.slow
@given(cpus=node_cpus())
def test_what_is_published_is_read_again(cpus: NodeCpus) -> None:
    assert parse_topology(document(annotations_of(cpus))) == cpus


@given(data=st.data(), topology=machines())
def test_an_assignment_is_read_as_it_was_written(data: st.DataObject, topology: CpuTopology) -> None:
    cpus = data.draw(st.frozensets(st.sampled_from(sorted(topology.cpus)), min_size=1))
    text = assignment_text(topology, cpus)
    numa_nodes = tuple(sorted({topology.by_id[cpu].numa_node for cpu in cpus}))
    assert assignment_of({"scheduling.koordinator.sh/resource-status": text}, "p") == CpuAssignment(cpus, numa_nodes)


def test_annotations_have_koordinators_fields() -> None:
    pods = (PodCpus("shop", "web-0", "u1", frozenset({0, 2})), PodCpus("a", "b", "u2", frozenset({1}), by_kubelet=True))
    shared = frozenset({3})
    texts = annotations_of(NodeCpus(SMALL, "static", frozenset({3}), pods, shared, frozenset({2, 3})))
    decoded = {key.split("/")[1]: json.loads(text) for key, text in texts.items()}
    # 2 cores of 2 threads: CPU 2 is the second thread of core 0
    assert decoded["cpu-topology"]["detail"][2] == {"id": 2, "core": 0, "socket": 0, "node": 0}
    assert decoded["cpu-manager-policy"] == {"policy": "static", "reservedCPUs": "3"}
    assert decoded["pod-cpu-allocs"] == [
        {"namespace": "shop", "name": "web-0", "uid": "u1", "cpuset": "0,2"},
        {"namespace": "a", "name": "b", "uid": "u2", "cpuset": "1", "managedByKubelet": True},
    ]
    assert decoded["cpu-shared-pools"] == [{"socket": 0, "node": 0, "cpuset": "3"}]
    assert decoded["be-cpu-shared-pools"] == [{"socket": 0, "node": 0, "cpuset": "2-3"}]


def test_an_assignment_counts_cpus_by_numa_node() -> None:
    # threads 0 and 4 are core 0 on NUMA node 0, CPU 2 is core 2 on node 1
    topology = regular_topology(sockets=2, cores_per_socket=2, threads_per_core=2)
    assert json.loads(assignment_text(topology, frozenset({0, 2, 4}))) == {
        "cpuset": "0,2,4",
        "numaNodeResources": [{"node": 0, "resources": {"cpu": "2"}}, {"node": 1, "resources": {"cpu": "1"}}],
    }


def test_zones_have_the_cpus_and_the_memory_of_their_numa_node() -> None:
    zone, other = zones_of(regular_topology(2, 2), {0: 1 << 30})
    assert [(r["name"], r["capacity"]) for r in zone["resources"]] == [("cpu", "2"), ("memory", str(1 << 30))]
    assert (other["name"], [r["name"] for r in other["resources"]]) == ("node-1", ["cpu"])


@given(text=st.text())
def test_an_annotation_that_is_no_topology_is_refused_by_name(text: str) -> None:
    with pytest.raises(UsageError, match=r"noderesourcetopologies/n1"):
        parse_topology(document({CPU_TOPOLOGY_ANNOTATION: text or "x"}))


@given(text=st.text())
def test_a_wish_that_cannot_be_read_names_the_pod(text: str) -> None:
    try:
        wish_of({"scheduling.koordinator.sh/resource-spec": text}, "shop/web-0")
    except UsageError as error:
        assert "shop/web-0" in error.message


def test_a_cpu_belongs_to_who_withholds_it_before_pods_and_the_pool() -> None:
    pods = (PodCpus("shop", "web-0", "u", frozenset({0, 2})),)
    annotations = {"node.koordinator.sh/reservation": '{"reservedCPUs": "2"}'}
    states = {o.cpu: o.state for o in owners(NodeCpus(SMALL, pods=pods), annotations, "n1")}
    assert states == {0: CpuState.POD, 1: CpuState.SHARED, 2: CpuState.RESERVED, 3: CpuState.SHARED}


def test_a_described_machine_stands_in_for_a_real_one() -> None:
    body = {"sockets": 2, "coresPerSocket": 32, "threadsPerCore": 2, "offline": "127", "isolated": "0"}
    topology = described_machine(body, "m.yaml").topology
    assert (len(topology.cpus), topology.offline, topology.isolated) == (127, frozenset({127}), frozenset({0}))


def test_a_description_with_a_field_that_nobody_knows_names_the_file() -> None:
    with pytest.raises(UsageError, match=r"m\.yaml: .*`cores`"):
        described_machine({"sockets": 2, "coresPerSocket": 2, "cores": 3}, "m.yaml")
