"""Server-side apply, JSON patch, dry run, subresources, conflicts, validation: the same on both servers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.api import Json
from tests.contract.target import Target, config_map, refused, widget


def owners(item: Json) -> dict[tuple[str, str, str], Json]:
    """(manager, operation, subresource) -> fields."""
    return {
        (m["manager"], m["operation"], m.get("subresource", "")): m["fieldsV1"]
        for m in item["metadata"]["managedFields"]
    }


# --- server-side apply ------------------------------------------------------------------------------------------------
def test_apply_creates_what_is_not_there_and_notes_who_owns_which_field(target: Target) -> None:
    live = target.apply(target.path("configmaps", "c"), config_map("c", {"a": "1"}, labels={"x": "y"}), "one")
    assert live["data"] == {"a": "1"}
    assert owners(live) == {("one", "Apply", ""): {"f:data": {"f:a": {}}, "f:metadata": {"f:labels": {"f:x": {}}}}}
    assert live["metadata"]["uid"] and live["metadata"]["creationTimestamp"]


def test_a_field_left_out_of_the_next_apply_is_given_up_and_deleted(target: Target) -> None:
    path = target.path("configmaps", "c")
    target.apply(path, config_map("c", {"a": "1", "b": "2"}, labels={"x": "y"}))
    now = target.apply(path, config_map("c", {"b": "3"}))
    assert now["data"] == {"b": "3"}
    assert "labels" not in now["metadata"]
    assert owners(now) == {("one", "Apply", ""): {"f:data": {"f:b": {}}}}


def test_fields_of_two_managers_live_side_by_side(target: Target) -> None:
    path = target.path("configmaps", "c")
    target.apply(path, config_map("c", {"a": "1"}), "one")
    both = target.apply(path, config_map("c", {"b": "2"}), "two")
    assert both["data"] == {"a": "1", "b": "2"}
    less = target.apply(path, config_map("c", {}), "one")
    assert less["data"] == {"b": "2"}
    assert set(owners(less)) <= {("two", "Apply", ""), ("one", "Apply", "")}


def test_a_value_that_both_managers_say_belongs_to_both_and_stays_until_both_gave_it_up(target: Target) -> None:
    path = target.path("configmaps", "c")
    target.apply(path, config_map("c", {"a": "1", "k": "v"}), "one")
    target.apply(path, config_map("c", {"a": "1"}), "two")
    assert target.apply(path, config_map("c", {"k": "v"}), "one")["data"] == {"a": "1", "k": "v"}
    assert target.apply(path, config_map("c"), "two")["data"] == {"k": "v"}


def test_another_managers_value_is_a_conflict_that_names_manager_and_field(target: Target) -> None:
    path = target.path("configmaps", "c")
    target.apply(path, config_map("c", {"a": "1"}), "one")
    error = refused(target, "PATCH", path, config_map("c", {"a": "2"}), fieldManager="two")
    assert (error.status, error.body["reason"]) == (409, "Conflict")
    assert error.body["message"] == 'Apply failed with 1 conflict: conflict with "one": .data.a'
    cause = {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".data.a"}
    assert error.body["details"]["causes"] == [cause]
    assert target.admin.get(path)["data"] == {"a": "1"}


def test_force_takes_the_field_over(target: Target) -> None:
    path = target.path("configmaps", "c")
    target.apply(path, config_map("c", {"a": "1", "b": "1"}), "one")
    taken = target.apply(path, config_map("c", {"a": "2"}), "two", force="true")
    assert taken["data"] == {"a": "2", "b": "1"}
    assert owners(taken) == {
        ("one", "Apply", ""): {"f:data": {"f:b": {}}},
        ("two", "Apply", ""): {"f:data": {"f:a": {}}},
    }


def test_a_field_changed_by_a_patch_is_a_conflict_for_the_next_apply(target: Target) -> None:
    path = target.path("widgets", "w")
    target.apply(path, widget("w", {"size": 1}), "one")
    change = [{"op": "replace", "path": "/spec/size", "value": 2}]
    patched = target.admin.patch(path, change, "json", fieldManager="person")
    assert owners(patched)["person", "Update", ""] == {"f:spec": {"f:size": {}}}
    error = refused(target, "PATCH", path, widget("w", {"size": 1}), fieldManager="one")
    assert error.status == 409
    assert 'conflict with "person" using contract.cotenant.dev/v1' in error.body["message"]


def test_items_of_a_list_with_keys_belong_to_whoever_applied_them(target: Target) -> None:
    path = target.path("widgets", "w")
    target.apply(path, widget("w", {"steps": [{"name": "a", "image": "x"}], "tags": ["t"]}), "one")
    both = target.apply(path, widget("w", {"steps": [{"name": "b"}, {"name": "a", "count": 2}], "tags": ["u"]}), "two")
    assert both["spec"]["steps"] == [{"name": "b"}, {"name": "a", "image": "x", "count": 2}]
    assert sorted(both["spec"]["tags"]) == ["t", "u"]
    assert owners(both)["one", "Apply", ""] == {
        "f:spec": {
            "f:steps": {'k:{"name":"a"}': {".": {}, "f:image": {}, "f:name": {}}},
            "f:tags": {'v:"t"': {}},
        }
    }
    less = target.apply(path, widget("w", {"tags": ["u"]}), "two")
    assert less["spec"]["steps"] == [{"name": "a", "image": "x"}]


def test_plain_lists_and_atomic_maps_are_one_value(target: Target) -> None:
    path = target.path("widgets", "w")
    target.apply(path, widget("w", {"plain": ["a"], "whole": {"x": "1"}}), "one")
    error = refused(target, "PATCH", path, widget("w", {"plain": ["a", "b"], "whole": {"y": "2"}}), fieldManager="two")
    assert {cause["field"] for cause in error.body["details"]["causes"]} == {".spec.plain", ".spec.whole"}
    taken = target.apply(path, widget("w", {"plain": ["b"], "whole": {"y": "2"}}), "two", force="true")
    assert (taken["spec"]["plain"], taken["spec"]["whole"]) == (["b"], {"y": "2"})


def test_containers_are_merged_by_name_and_their_variables_too(target: Target) -> None:
    path = target.path("apps/v1/deployments", "d")
    target.apply(path, deployment([{"name": "app", "image": "x", "env": [{"name": "A", "value": "1"}]}]), "one")
    mine = {"name": "app", "resources": {"requests": {"cpu": "100m"}}, "env": [{"name": "B", "value": "2"}]}
    partial = deployment([mine])
    del partial["spec"]["selector"], partial["spec"]["template"]["metadata"]
    [both] = target.apply(path, partial, "two")["spec"]["template"]["spec"]["containers"]
    assert both["image"] == "x"
    assert both["resources"] == {"requests": {"cpu": "100m"}}
    assert {variable["name"] for variable in both["env"]} == {"A", "B"}
    partial["spec"]["template"]["spec"]["containers"] = []
    [container] = target.apply(path, partial, "two")["spec"]["template"]["spec"]["containers"]
    assert (container["image"], container.get("resources", {}), container["env"]) == (
        "x",
        {},
        [{"name": "A", "value": "1"}],
    )


def test_an_apply_that_changes_nothing_writes_nothing(target: Target) -> None:
    path = target.path("widgets", "w")
    first = target.apply(path, widget("w", {"size": 1, "steps": [{"name": "a"}]}))
    assert target.apply(path, widget("w", {"size": 1, "steps": [{"name": "a"}]})) == first


def test_an_apply_on_a_version_that_is_past_is_409(target: Target) -> None:
    path = target.path("configmaps", "c")
    live = target.apply(path, config_map("c", {"a": "1"}))
    version = live["metadata"]["resourceVersion"]
    target.apply(path, config_map("c", {"a": "2"}, resourceVersion=version))
    error = refused(target, "PATCH", path, config_map("c", {"a": "3"}, resourceVersion=version), fieldManager="one")
    assert (error.status, error.body["reason"]) == (409, "Conflict")
    assert "the object has been modified" in error.body["message"]


def test_an_apply_that_expects_a_version_creates_what_is_not_there_all_the_same(target: Target) -> None:
    live = target.apply(target.path("configmaps", "c"), config_map("c", {"a": "1"}, resourceVersion="5"))
    assert live["data"] == {"a": "1"}


def test_an_apply_that_expects_a_uid_creates_nothing(target: Target) -> None:
    path, uid = target.path("configmaps", "c"), "11111111-1111-1111-1111-111111111111"
    assert refused(target, "PATCH", path, config_map("c", {}, uid=uid), fieldManager="one").status == 409
    assert not target.admin.exists(path)


def test_an_apply_with_anothers_uid_is_422(target: Target) -> None:
    path, uid = target.path("configmaps", "c"), "11111111-1111-1111-1111-111111111111"
    target.apply(path, config_map("c", {}))
    assert refused(target, "PATCH", path, config_map("c", {"a": "1"}, uid=uid), fieldManager="one").status == 422


def test_an_apply_without_a_field_manager_is_422(target: Target) -> None:
    assert refused(target, "PATCH", target.path("configmaps", "c"), config_map("c", {})).status == 422


@pytest.mark.parametrize(
    ("body", "query"),
    [
        ({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other"}}, {"fieldManager": "one"}),
        ({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "c"}}, {"fieldManager": "one"}),
        (
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "x"}},
            {"fieldManager": "one"},
        ),
        (
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "managedFields": [{"manager": "x"}]}},
            {"fieldManager": "one"},
        ),
        (["no object"], {"fieldManager": "one"}),
    ],
)
def test_an_apply_that_is_not_one_of_this_object_is_400(target: Target, body: object, query: dict[str, str]) -> None:
    assert refused(target, "PATCH", target.path("configmaps", "c"), body, **query).status == 400


def test_nothing_is_created_in_a_namespace_that_is_not_there(target: Target) -> None:
    error = refused(target, "PATCH", "/api/v1/namespaces/nowhere/configmaps/c", config_map("c", {}), fieldManager="one")
    assert (error.status, error.body["reason"]) == (404, "NotFound")
    assert error.body["message"] == 'namespaces "nowhere" not found'


# --- JSON patch -------------------------------------------------------------------------------------------------------
def test_a_json_patch_applies_all_its_operations(target: Target) -> None:
    path = target.path("configmaps", "c")
    target.apply(path, config_map("c", {"a": "1", "b": "2"}))
    steps = [
        {"op": "test", "path": "/data/a", "value": "1"},
        {"op": "replace", "path": "/data/a", "value": "5"},
        {"op": "remove", "path": "/data/b"},
        {"op": "add", "path": "/metadata/labels", "value": {"x~y": "z"}},
        {"op": "copy", "from": "/data/a", "path": "/data/c"},
    ]
    changed = target.admin.patch(path, steps[:3] + steps[4:], "json", fieldManager="two")
    assert changed["data"] == {"a": "5", "c": "5"}


@pytest.mark.parametrize(
    "steps",
    [
        [{"op": "replace", "path": "/data/a", "value": "9"}, {"op": "test", "path": "/data/b", "value": "wrong"}],
        [{"op": "replace", "path": "/data/a", "value": "9"}, {"op": "remove", "path": "/data/nobody"}],
        [{"op": "replace", "path": "/data/a", "value": "9"}, {"op": "replace", "path": "/none/x", "value": "1"}],
        [{"op": "fly", "path": "/data/a"}],
    ],
)
def test_a_json_patch_of_which_a_step_fails_is_422_and_changes_nothing(target: Target, steps: list[Json]) -> None:
    path = target.path("configmaps", "c")
    live = target.apply(path, config_map("c", {"a": "1", "b": "2"}))
    assert refused(target, "PATCH", path, steps, "json").status == 422
    assert target.admin.get(path) == live


def test_a_json_patch_tests_by_null_that_something_is_not_there(target: Target) -> None:
    path = target.path("configmaps", "c")
    target.apply(path, config_map("c", {"a": "1"}), "one")
    steps = [
        {"op": "test", "path": "/metadata/annotations", "value": None},
        {"op": "add", "path": "/metadata/annotations", "value": {"x": "y"}},
    ]
    assert target.admin.patch(path, steps, "json", fieldManager="two")["metadata"]["annotations"] == {"x": "y"}
    assert refused(target, "PATCH", path, steps, kind="json", fieldManager="two").status == 422


@pytest.mark.parametrize("steps", [{"op": "add"}, "text", [1]])
def test_a_json_patch_that_is_none_is_400(target: Target, steps: object) -> None:
    path = target.path("configmaps", "c")
    target.apply(path, config_map("c", {"a": "1"}))
    assert refused(target, "PATCH", path, steps, "json").status == 400


def test_a_json_patch_of_what_is_not_there_is_404(target: Target) -> None:
    steps = [{"op": "add", "path": "/data", "value": {}}]
    assert refused(target, "PATCH", target.path("configmaps", "nobody"), steps, "json").status == 404


# --- dry run ----------------------------------------------------------------------------------------------------------
def test_a_dry_run_answers_as_the_write_would_and_writes_nothing(target: Target) -> None:
    path = target.path("configmaps", "c")
    assert target.apply(path, config_map("c", {"a": "1"}), dryRun="All")["data"] == {"a": "1"}
    assert not target.admin.exists(path)
    live = target.apply(path, config_map("c", {"a": "1"}))
    step = [{"op": "replace", "path": "/data/a", "value": "2"}]
    assert target.admin.patch(path, step, "json", dryRun="All")["data"] == {"a": "2"}
    assert target.apply(path, config_map("c", {"a": "3"}), dryRun="All")["data"] == {"a": "3"}
    target.admin.delete(path, dryRun="All")
    assert target.admin.get(path) == live
    other = refused(target, "PATCH", path, config_map("c", {"a": "2"}), fieldManager="two", dryRun="All")
    assert other.status == 409


# --- subresources -----------------------------------------------------------------------------------------------------
def test_status_is_written_through_its_subresource_only(target: Target) -> None:
    path = target.path("widgets", "w")
    body = {**widget("w", {"size": 1}), "status": {"ready": 1}}
    live = target.apply(path, body, "one")
    assert "status" not in live
    after = target.apply(
        f"{path}/status", {**widget("w", {"size": 50}, labels={"x": "y"}), "status": {"ready": 2}}, "s"
    )
    assert (after["spec"]["size"], after["status"]) == (1, {"ready": 2})
    assert "labels" not in after["metadata"]
    assert owners(after)["s", "Apply", "status"]["f:status"] == {"f:ready": {}}
    again = target.apply(path, {**widget("w", {"size": 2}), "status": {"ready": 9}}, "one")
    assert (again["spec"]["size"], again["status"]) == (2, {"ready": 2})


def test_the_same_manager_owns_status_and_spec_apart(target: Target) -> None:
    path = target.path("widgets", "w")
    target.apply(path, widget("w", {"size": 1}), "one")
    target.apply(f"{path}/status", {**widget("w"), "status": {"ready": 2}}, "one")
    now = target.apply(path, widget("w", {"mode": "fast"}), "one")
    assert (now["spec"], now["status"]) == ({"mode": "fast", "pace": "steady"}, {"ready": 2})


def test_the_status_of_what_is_not_there_is_404(target: Target) -> None:
    body = {**widget("w"), "status": {"ready": 2}}
    assert refused(target, "PATCH", target.path("widgets", "w", "status"), body, fieldManager="one").status == 404


def test_extended_resources_of_a_node_are_applied_to_its_status(target: Target) -> None:
    path = f"/api/v1/nodes/{target.namespace}"
    head = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": target.namespace}}
    target.apply(path, {**head, "metadata": {"name": target.namespace, "labels": {"pool": "x"}}}, "install")
    amounts = {"kubernetes.io/batch-cpu": "1500", "kubernetes.io/batch-memory": "1073741824"}
    status = {"capacity": amounts, "allocatable": amounts}
    now = target.apply(f"{path}/status", {**head, "status": status}, "cotenant-manager", force="true")
    assert {k: now["status"]["allocatable"][k] for k in amounts} == {
        "kubernetes.io/batch-cpu": "1500",
        "kubernetes.io/batch-memory": "1073741824",
    }
    fewer = {"capacity": {}, "allocatable": {"kubernetes.io/batch-cpu": "5"}}
    now = target.apply(f"{path}/status", {**head, "status": fewer}, "cotenant-manager", force="true")
    assert now["status"]["allocatable"] == {"kubernetes.io/batch-cpu": "5"}
    assert now["metadata"]["labels"]["pool"] == "x"
    target.admin.delete(path)


def test_conditions_are_merged_by_type(target: Target) -> None:
    path = target.path("apps/v1/deployments", "d")
    target.apply(path, deployment([{"name": "app", "image": "x"}], replicas=0))
    head = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}}
    for kind in ("One", "Two"):
        status = {"conditions": [{"type": kind, "status": "True"}]}
        target.apply(f"{path}/status", {**head, "status": status}, kind)
    conditions = target.admin.get(path)["status"]["conditions"]
    assert {"One", "Two"} <= {condition["type"] for condition in conditions}


def pod(target: Target) -> str:
    """Path of a pod that nobody runs."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    target.apply(target.path("serviceaccounts", "default"), account, "pods", force="true")
    containers = [
        {"name": "app", "image": "x", "resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": "1"}}},
        {"name": "side", "image": "y"},
    ]
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"nodeName": "nowhere", "containers": containers},
    }
    path = target.path("pods", "p")
    target.apply(path, body, "one")
    return path


