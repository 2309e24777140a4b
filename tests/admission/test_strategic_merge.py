"""A strategic merge does to a pod what `kubectl patch --type strategic` does."""

from __future__ import annotations

from typing import Any

import pytest

from cotenant.admission.strategic_merge import apply_strategic_patch
from cotenant.base.errors import UsageError

POD: dict[str, Any] = {
    "metadata": {"labels": {"a": "1", "b": "2"}, "finalizers": ["x"]},
    "spec": {
        "containers": [
            {"name": "main", "image": "m:1", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
            {"name": "side", "image": "s:1"},
        ],
        "tolerations": [{"key": "old"}],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
        "nodeSelector": {"disk": "ssd", "zone": "z1"},
    },
}


def spec_after(patch: dict[str, Any]) -> dict[str, Any]:
    return apply_strategic_patch(POD, {"spec": patch})["spec"]


def test_containers_merge_by_name_and_their_environment_too() -> None:
    spec = spec_after(
        {"containers": [{"name": "main", "env": [{"name": "B", "value": "3"}, {"name": "C", "value": "4"}]}]}
    )
    assert spec["containers"][0]["image"] == "m:1"
    assert [(e["name"], e["value"]) for e in spec["containers"][0]["env"]] == [("A", "1"), ("B", "3"), ("C", "4")]
    assert spec["containers"][1] == POD["spec"]["containers"][1]


def test_an_element_is_deleted_by_its_directive() -> None:
    assert [c["name"] for c in spec_after({"containers": [{"name": "side", "$patch": "delete"}]})["containers"]] == [
        "main"
    ]


def test_a_list_is_replaced_by_its_directive() -> None:
    spec = spec_after({"containers": [{"$patch": "replace"}, {"name": "new", "image": "n"}]})
    assert spec["containers"] == [{"name": "new", "image": "n"}]


def test_a_list_without_a_merge_key_is_replaced() -> None:
    assert spec_after({"tolerations": [{"key": "new"}]})["tolerations"] == [{"key": "new"}]


def test_null_removes_and_a_map_is_replaced_by_its_directive() -> None:
    assert spec_after({"nodeSelector": {"disk": None}})["nodeSelector"] == {"zone": "z1"}
    assert spec_after({"nodeSelector": {"$patch": "replace", "arch": "arm"}})["nodeSelector"] == {"arch": "arm"}
    assert spec_after({"nodeSelector": {"$patch": "delete"}})["nodeSelector"] == {}


def test_finalizers_merge_as_a_set_and_lose_what_is_named() -> None:
    assert apply_strategic_patch(POD, {"metadata": {"finalizers": ["y", "x"]}})["metadata"]["finalizers"] == ["x", "y"]
    merged = apply_strategic_patch(POD, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["x"]}})
    assert merged["metadata"]["finalizers"] == []


def test_retained_keys_drop_the_others() -> None:
    spec = spec_after({"volumes": [{"name": "tmp", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/t"}}]})
    assert spec["volumes"] == [{"name": "tmp", "hostPath": {"path": "/t"}}]


def test_the_order_of_elements_is_not_read() -> None:
    spec = spec_after(
        {"$setElementOrder/containers": [{"name": "side"}], "containers": [{"name": "side", "image": "s:2"}]}
    )
    assert [c["name"] for c in spec["containers"]] == ["main", "side"]
    assert spec["containers"][1]["image"] == "s:2"


@pytest.mark.parametrize(
    ("patch", "place"),
    [
        ({"spec": {"containers": {"name": "x"}}}, "patch.spec.containers"),
        ({"spec": {"containers": [{"image": "x"}]}}, "has no name"),
        ({"spec": {"containers": ["x"]}}, "not an object"),
        ({"spec": {"nodeSelector": "ssd"}}, "the pod has an object where the patch has a plain value"),
        ({"spec": {"$patch": "wipe"}}, "'wipe'"),
    ],
)
def test_a_patch_that_does_not_fit_is_refused_by_its_place(patch: dict[str, Any], place: str) -> None:
    with pytest.raises(UsageError, match="patch") as refused:
        apply_strategic_patch(POD, patch)
    assert place in refused.value.message
