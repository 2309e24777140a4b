"""ElasticQuotas: defaults, the five required rules, the rules of the tree, and absurd trees."""

from __future__ import annotations

import copy
import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.errors import UsageError
from cotenant.base.kubernetes.quota_tree import QuotaNode, QuotaTree
from cotenant.scheduler_ext.queues.admission.quota_rules import problems_of, problems_of_deletion, with_defaults

P = "quota.scheduling.koordinator.sh/"
PARENT, IS_PARENT, TREE = (
    f"metadata.labels[{P}parent]",
    f"metadata.labels[{P}is-parent]",
    f"metadata.labels[{P}tree-id]",
)


def body(name: str = "q", low: Any = None, high: Any = None, **labels: str) -> dict[str, Any]:
    quota_labels = {P + key.replace("_", "-"): value for key, value in labels.items() if key != "namespaces"}
    notes = {P + "namespaces": labels["namespaces"]} if "namespaces" in labels else {}
    return {
        "metadata": {"name": name, "namespace": "kube", "labels": quota_labels, "annotations": notes},
        "spec": {"min": {"cpu": "1"} if low is None else low, "max": {"cpu": "4"} if high is None else high},
    }


def tree(*bodies: dict[str, Any]) -> QuotaTree:
    return QuotaTree({b["metadata"]["name"]: QuotaNode.parse(b) for b in bodies})


TOP = body("top", {"cpu": "2"}, {"cpu": "4"}, is_parent="true", tree_id="t1")


def child(name: str, cpu: str = "1", **labels: str) -> dict[str, Any]:
    return body(name, {"cpu": cpu}, **{"parent": "top", "tree_id": "t1", **labels})


def fields(new: Any, *others: Any, old: Any = None) -> list[str]:
    return [p.field for p in problems_of(new, old, tree(*others))]


def test_a_quota_beside_one_that_cannot_be_read_is_judged_by_what_is_known() -> None:
    unread = QuotaNode.read(child("odd", "a core"))
    beside = QuotaTree({"top": QuotaNode.parse(TOP), "odd": unread})
    # 1 core for one child, and what the other one's "a core" is nobody knows: top's 2 are not exceeded
    assert problems_of(child("leaf", "1"), None, beside) == []
    assert problems_of(body("top", {"cpu": "3"}, {"cpu": "4"}, is_parent="true", tree_id="t1"), TOP, beside) == []
    (below,) = problems_of(body("leaf", parent="odd", tree_id="t1"), None, beside)
    assert (below.field, below.value) == (PARENT, "odd") and "cannot be read: spec.min.cpu" in below.words


def test_defaults_are_the_root_the_parents_tree_and_max_as_weight() -> None:
    quota_body = with_defaults(body(), tree())
    assert quota_body["metadata"]["labels"] == {P + "parent": "koordinator-root-quota"}
    assert json.loads(quota_body["metadata"]["annotations"][P + "shared-weight"]) == {"cpu": "4"}
    below = with_defaults(body("leaf", parent="top"), tree(TOP))
    assert below["metadata"]["labels"][P + "tree-id"] == "t1"
    assert with_defaults(below, tree(TOP)) == below


def test_shared_weights_follow_the_resources_of_max() -> None:
    given_body = body(high={"cpu": "4", "memory": "1Gi"})
    given_body["metadata"]["annotations"] = {P + "shared-weight": '{"cpu": "2", "gpu": "1"}'}
    shared_weight = with_defaults(given_body, tree())["metadata"]["annotations"][P + "shared-weight"]
    assert json.loads(shared_weight) == {"cpu": "2", "memory": "1Gi"}


