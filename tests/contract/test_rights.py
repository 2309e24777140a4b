"""Who may do what, and how they can ask: the same on both servers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.api import Api, ApiError
from tests.cluster.waiting import wait_for
from tests.contract.target import Target, config_map

pytestmark = pytest.mark.server

READ = [{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["configmaps"]}]


def allowed(api: Api, verb: str, resource: str, group: str = "", namespace: str = "", subresource: str = "") -> bool:
    attributes = {"verb": verb, "resource": resource, "group": group, "namespace": namespace}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {**attributes, "subresource": subresource}},
    }
    reply: Any = api.create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
    return bool(reply["status"]["allowed"])


def test_who_may_read_may_not_write_and_is_told_what_is_missing(target: Target) -> None:
    jane = target.user("jane", READ)
    path = target.path("configmaps", "c")
    target.apply(path, config_map("c", {}))
    wait_for("jane's right", lambda: allowed(jane, "get", "configmaps"))
    assert jane.get(path)["metadata"]["name"] == "c"
    with pytest.raises(ApiError) as refused:
        jane.patch(path, config_map("c", {"a": "1"}), "apply", fieldManager="jane")
    assert (refused.value.status, refused.value.body["reason"]) == (403, "Forbidden")
    where = f'in API group "" in the namespace "{target.namespace}"'
    text = f'configmaps "c" is forbidden: User "jane" cannot patch resource "configmaps" {where}'
    assert refused.value.body["message"].startswith(text)


def test_what_is_not_granted_at_the_cluster_scope_is_refused_there(target: Target) -> None:
    jane = target.user("jane", READ)
    with pytest.raises(ApiError) as refused:
        jane.get("/api/v1/nodes")
    assert refused.value.body["message"].startswith(
        'nodes is forbidden: User "jane" cannot list resource "nodes" in API group "" at the cluster scope'
    )


def test_everybody_may_ask_what_they_may_do(target: Target) -> None:
    jane = target.user("jane", READ)
    wait_for("jane's right", lambda: allowed(jane, "list", "configmaps", namespace=target.namespace))
    assert not allowed(jane, "patch", "configmaps", namespace=target.namespace)
    assert not allowed(jane, "get", "pods")
    assert allowed(target.admin, "patch", "nodes", subresource="status")


def test_a_right_of_a_subresource_is_not_that_of_the_resource(target: Target) -> None:
    rules = [{"verbs": ["patch"], "apiGroups": [""], "resources": ["pods/resize"]}]
    resizer = target.user("resizer", rules)
    wait_for("the right", lambda: allowed(resizer, "patch", "pods", subresource="resize"))
    assert not allowed(resizer, "patch", "pods")


def test_a_right_that_is_taken_away_is_refused_from_then_on(target: Target) -> None:
    jim = target.user("jim", READ)
    wait_for("jim's right", lambda: allowed(jim, "list", "configmaps"))
    assert jim.items(target.path("configmaps")) is not None
    target.user("jim", [])
    wait_for("the end of jim's right", lambda: not allowed(jim, "list", "configmaps"))
    with pytest.raises(ApiError) as refused:
        jim.items(target.path("configmaps"))
    assert refused.value.status == 403


def test_an_apply_that_creates_needs_the_right_to_create(target: Target) -> None:
    rules = [{"verbs": ["patch", "get"], "apiGroups": [""], "resources": ["configmaps"]}]
    patcher = target.user("patcher", rules)
    wait_for("the right", lambda: allowed(patcher, "patch", "configmaps"))
    with pytest.raises(ApiError) as refused:
        patcher.patch(target.path("configmaps", "c"), config_map("c", {}), "apply", fieldManager="p")
    assert refused.value.status == 403
    target.apply(target.path("configmaps", "c"), config_map("c"))
    changed = patcher.patch(target.path("configmaps", "c"), config_map("c", {"a": "1"}), "apply", fieldManager="p")
    assert changed["data"] == {"a": "1"}
