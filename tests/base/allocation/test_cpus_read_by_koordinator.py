"""Koordinator's own Go types read every annotation about CPUs that we write, without a field that they do not know."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.allocation.cpu_annotations import assignment_text
from cotenant.base.allocation.cpu_topology import CpuTopology, regular_topology
from cotenant.base.allocation.topology_document import NodeCpus, PodCpus, annotations_of
from cotenant.base.kubernetes.protocol import CPU_CACHES_ANNOTATION, WITHHELD_CPUS_ANNOTATION
from tests.base.allocation.cpu_machines import machines
from tests.base.allocation.test_devices_read_by_koordinator import read_by_koordinator
from tests.cluster import binaries


@pytest.fixture(scope="module")
def reader() -> None:
    binaries.ensure([binaries.KOORDINATOR_TYPES])


OURS = (WITHHELD_CPUS_ANNOTATION, CPU_CACHES_ANNOTATION)


def kind_of(annotation: str) -> str:
    """As the reader names it."""
    return annotation.partition("/")[2].removeprefix("be-")


@pytest.mark.soak
@pytest.mark.usefixtures("reader")
def test_it_reads_what_a_node_publishes_and_writes_the_same_again() -> None:
    topology = regular_topology(2, 32, 2)
    pods = (
        PodCpus("shop", "web-0", "u1", frozenset({0, 64})),
        PodCpus("a", "b", "u2", frozenset({1}), by_kubelet=True),
    )
    cpus = NodeCpus(topology, "none", frozenset({2}), pods, topology.cpus - {0, 64}, topology.cpus)
    texts = {key: text for key, text in annotations_of(cpus).items() if key not in OURS}
    for key, text in texts.items():
        assert read_by_koordinator(kind_of(key), [json.loads(text)]) == [{"body": json.loads(text)}], key


@pytest.mark.soak
@pytest.mark.usefixtures("reader")
@given(data=st.data(), topology=machines())
@settings(max_examples=20, deadline=None)
def test_it_reads_what_a_pod_is_given(data: st.DataObject, topology: CpuTopology) -> None:
    cpus = data.draw(st.frozensets(st.sampled_from(sorted(topology.cpus)), min_size=1))
    body = json.loads(assignment_text(topology, cpus))
    assert read_by_koordinator("resource-status", [body]) == [{"body": body}]


@pytest.mark.soak
@pytest.mark.usefixtures("reader")
def test_it_reads_the_wishes_that_the_page_shows() -> None:
    spec = {"requiredCPUBindPolicy": "FullPCPUs", "preferredCPUExclusivePolicy": "PCPULevel"}
    assert read_by_koordinator("resource-spec", [spec]) == [{"body": spec}]
    numa = {"numaTopologyPolicy": "SingleNUMANode"}
    (page,) = read_by_koordinator("numa-topology-spec", [numa])
    assert page["body"]["numaTopologyPolicy"] == "SingleNUMANode"