def test_a_write_of_what_a_quota_may_use_fills_in_nothing_and_any_other_does() -> None:
    old = body()
    noted = copy.deepcopy(old)
    noted["metadata"]["annotations"] = {P + "runtime": '{"cpu":"4"}'}
    noted["status"] = {"used": {"cpu": "1"}}
    assert with_defaults(noted, tree(), old) == noted
    for path, value in (("labels", {"a": "b"}), ("annotations", {P + "shared-weight": '{"gpu":"1"}'})):
        changed = copy.deepcopy(old)
        changed["metadata"][path] = value
        assert with_defaults(changed, tree(), old) == with_defaults(changed, tree()) != changed
    larger = {**old, "spec": {**old["spec"], "max": {"cpu": "4", "memory": "1Gi"}}}
    assert with_defaults(larger, tree(), old) == with_defaults(larger, tree()) != larger


def test_rule_1_childrens_min_sums_to_no_more_than_their_parents() -> None:
    assert fields(child("b"), TOP, child("a")) == []  # 1 + 1 = 2
    assert fields(child("b", "1001m"), TOP, child("a")) == ["spec.min.cpu"]
    assert fields(child("b", "1001m", allow_force_update="true"), TOP, child("a")) == []
    lowered = body("top", {"cpu": "1"}, {"cpu": "4"}, is_parent="true", tree_id="t1")
    assert fields(lowered, TOP, child("a"), child("b"), old=TOP) == ["spec.min.cpu"]


def test_rule_1_does_not_hold_under_the_root() -> None:
    root = body("koordinator-root-quota", {"cpu": "1"}, is_parent="true")
    assert fields(body("a", {"cpu": "3"}), root, body("b", {"cpu": "3"})) == []


def test_rule_2_a_childs_max_may_exceed_its_parents() -> None:
    assert fields(body("a", {"cpu": "1"}, {"cpu": "400"}, parent="top", tree_id="t1"), TOP) == []


def test_rule_4_only_a_parent_quota_has_children() -> None:
    leaf = body("top", {"cpu": "2"}, tree_id="t1")
    assert fields(child("a"), leaf) == [PARENT]


def test_rule_5_is_parent_does_not_change() -> None:
    assert fields(body("q", is_parent="true"), old=body("q")) == [IS_PARENT]
    assert fields(body("q", is_parent="false"), old=body("q", is_parent="true")) == [IS_PARENT]


@pytest.mark.parametrize(
    ("low", "high", "field"),
    [
        ({"cpu": "5"}, {"cpu": "4"}, "spec.min.cpu"),
        ({"gpu": "1"}, {"cpu": "4"}, "spec.min.gpu"),
        ({"cpu": "-1"}, {"cpu": "4"}, "spec.min.cpu"),
        ({"cpu": "1"}, {"cpu": "1e999999"}, "spec.max.cpu"),
        ({"cpu": True}, {"cpu": "1"}, "spec.min.cpu"),
        ({"cpu": "1"}, [], "spec.max"),
    ],
)
def test_a_quota_that_is_wrong_in_itself_is_refused_by_field(low: Any, high: Any, field: str) -> None:
    assert fields(body(low=low, high=high)) == [field]


def test_resources_are_the_same_along_a_branch() -> None:
    odd = body("a", {"cpu": "1"}, {"cpu": "4", "memory": "1Gi"}, parent="top", tree_id="t1")
    assert fields(odd, TOP) == ["spec.max"]
    bare = body("top", {}, {"cpu": "4"}, is_parent="true", tree_id="t1")
    assert "spec.min" in fields(child("a"), bare)


def test_a_tree_id_is_its_parents_and_never_changes() -> None:
    assert fields(child("a", tree_id="other"), TOP) == [TREE]
    assert fields(body("q", tree_id="new"), old=body("q", tree_id="old")) == [TREE]


def test_an_orphan_and_a_cycle_are_refused() -> None:
    assert fields(body("a", parent="gone")) == [PARENT]
    mother = body("m", is_parent="true", parent="d")
    daughter = body("d", is_parent="true", parent="m")
    assert PARENT in fields(mother, daughter, body("m", is_parent="true"), old=body("m", is_parent="true"))
    assert PARENT in fields(body("self", parent="self", is_parent="true"))