@pytest.fixture
def bound_pod(target: Target) -> Iterator[str]:
    """Path of a pod that nobody runs; its node exists and has room, as Kubernetes 1.36 asks of a resize."""
    path = "/api/v1/nodes/nowhere"
    node: Json = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "nowhere"}}
    target.apply(path, node, "pods", force="true")
    target.apply(f"{path}/status", {**node, "status": {"allocatable": {"cpu": "8", "memory": "8Gi"}}}, "pods")
    yield pod(target)
    target.admin.delete(path)


def test_resize_changes_resources_of_containers_and_the_generation(target: Target, bound_pod: str) -> None:
    path = bound_pod
    before = target.admin.get(path)
    step = [{"op": "replace", "path": "/spec/containers/0/resources/requests/cpu", "value": "200m"}]
    after = target.admin.patch(f"{path}/resize", step, "json", fieldManager="two")
    assert after["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "200m"
    assert after["metadata"]["generation"] == before["metadata"]["generation"] + 1
    target.admin.delete(path, gracePeriodSeconds="0")


def test_resize_changes_nothing_else(target: Target, bound_pod: str) -> None:
    path = bound_pod
    steps = [
        {"op": "replace", "path": "/spec/containers/0/image", "value": "other"},
        {"op": "replace", "path": "/spec/containers/0/resources/requests/cpu", "value": "300m"},
        {"op": "add", "path": "/metadata/labels", "value": {"x": "y"}},
    ]
    after = target.admin.patch(f"{path}/resize", steps, "json", fieldManager="two")
    assert after["spec"]["containers"][0]["image"] == "x"
    assert after["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "300m"
    target.admin.delete(path, gracePeriodSeconds="0")


# --- create, replace, delete ------------------------------------------------------------------------------------------
def test_creating_what_is_there_is_409(target: Target) -> None:
    target.admin.create(target.path("configmaps"), config_map("c", {}))
    error = refused(target, "POST", target.path("configmaps"), config_map("c", {}))
    assert (error.status, error.body["reason"]) == (409, "AlreadyExists")


def test_replacing_a_past_version_is_409(target: Target) -> None:
    path = target.path("configmaps", "c")
    live = target.admin.create(target.path("configmaps"), config_map("c", {"a": "1"}))
    target.admin.replace(path, {**live, "data": {"a": "2"}})
    error = refused(target, "PUT", path, {**live, "data": {"a": "3"}})
    assert (error.status, error.body["reason"]) == (409, "Conflict")


def test_a_deletion_meant_for_another_object_of_the_name_is_409(target: Target) -> None:
    path = target.path("configmaps", "c")
    live = target.apply(path, config_map("c", {}))
    options: Json = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "x"}}
    assert refused(target, "DELETE", path, options).status == 409
    assert target.admin.exists(path)
    options["preconditions"] = {"uid": live["metadata"]["uid"]}
    assert target.admin.ask("DELETE", path, options)["status"] == "Success"
    assert not target.admin.exists(path)
    assert refused(target, "DELETE", path).status == 404


