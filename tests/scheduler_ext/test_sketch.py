"""The sketched Reservation becomes today's, or an error that names the field."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.errors import UsageError
from cotenant.scheduler_ext.sketch import LONGEST_SECONDS, convert_reservation, on_node

SKETCH: dict[str, Any] = {
    "kind": "Reservation",
    "metadata": {"name": "my-reservation", "namespace": "shop"},
    "spec": {
        "template": {"containers": [{"name": "web", "resources": {"requests": {"cpu": "2"}}}]},
        "resourceOwners": {
            "controller": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "deployment-5b8df84dd"}
        },
        "timeToLiveInSeconds": 300,
        "nodeName": "node-1",
    },
    "status": {"phase": "Available"},
}


def changed(path: str, value: Any) -> dict[str, Any]:
    body = copy.deepcopy(SKETCH)
    *way, last = path.split(".")
    place = body
    for word in way:
        place = place[word]
    place[last] = value
    return body


def test_the_sketch_becomes_a_cluster_scoped_reservation() -> None:
    result = convert_reservation(SKETCH)
    here = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [here]}}
    assert result.body == {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": "my-reservation"},
        "spec": {
            "template": {
                "metadata": {"namespace": "shop"},
                "spec": {**SKETCH["spec"]["template"], "affinity": {"nodeAffinity": required}},
            },
            # A Deployment is no pod's controller; 5b8df84dd is the hash of its ReplicaSet.
            "owners": [
                {
                    "controller": {
                        "namespace": "shop",
                        "uid": "",
                        "apiVersion": "apps/v1",
                        "kind": "ReplicaSet",
                        "name": "deployment-5b8df84dd",
                    }
                }
            ],
            "ttl": "300s",
        },
    }
    notes = " ".join(result.notes)
    assert "cluster-scoped" in notes
    assert "ReplicaSet" in notes
    assert "status" in notes


def test_an_empty_template_is_said_to_reserve_nothing() -> None:
    assert any("reserves nothing" in note for note in convert_reservation(changed("spec.template", {})).notes)
    assert not any("reserves nothing" in note for note in convert_reservation(SKETCH).notes)


def test_todays_object_comes_back_as_it_is() -> None:
    today = convert_reservation(SKETCH).body
    again = convert_reservation(today)
    assert again.body == today
    assert "already" in again.notes[0]


@pytest.mark.parametrize(
    ("path", "value", "word"),
    [
        ("kind", "Deployment", "Deployment"),
        ("apiVersion", "apps/v1", "apps/v1"),
        ("metadata", {}, "metadata.name"),
        ("spec", None, "resourceOwners"),
        ("spec", "all", "str"),
        ("spec.resourceOwners", None, "resourceOwners"),
        ("spec.resourceOwners", {}, "resourceOwners"),
        ("spec.resourceOwners.user", "jane", "resourceOwners.user"),
        ("spec.resourceOwners.controller.name", "", "controller.name"),
        ("spec.resourceOwners.controller.name", "web", "ReplicaSets"),
        ("spec.timeToLiveInSeconds", -1, "-1"),
        ("spec.timeToLiveInSeconds", "5m", "5m"),
        ("spec.timeToLiveInSeconds", True, "true"),
        ("spec.timeToLiveInSeconds", LONGEST_SECONDS + 1, "seconds"),
        ("spec.template", "pod", "spec.template"),
        ("spec.priority", 3, "spec.priority"),
        ("spec.owners", [{}], "spec.owners"),
    ],
)
def test_what_cannot_be_translated_is_an_error_that_names_it(path: str, value: Any, word: str) -> None:
    with pytest.raises(UsageError) as caught:
        convert_reservation(changed(path, value))
    assert word in caught.value.message or (path == "spec" and "resourceOwners" in caught.value.message)
    assert caught.value.fix


def test_a_node_is_required_besides_what_the_pod_requires_already() -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    wants = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term, {}]}}
    pod = {"affinity": {"nodeAffinity": wants, "podAffinity": {"x": 1}}}
    now = on_node(pod, "n")["affinity"]
    terms = now["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    # Terms are alternatives: the node has to stand in each of them.
    assert [t["matchFields"][0]["values"] for t in terms] == [["n"], ["n"]]
    assert terms[0]["matchExpressions"] == term["matchExpressions"]
    assert now["podAffinity"] == {"x": 1}


KEYS = [
    "controller", "kind", "name", "spec", "containers", "owners", "affinity", "nodeAffinity", "nodeSelectorTerms",
    "requiredDuringSchedulingIgnoredDuringExecution", "matchFields",
]  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(["metadata", "spec", *(f"spec.{k}" for k in SKETCH["spec"])]), JSON)
def test_no_input_breaks_it_otherwise_and_none_is_changed(path: str, value: Any) -> None:
    body = changed(path, value)
    before = copy.deepcopy(body)
    try:
        assert convert_reservation(body).body["kind"] == "Reservation"
    except UsageError as error:
        assert error.message
    assert body == before


@settings(max_examples=100, deadline=None)
@given(JSON)
def test_no_affinity_breaks_it_either(value: Any) -> None:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": value}
    for affinity in (value, {"nodeAffinity": value}, {"nodeAffinity": required}):
        try:
            assert "nodeAffinity" in on_node({"affinity": affinity}, "n")["affinity"]
        except UsageError as error:
            assert error.message
