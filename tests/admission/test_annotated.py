"""New pods get what their workload's annotation says, and stay as they are where it does not fit."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.admission.annotated import apply_annotated_resources, owner_of
from cotenant.admission.pod_mutation import AdmissionCall, compute_mutation
from cotenant.admission.view import ClusterView
from cotenant.base.errors import UsageError
from cotenant.base.kubernetes.pod_qos import pod_qos
from cotenant.changes.decide.field_changes import holds_values
from cotenant.changes.decide.in_place import new_pod_writes
from cotenant.changes.model.annotated_resources import (
    CHANGE_ANNOTATION,
    LONGEST,
    AnnotatedResources,
    ResourceSwap,
    decode_swaps,
    encode_swaps,
    same,
    states,
)
from tests.admission.bodies import pod

OLD: dict[str, Any] = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}}
NEW: dict[str, Any] = {"requests": {"cpu": "800m", "memory": "1Gi"}, "limits": {"memory": "2Gi"}}
DB = {"kind": "StatefulSet", "name": "db", "uid": "u-9", "controller": True}
WEB = ("Deployment", "shop", "web")


def noted(before: Any = None, after: Any = None, **more: Any) -> dict[tuple[str, str, str], AnnotatedResources]:
    return {WEB: AnnotatedResources("u-1", {"main": ResourceSwap(before or OLD, after or NEW)}, "c1", **more)}


def born(resources: Any = None, owner: dict[str, Any] | None = None, **labels: str) -> dict[str, Any]:
    new_pod = pod("web-7d4b-x2", {"pod-template-hash": "7d4b", **labels}, **(resources or OLD))
    new_pod["metadata"]["ownerReferences"] = [owner or {"kind": "ReplicaSet", "name": "web-7d4b", "controller": True}]
    return new_pod


def resources(body: dict[str, Any]) -> Any:
    return body["spec"]["containers"][0]["resources"]


def test_a_deployment_s_new_pod_gets_the_values_and_says_by_which_change() -> None:
    body = born()
    # The same amounts written otherwise are the same.
    all_resources = noted(before={"requests": {"cpu": "1000m", "memory": "1024Mi"}, "limits": {"memory": "2Gi"}})
    assert apply_annotated_resources(body, all_resources, "shop") == []
    assert resources(body) == NEW and body["metadata"]["annotations"] == {CHANGE_ANNOTATION: "c1"}
    again = copy.deepcopy(body)
    assert apply_annotated_resources(again, all_resources, "shop") == [] and again == body


@pytest.mark.parametrize(
    ("body", "annotation_document", "phrase"),
    [
        (born({"requests": {"cpu": "3"}}), noted(), "has changed since the annotation was written"),
        (
            born(),
            noted(after={"requests": {"memory": "3Gi"}, "limits": {"memory": "2Gi"}}),
            "more memory than its limit",
        ),
        (born(), noted(after={"limits": {}}), "QoS class would change from Burstable to BestEffort"),
        (born(), noted(wrong="cotenant.dev/resources cannot be read: x"), "cannot be read"),
    ],
)
def test_what_does_not_fit_leaves_the_pod_alone_and_warns(body: Any, annotation_document: Any, phrase: str) -> None:
    before = copy.deepcopy(body)
    (warning,) = apply_annotated_resources(body, annotation_document, "shop")
    assert phrase in warning and body == before


LIMITS: dict[str, Any] = {"limits": {"cpu": "1", "memory": "2Gi"}, "requests": {"memory": "1Gi"}}
"""As a template states it; the API requests one core of its pods."""
LOWERED: dict[str, Any] = {"limits": {"cpu": "500m", "memory": "2Gi"}, "requests": {"memory": "1Gi"}}


@pytest.mark.parametrize(
    ("own", "before", "after", "expected"),
    [
        # The API requests the limit: the change requests less.
        ({**LIMITS, "requests": {"cpu": "1", "memory": "1Gi"}}, LIMITS,
         {**LIMITS, "requests": {"cpu": "300m", "memory": "1Gi"}},
         {**LIMITS, "requests": {"cpu": "300m", "memory": "1Gi"}}),
        # Only the limit falls: what is requested as its copy goes along, as of a template that says so.
        ({**LIMITS, "requests": {"cpu": "1000m", "memory": "1Gi"}}, LIMITS, LOWERED,
         {**LOWERED, "requests": {"cpu": "500m", "memory": "1Gi"}}),
        # A LimitRange has added a limit of CPU and a request of storage: both stay.
        ({"requests": {**OLD["requests"], "ephemeral-storage": "1Gi"}, "limits": {"memory": "2Gi", "cpu": "4"}},
         OLD, NEW,
         {"requests": {**NEW["requests"], "ephemeral-storage": "1Gi"}, "limits": {"memory": "2Gi", "cpu": "4"}}),
        # The template states nothing; the LimitRange's default is another number than the one that the change states.
        ({"requests": {"cpu": "100m", "memory": "128Mi"}}, {}, {"requests": {"cpu": "250m"}},
         {"requests": {"cpu": "250m", "memory": "128Mi"}}),
    ],
)  # fmt: skip
def test_what_defaults_have_added_to_a_pod_stays_beside_the_values(
    own: Any, before: Any, after: Any, expected: Any
) -> None:
    body, swap = born(own), ResourceSwap(before, after)
    all_resources = {WEB: AnnotatedResources("u-1", {"main": swap}, "c1")}
    assert apply_annotated_resources(body, all_resources, "shop") == []
    assert same(resources(body), expected)
    # A rollback resizes the pod that came meanwhile to what a pod of the template has.
    body["metadata"] |= {"uid": "p", "namespace": "shop"}
    body["spec"]["nodeName"] = "n1"
    (write,) = new_pod_writes([body], "c1", {"main": swap})
    (back,) = write.before.values()
    assert states(back, before) and holds_values(body, write)


def test_a_template_that_says_more_by_now_is_newer_than_the_annotation() -> None:
    swap = ResourceSwap({}, {"requests": {"cpu": "250m"}})
    body = born({"requests": {"cpu": "2"}})
    all_resources = {WEB: AnnotatedResources("u-1", {"main": swap}, "c1", stale=frozenset({"main"}))}
    (warning,) = apply_annotated_resources(body, all_resources, "shop")
    assert "has changed since the annotation was written" in warning and resources(body) == {"requests": {"cpu": "2"}}


def test_a_limit_that_a_namespace_adds_below_the_values_leaves_the_pod_alone() -> None:
    body = born({"requests": {"cpu": "1"}, "limits": {"cpu": "2"}})
    (warning,) = apply_annotated_resources(body, noted({"requests": {"cpu": "1"}}, {"requests": {"cpu": "3"}}), "shop")
    assert "would request more cpu than its limit" in warning and resources(body)["requests"] == {"cpu": "1"}


@pytest.mark.parametrize(
    ("body", "owner"),
    [
        (born(), (WEB, "")),
        (born(owner=DB), (("StatefulSet", "shop", "db"), "u-9")),
        (born(owner={"kind": "ReplicaSet", "name": "alone", "controller": True}), None),
        (born(owner={"kind": "Job", "name": "j", "controller": True}), None),
        (pod(), None),
    ],
)  # fmt: skip
def test_the_workload_is_found_by_the_pod_s_owner(body: Any, owner: Any) -> None:
    assert owner_of(body, "shop") == owner


def test_another_object_of_the_same_name_gives_nothing() -> None:
    body = born(owner={"kind": "StatefulSet", "name": "db", "uid": "new", "controller": True})
    all_resources = {("StatefulSet", "shop", "db"): AnnotatedResources("old", {"main": ResourceSwap(OLD, NEW)}, "c1")}
    assert apply_annotated_resources(body, all_resources, "shop") == [] and resources(body) == OLD


def test_the_values_come_before_they_are_translated_for_the_batch_class() -> None:
    view = ClusterView(annotated=noted())
    mutation = compute_mutation(born(), view, AdmissionCall("CREATE", "shop", "u"))
    assert resources(dict(mutation.pod)) == NEW and mutation.warnings == ()
    other = compute_mutation(born(), view, AdmissionCall("CREATE", "elsewhere", "u"))
    assert resources(dict(other.pod)) == OLD


def test_a_text_that_is_no_annotation_of_ours_is_refused_in_words() -> None:
    for text in ("[", '{"app": 3}', '{"app": {"from": {}}}', "x" * (LONGEST + 1)):
        with pytest.raises(UsageError, match=r"cotenant\.dev/resources"):
            decode_swaps(text)
    with pytest.raises(UsageError, match="characters long"):
        encode_swaps({f"c{i}": ResourceSwap(OLD, NEW) for i in range(1000)})
    assert decode_swaps(encode_swaps({"app": ResourceSwap(OLD, NEW)})) == {"app": ResourceSwap(OLD, NEW)}


AMOUNTS = st.dictionaries(
    st.sampled_from(["cpu", "memory", "gpu"]), st.sampled_from(["1", "2Gi", "", "-1", "x", 5, 0.5])
)
SIDES = st.dictionaries(st.sampled_from(["requests", "limits"]), AMOUNTS)
KINDS = st.sampled_from(["ReplicaSet", "StatefulSet", ["x"], None])
OWNER = st.fixed_dictionaries(
    {"kind": KINDS, "name": st.sampled_from(["web-7d4b", "web", 3]), "controller": st.booleans()}
)
OWNERS = st.one_of(st.none(), st.integers(), st.lists(st.one_of(st.integers(), OWNER)))


@given(SIDES, SIDES, SIDES, OWNERS)
@settings(max_examples=150, deadline=None)
def test_nothing_stops_a_pod_and_twice_is_once(own: Any, before: Any, after: Any, owners: Any) -> None:
    body = born(own or {})
    body["metadata"]["ownerReferences"] = owners
    all_resources = {WEB: AnnotatedResources("", {"main": ResourceSwap(before, after)}, "c1")}
    apply_annotated_resources(body, all_resources, "shop")
    once = copy.deepcopy(body)
    apply_annotated_resources(body, all_resources, "shop")
    assert body == once
    changed = CHANGE_ANNOTATION in (body["metadata"].get("annotations") or {})
    # What it changes is what was asked for, beside what the pod alone has, in the same QoS class.
    assert not changed or (
        states(resources(body), after)
        and pod_qos({"containers": [{"resources": own}]}) is pod_qos({"containers": [{"resources": resources(body)}]})
    )