def test_an_object_with_a_finalizer_is_marked_and_goes_when_the_finalizer_does(target: Target) -> None:
    path = target.path("configmaps", "c")
    target.apply(path, config_map("c", {}, finalizers=["cotenant.dev/hold"]))
    target.admin.delete(path)
    assert target.admin.get(path)["metadata"]["deletionTimestamp"]
    target.admin.patch(path, [{"op": "remove", "path": "/metadata/finalizers"}], "json")
    assert not target.admin.exists(path)


# --- validation -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["widgets", "configmaps", "apps/v1/deployments"])
def test_an_unknown_field_is_refused_when_validation_is_strict(target: Target, kind: str) -> None:
    body = {
        "widgets": widget("x", {"sise": 1}),
        "configmaps": {**config_map("x", {}), "dat": {}},
        "apps/v1/deployments": deployment([{"name": "app", "image": "x", "imag": "y"}], name="x"),
    }[kind]
    error = refused(target, "POST", target.path(kind), body, fieldValidation="Strict")
    assert error.status == 400
    assert "unknown field" in error.body["message"]
    applied = refused(target, "PATCH", target.path(kind, "x"), body, fieldManager="one", fieldValidation="Strict")
    assert applied.status in (400, 500)
    assert not target.admin.exists(target.path(kind, "x"))


