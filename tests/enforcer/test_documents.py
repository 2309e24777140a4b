"""Policies and pods from people's files."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.errors import UsageError
from cotenant.enforcer.model.node_policy import decode
from cotenant.enforcer.sources.documents import inventory_of, policy_of

POLICY = "resourceUsedThresholdWithBE: {enable: true, cpuSuppressThresholdPercent: 70}"


def test_a_nodeslo_and_its_spec_alone_mean_the_same() -> None:
    alone = policy_of(POLICY, "p.yaml")
    whole_object = policy_of(f"apiVersion: slo.koordinator.sh/v1alpha1\nkind: NodeSLO\nspec:\n  {POLICY}\n", "p.yaml")
    assert alone == whole_object
    assert alone.thresholds.cpu_suppress_threshold_percent == 70


def test_json_is_read_as_yaml_is() -> None:
    text = '{"kind": "NodeSLO", "spec": {"resourceUsedThresholdWithBE": {"enable": true}}}'
    assert policy_of(text, "p.json") == decode({"resourceUsedThresholdWithBE": {"enable": True}})


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("resourceUsedThresholdWithBE: {cpuSuppressThresholdPercent: 170}", "170"),
        ("resourceUsedThresholdWithBE: {cpuSupressThresholdPercent: 60}", "do you mean cpuSuppressThresholdPercent?"),
        ("kind: NodeSLO\nmetadata: {name: n1}\nspec: {resourceUsedThreshold: {}}\n", "resourceUsedThresholdWithBE"),
        ("kind: ConfigMap\n", "ConfigMap"),
        ("a: 1\n---\nb: 2\n", "2 documents"),
        ("", "0 documents"),
        ("spec: 3\n", "spec is not a mapping"),
        ("x: [1, 2", "neither YAML nor JSON"),
        ("a: &a [1]\nb: *a\n", "alias"),
    ],
)
def test_a_policy_that_cannot_be_used_says_why_and_where(text: str, word: str) -> None:
    with pytest.raises(UsageError) as refused:
        policy_of(text, "p.yaml")
    assert word in refused.value.message and "p.yaml" in refused.value.message


def test_a_policy_saved_from_a_cluster_may_have_fields_of_a_newer_version() -> None:
    saved = (
        "kind: NodeSLO\nmetadata: {name: n1, uid: u1}\nspec: {resourceUsedThresholdWithBE: {enable: true, new: 1}}\n"
    )
    assert policy_of(saved, "p.yaml").thresholds.enable


def test_pods_of_lists_and_documents_come_together_with_their_node() -> None:
    text = """
kind: List
items:
  - {kind: Pod, metadata: {name: a, namespace: x, uid: u1}}
  - {kind: Pod, metadata: {name: done, namespace: x, uid: u2}, status: {phase: Succeeded}}
---
kind: Node
metadata: {name: n1}
status: {capacity: {cpu: 2}}
"""
    inventory = inventory_of(text, "pods.yaml")
    assert [pod.key for pod in inventory.pods] == ["x/a"]
    assert inventory.node is not None and inventory.node.capacity == {"cpu": 2000}


def test_an_object_that_is_neither_pod_nor_node_is_named() -> None:
    with pytest.raises(UsageError, match="'Secret' is neither"):
        inventory_of("kind: Secret\nmetadata: {name: s}\n", "pods.yaml")


@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda raw: raw.decode("latin-1")))
@settings(max_examples=150)
def test_no_text_whatsoever_raises_anything_but_a_refusal(text: str) -> None:
    for read in (policy_of, inventory_of):
        try:
            read(text, "f")
        except UsageError as refused:
            assert refused.message.startswith("f")
        else:
            assert read(text, "f") == read(text, "f")
