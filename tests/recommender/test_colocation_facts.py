"""What a Node says: reservations, CPU normalization, other schedulers' share; bad words are ignored and noted."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.cluster import Node
from cotenant.base.colocation.reclaim_policies import Band
from cotenant.base.kubernetes.protocol import (
    CPU_NORMALIZATION_RATIO_ANNOTATION,
    NODE_RESERVATION_ANNOTATION,
    THIRD_PARTY_ALLOCATIONS_ANNOTATION,
)
from cotenant.base.resource import GIB, Resource
from cotenant.recommender.colocation.facts import ColocationNode, cpu_count

CPU, MEMORY = Resource.CPU, Resource.MEMORY


def facts(**annotations: str) -> ColocationNode:
    names = {
        "reservation": NODE_RESERVATION_ANNOTATION,
        "ratio": CPU_NORMALIZATION_RATIO_ANNOTATION,
        "third": THIRD_PARTY_ALLOCATIONS_ANNOTATION,
    }
    given_annotations = {names[k]: v for k, v in annotations.items()}
    return ColocationNode.of(
        Node("n", {CPU: 10_000, MEMORY: 10 * GIB}, {CPU: 9_000, MEMORY: 10 * GIB}, {}, given_annotations)
    )


@pytest.mark.parametrize(
    ("reservation", "cpu", "memory"),
    [
        (None, 1000, 0),  # what the kubelet keeps: capacity - allocatable
        ('{"resources": {"cpu": "500m", "memory": "1Gi"}}', 1000, GIB),  # the larger of both, per resource
        ('{"resources": {"cpu": "3"}}', 3000, 0),
        ('{"resources": {"cpu": "3"}, "reservedCPUs": "0-1,8"}', 3000, 0),
        ('{"resources": {"cpu": "8"}, "reservedCPUs": "0-1", "applyPolicy": "ReservedCPUsOnly"}', 2000, 0),  # CPUs win
        ('{"reservedCPUs": ""}', 1000, 0),
    ],
)
def test_a_reservation_counts_where_it_is_more_than_the_kubelets(
    reservation: str | None, cpu: int, memory: int
) -> None:
    node = facts(reservation=reservation) if reservation else facts()
    assert (node.reserved(CPU), node.reserved(MEMORY)) == (cpu, memory)
    assert not node.notes


def test_what_the_kubelet_keeps_is_counted_before_amplification() -> None:
    annotations = {"node.koordinator.sh/raw-allocatable": '{"cpu": "9"}'}
    amplified = ColocationNode.of(Node("n", {CPU: 10_000, MEMORY: GIB}, {CPU: 18_000, MEMORY: GIB}, {}, annotations))
    # 10 CPUs of which pods get 9, whatever the node looks like
    assert (amplified.reserved(CPU), amplified.reserved(MEMORY)) == (1000, 0)


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        ("reservation", "{"),
        ("reservation", '"3"'),
        ("reservation", '{"reservedCPUs": "1-"}'),
        ("reservation", '{"reservedCPUs": 3}'),
        ("reservation", '{"resources": {"cpu": "many"}}'),
        ("ratio", "fast"),
        ("ratio", "inf"),
        ("ratio", "-1"),
        ("third", "[]"),
        ("third", '{"allocations": [{"priority": "koord-batch", "resources": {"kubernetes.io/batch-cpu": "x"}}]}'),
    ],
)
def test_an_annotation_that_cannot_be_read_changes_nothing_and_is_noted(annotation: str, text: str) -> None:
    node, plain = facts(**{annotation: text}), facts()
    assert (node.reserved(CPU), node.cpu_ratio, dict(node.third_party)) == (plain.reserved(CPU), 1.0, {})
    assert len(node.notes) == 1 and "ignored" in node.notes[0]


def test_other_schedulers_are_summed_by_band_also_under_old_names() -> None:
    text = json.dumps({
        "allocations": [
            {"name": "yarn", "priority": "koord-batch", "resources": {"kubernetes.io/batch-cpu": "1500"}},
            {"name": "old", "priority": "koord-batch", "resources": {"koordinator.sh/batch-cpu": 500}},
            {"name": "other", "priority": "koord-batch", "resources": {"cpu": "9"}},
            {"name": "mid", "priority": "koord-mid", "resources": {"kubernetes.io/mid-memory": "1Gi"}},
            {"name": "prod", "priority": "koord-prod", "resources": {"kubernetes.io/batch-cpu": "7"}},
        ]
    })  # fmt: skip
    assert facts(third=text).third_party == {(Band.BATCH, CPU): 2000, (Band.MID, MEMORY): GIB}


@pytest.mark.parametrize(
    ("text", "count"),
    [("0", 1), ("0-3", 4), ("0-3,2-5", 6), (" 1 , 3-3", 2), ("3-1", None), ("", None), ("a", None), ("1--2", None),
     ("0-9999999", None), ("-1", None)],
)  # fmt: skip
def test_a_list_of_cpus_counts_each_once(text: str, count: int | None) -> None:
    assert cpu_count(text) == count


WORDS = ["resources", "reservedCPUs", "allocations", "priority", "cpu", "kubernetes.io/batch-cpu"]
any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner),
    max_leaves=8,
)


@given(st.sampled_from(["reservation", "ratio", "third"]), st.text(max_size=20) | any_json.map(json.dumps))
@settings(max_examples=150, deadline=None)
def test_no_annotation_breaks_a_node(annotation: str, text: Any) -> None:
    node = facts(**{annotation: text})
    assert node.reserved(CPU) >= 1000
    assert 0 < node.cpu_ratio <= 100
    assert all(amount >= 0 for amount in node.third_party.values())