def test_an_unknown_field_of_a_custom_kind_is_dropped_when_validation_is_not_strict(target: Target) -> None:
    live = target.admin.create(target.path("widgets"), widget("x", {"sise": 1, "size": 2, "free": {"any": {"x": 1}}}))
    assert live["spec"] == {"size": 2, "free": {"any": {"x": 1}}, "pace": "steady"}


@pytest.mark.parametrize(
    "spec",
    [
        {"size": "ten"},
        {"size": 101},
        {"size": -1},
        {"size": 1.5},
        {"mode": "middling"},
        {"steps": [{"image": "x"}]},
        {"tags": "t"},
        {"words": {"a": 1}},
        {"steps": [{"name": "a"}, {"name": "a"}]},
        {"tags": ["t", "t"]},
    ],
    ids=str,
)
def test_a_custom_object_that_breaks_its_schema_is_422(target: Target, spec: Json) -> None:
    assert refused(target, "POST", target.path("widgets"), widget("x", spec)).status == 422


def test_a_built_in_object_with_a_value_of_the_wrong_type_is_400(target: Target) -> None:
    body = deployment([{"name": "app", "image": "x"}])
    body["spec"]["replicas"] = "two"
    assert refused(target, "POST", target.path("apps/v1/deployments"), body).status == 400


