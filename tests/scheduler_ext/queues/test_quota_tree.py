"""Quotas as a tree: read by field, walked without getting lost, found for a pod."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.errors import UsageError
from cotenant.base.kubernetes.pod_request import sum_amounts
from cotenant.base.kubernetes.quota_tree import QuotaNode, QuotaTree, amounts_of

P = "quota.scheduling.koordinator.sh/"


def tree(**parents: str) -> QuotaTree:
    return QuotaTree({name: QuotaNode(name, parent=parent) for name, parent in parents.items()})


def test_a_quota_is_read_from_its_object() -> None:
    node = QuotaNode.parse(
        {
            "metadata": {
                "name": "a",
                "namespace": "n",
                "labels": {P + "parent": "top", P + "is-parent": "true", P + "tree-id": "t", P + "is-root": "true"},
                "annotations": {P + "namespaces": '["shop"]', P + "shared-weight": '{"cpu": "500m"}'},
            },
            "spec": {"min": {"cpu": "1", "memory": "1Ki"}, "max": {"cpu": 2, "kubernetes.io/batch-cpu": "1k"}},
        }
    )
    assert (node.parent, node.is_parent, node.tree_id, node.heads_tree) == ("top", True, "t", True)
    assert node.minimum == {"cpu": 1000, "memory": 1024}
    # batch-cpu counts whole millicores, so "1k" is 1000 of them
    assert node.maximum == {"cpu": 2000, "kubernetes.io/batch-cpu": 1000}
    assert node.shared_weight == {"cpu": 500} and node.namespaces == ("shop",)


def test_a_quota_without_anything_hangs_under_the_root() -> None:
    node = QuotaNode.parse({"metadata": {"name": "a"}})
    assert (node.parent, node.is_parent, node.minimum) == ("koordinator-root-quota", False, {})


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"spec": {"min": {"cpu": "x"}}}, "spec.min.cpu"),
        ({"spec": {"max": 3}}, "spec.max"),
        ({"spec": []}, "spec"),
        ({"metadata": {"annotations": {P + "namespaces": "{"}}}, P + "namespaces"),
        ({"metadata": {"annotations": {P + "namespaces": "[1]"}}}, P + "namespaces"),
        ({"status": {"used": {"cpu": -1}}}, "status.used.cpu"),
    ],
)
def test_what_cannot_be_read_is_named_by_its_field(body: dict[str, Any], field: str) -> None:
    with pytest.raises(UsageError) as refused:
        QuotaNode.parse(body)
    assert field in refused.value.message and refused.value.fix


def test_children_come_by_name_and_the_root_is_nobodys_child() -> None:
    quota_tree = tree(
        b="top", a="top", top="koordinator-root-quota", **{"koordinator-root-quota": "koordinator-root-quota"}
    )
    assert [q.name for q in quota_tree.children("top")] == ["a", "b"]
    assert [q.name for q in quota_tree.children("koordinator-root-quota")] == ["top"]


def test_ancestors_end_at_the_root_a_missing_parent_or_where_they_have_been() -> None:
    quota_tree = tree(a="b", b="koordinator-root-quota", c="gone", x="y", y="x", z="x")
    names = {name: list(quota_tree.ancestors(quota_tree.quotas[name])) for name in quota_tree.quotas}
    assert names["a"] == ["b", "koordinator-root-quota"]
    assert names["c"] == ["gone"]
    assert names["z"] == ["x", "y", "x"]
    assert [name for name in "abcxyz" if quota_tree.has_cycle_through(quota_tree.quotas[name])] == ["x", "y"]


def test_a_quota_of_the_namespaces_own_name_comes_before_one_that_names_the_namespace() -> None:
    quotas = {
        "shop": QuotaNode("shop", namespace="shop"),
        "lab": QuotaNode("lab", namespace="elsewhere"),
        "a": QuotaNode("a", namespaces=("shop", "lab")),
    }
    names = [getattr(QuotaTree(quotas).of_pod(n, labels), "name", None) for n, labels in (
        ("shop", {}), ("lab", {}), ("shop", {P + "name": "a"}), ("elsewhere", {}),
    )]  # fmt: skip
    assert names == ["shop", "a", "a", None]


def test_a_pod_uses_the_quota_of_its_label_else_of_its_namespace() -> None:
    quota_tree = QuotaTree({"a": QuotaNode("a", namespaces=("shop",)), "b": QuotaNode("b")})
    assert getattr(quota_tree.of_pod("shop", {P + "name": "b"}), "name", None) == "b"
    assert getattr(quota_tree.of_pod("shop", {P + "name": "gone"}), "name", None) == "a"
    assert getattr(quota_tree.of_pod("shop", {}), "name", None) == "a"
    assert quota_tree.of_pod("other", {}) is None


def test_sums_stop_at_64_bits() -> None:
    assert sum_amounts([{"memory": 2**63 - 1}, {"memory": 2**63 - 1, "cpu": 1}]) == {"memory": 2**63 - 1, "cpu": 1}


NAMES = st.sampled_from("abcdefgh")


@given(st.dictionaries(NAMES, NAMES | st.just("koordinator-root-quota")))
def test_walking_up_any_tree_ends_within_its_size(parents: dict[str, str]) -> None:
    quota_tree = tree(**parents)
    for quota in quota_tree.quotas.values():
        assert len(list(quota_tree.ancestors(quota))) <= len(parents) + 1


@given(st.dictionaries(st.sampled_from(["cpu", "memory"]), st.integers(0, 10**12)))
def test_amounts_are_millicores_of_cpu_and_whole_units_of_the_rest(given_amounts: dict[str, int]) -> None:
    expected = {name: value * 1000 if name == "cpu" else value for name, value in given_amounts.items()}
    assert amounts_of({name: str(value) for name, value in given_amounts.items()}, "x") == expected


def test_a_pod_stays_with_the_quota_behind_whose_gate_it_was_created() -> None:
    tree = QuotaTree({"a": QuotaNode("a"), "b": QuotaNode("b")})
    for labels in ({P + "name": "b"}, {P + "name": "gone"}, {}):
        assert getattr(tree.of_pod("shop", labels, "a"), "name", None) == "a"
    assert getattr(tree.of_pod("shop", {P + "name": "b"}, "gone"), "name", None) == "b"
