"""What colocation reads of a Node and a pod: its own annotations, its published amounts, its NUMA zones."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.kube.projection import node_of, zones_of
from cotenant.base.kubernetes.models.node import NodeWire
from cotenant.base.kubernetes.protocol import NODE_RESERVATION_ANNOTATION, RESOURCE_STATUS_ANNOTATION
from cotenant.base.resource import Resource


def test_a_node_keeps_its_published_amounts_and_only_the_protocols_annotations() -> None:
    body = {
        "metadata": {"name": "n", "annotations": {NODE_RESERVATION_ANNOTATION: "{}", "other.io/note": "x" * 1000}},
        "status": {
            "capacity": {"cpu": "4", "memory": "1Gi", "kubernetes.io/batch-cpu": "3k", "nvidia.com/gpu": "1"},
            "allocatable": {"cpu": "3500m", "memory": "1Gi", "kubernetes.io/mid-memory": "1Ki", "nvidia.com/gpu": "1"},
        },
    }
    node = node_of(msgspec.convert(body, NodeWire))
    assert dict(node.annotations) == {NODE_RESERVATION_ANNOTATION: "{}"}
    assert (dict(node.extended_capacity), dict(node.extended_allocatable)) == (
        {"kubernetes.io/batch-cpu": 3000},
        {"kubernetes.io/mid-memory": 1024},
    )
    assert (node.allocatable[Resource.CPU], node.gpus) == (3500, 1)


@pytest.mark.parametrize(
    ("text", "zones"),
    [
        ('{"cpuset": "0-3", "numaNodeResources": [{"node": 1, "resources": {"cpu": "4"}}, {"node": 0}]}', (1, 0)),
        ('{"cpuset": "0-3"}', ()),
        ("{", ()),
        ('{"numaNodeResources": [{"node": "1"}]}', ()),
    ],
)
def test_a_pods_zones_are_those_that_the_scheduler_wrote(text: str, zones: tuple[int, ...]) -> None:
    assert zones_of({RESOURCE_STATUS_ANNOTATION: text}) == zones
    assert zones_of({}) == ()


any_json = st.recursive(
    st.none() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["node", "numaNodeResources"]), inner),
    max_leaves=6,
)


@given(st.text(max_size=20) | any_json.map(json.dumps))
@settings(max_examples=80, deadline=None)
def test_no_text_of_the_annotation_breaks_a_pod(text: Any) -> None:
    assert all(isinstance(zone, int) for zone in zones_of({RESOURCE_STATUS_ANNOTATION: text}))