def test_sums_beyond_64_bits_are_refused() -> None:
    huge = {"memory": str(2**62)}
    assert fields(body("a", huge, huge), body("b", huge, huge)) == ["spec.min.memory", "spec.max.memory"]


def test_a_namespace_belongs_to_one_quota_and_a_name_to_one_namespace() -> None:
    taken = body("a", namespaces='["shop"]')
    assert fields(body("b", namespaces='["shop"]'), taken) == [f"metadata.annotations[{P}namespaces]"]
    elsewhere = body("a")
    elsewhere["metadata"]["namespace"] = "other"
    assert fields(elsewhere, taken) == ["metadata.name"]
    assert fields(body("b", namespaces="shop")) == [f"metadata.annotations[{P}namespaces]"]


def test_max_stays_above_use_where_that_is_asked() -> None:
    old, new = body(), body(low={}, high={"cpu": "1"})
    new["metadata"]["annotations"][P + "max-strict-check-resource-keys"] = '["cpu"]'
    new["status"] = {"used": {"cpu": "2"}}
    assert fields(new, old=old) == ["spec.max.cpu"]


def test_what_belongs_to_the_system_stays() -> None:
    system = body("koordinator-system-quota")
    assert fields(body("koordinator-system-quota", {"cpu": "2"}), old=system) == ["metadata.name"]
    assert fields(system, old=system) == []
    for name in ("koordinator-root-quota", "koordinator-system-quota", "koordinator-default-quota"):
        assert problems_of_deletion(body(name), tree(), 0)


def test_a_quota_in_use_is_not_deleted() -> None:
    assert problems_of_deletion(TOP, tree(TOP), 0) == []
    assert "child quotas: a" in problems_of_deletion(TOP, tree(TOP, child("a")), 0)[0].words
    assert "used by 3 pods" in problems_of_deletion(child("a"), tree(TOP, child("a")), 3)[0].words


NAMES = st.sampled_from(["a", "b", "c", "koordinator-root-quota", "koordinator-system-quota"])
AMOUNT: st.SearchStrategy[Any] = st.sampled_from(
    ["0", "1", "500m", "9223372036854775807", "1e30", "-1", "x", 3, None, [], "1e999999"]
)
BODIES = st.builds(
    lambda name, parent, is_parent, low, high, note: {
        "metadata": {
            "name": name,
            "labels": {P + "parent": parent, P + "is-parent": is_parent},
            "annotations": {P + "namespaces": note, P + "shared-weight": note},
        },
        "spec": {"min": low, "max": high},
    },
    NAMES,
    NAMES,
    st.sampled_from(["true", "false", ""]),
    st.dictionaries(st.sampled_from(["cpu", "memory"]), AMOUNT, max_size=2),
    st.dictionaries(st.sampled_from(["cpu", "memory"]), AMOUNT, max_size=2),
    st.sampled_from(["", "[]", '["x"]', "{", '{"cpu": 1}', "3"]),
)


def readable(bodies: list[Any]) -> QuotaTree:
    quotas = {}
    for quota_body in bodies:
        with suppress(UsageError):
            quotas[quota_body["metadata"]["name"]] = QuotaNode.parse(quota_body)
    return QuotaTree(quotas)


@given(st.lists(BODIES, max_size=5), BODIES, st.none() | BODIES)
@settings(max_examples=150, deadline=None)
def test_any_tree_is_judged_without_a_crash_and_no_accepted_quota_closes_a_cycle(
    stored: list[Any], new: Any, old: Any
) -> None:
    around = readable(stored)
    defaulted = with_defaults(new, around)
    assert with_defaults(defaulted, around) == defaulted
    if not problems_of(defaulted, old, around) and old is None and new["metadata"]["name"] != "koordinator-root-quota":
        quota = QuotaNode.parse(defaulted)
        assert quota.name not in list(around.ancestors(quota))
        assert all(amount <= quota.maximum[name] for name, amount in quota.minimum.items())