# --- generation -------------------------------------------------------------------------------------------------------
def test_generation_counts_changes_of_the_spec_and_of_nothing_else(target: Target) -> None:
    path = target.path("widgets", "w")

    def generation(applied: Json) -> int:
        return int(applied["metadata"]["generation"])

    assert generation(target.apply(path, widget("w", {"size": 1}))) == 1
    assert generation(target.apply(path, widget("w", {"size": 1}, labels={"x": "y"}))) == 1
    assert generation(target.apply(f"{path}/status", {**widget("w"), "status": {"ready": 1}}, "s")) == 1
    assert generation(target.apply(path, widget("w", {"size": 2}))) == 2
    assert generation(target.apply(path, widget("w", {"size": 2}))) == 2


def test_a_deployments_generation_counts_too_and_a_config_map_has_none(target: Target) -> None:
    path = target.path("apps/v1/deployments", "d")
    assert target.apply(path, deployment([{"name": "app", "image": "x"}]))["metadata"]["generation"] == 1
    changed = target.apply(path, deployment([{"name": "app", "image": "y"}]))
    assert changed["metadata"]["generation"] == 2
    live = target.apply(target.path("configmaps", "c"), config_map("c", {}))
    assert "generation" not in live["metadata"]


def deployment(containers: list[Json], name: str = "d", replicas: int = 0) -> Json:
    """A Deployment that starts no pods."""
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
        },
    }
