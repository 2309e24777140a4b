"""Annotations about CPUs: what is written is read again, and what cannot be read names its owner or counts as none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cotenant.base.allocation.cpu_annotations import (
    CpuAssignment,
    assignment_of,
    assignment_text,
    reserved_cpus,
    system_cpus,
)
from cotenant.base.allocation.cpu_topology import regular_topology
from cotenant.base.errors import UsageError
from cotenant.base.kubernetes.protocol import (
    NODE_RESERVATION_ANNOTATION,
    RESOURCE_STATUS_ANNOTATION,
    SYSTEM_QOS_ANNOTATION,
)


def status(**fields: Any) -> dict[str, str]:
    return {RESOURCE_STATUS_ANNOTATION: json.dumps(fields)}


def test_an_assignment_says_how_many_cpus_are_on_each_numa_node_and_is_read_again() -> None:
    topology = regular_topology(2, 2, 2, 1)  # node 0 has 0, 1, 4 and 5; node 1 the others
    text = assignment_text(topology, frozenset({0, 1, 2, 5}))
    assert json.loads(text) == {
        "cpuset": "0-2,5",
        "numaNodeResources": [{"node": 0, "resources": {"cpu": "3"}}, {"node": 1, "resources": {"cpu": "1"}}],
    }
    assert assignment_of({RESOURCE_STATUS_ANNOTATION: text}, "web") == CpuAssignment(frozenset({0, 1, 2, 5}), (0, 1))


def test_only_parts_with_cpu_name_a_numa_node_of_a_pod() -> None:
    parts = [
        {"node": 0, "resources": {"memory": "1Gi"}},
        {"node": 1, "resources": {"kubernetes.io/batch-cpu": 2000, "memory": "1Gi"}},
        {"node": 2, "resources": {}},
        {"node": 3, "resources": {"cpu": "2"}},
    ]
    assert assignment_of(status(cpuset="", numaNodeResources=parts), "web").numa_nodes == (1, 3)
    assert assignment_of(status(cpuset="1", numaNodeResources=None), "web") == CpuAssignment(frozenset({1}))
    assert assignment_of({}, "web") == CpuAssignment()


@pytest.mark.parametrize("annotations", [status(cpuset="1-"), status(cpuset=3), {RESOURCE_STATUS_ANNOTATION: "{"}])
def test_an_assignment_that_cannot_be_read_names_the_pod_and_the_annotation(annotations: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=f"pod web: annotation {RESOURCE_STATUS_ANNOTATION} cannot be read"):
        assignment_of(annotations, "pod web")


def test_what_a_node_keeps_back_is_read_and_counts_as_none_where_it_cannot_be() -> None:
    assert reserved_cpus({NODE_RESERVATION_ANNOTATION: '{"reservedCPUs": "0-1"}'}, "n") == {0, 1}
    assert system_cpus({SYSTEM_QOS_ANNOTATION: '{"cpuset": "4,6"}'}, "n") == (frozenset({4, 6}), True)
    assert system_cpus({SYSTEM_QOS_ANNOTATION: '{"cpuset": "4", "cpusetExclusive": false}'}, "n") == (
        frozenset({4}),
        False,
    )
    assert (reserved_cpus({}, "n"), system_cpus({}, "n")) == (frozenset(), (frozenset(), True))
    for text in ("[", '{"reservedCPUs": "x", "cpuset": "x"}'):
        assert reserved_cpus({NODE_RESERVATION_ANNOTATION: text}, "n") == frozenset()
        assert system_cpus({SYSTEM_QOS_ANNOTATION: text}, "n") == (frozenset(), False)
