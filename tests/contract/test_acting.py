"""Pods are created, bound and evicted alike on both servers: the writes of `Create` intents."""

from __future__ import annotations

import pytest

from tests.cluster.api import ApiError, Json
from tests.cluster.waiting import wait_for
from tests.contract.target import Target


def pod(name: str = "p") -> Json:
    containers = [{"name": "x", "image": "example.invalid/x:1"}]
    return {"metadata": {"name": name}, "spec": {"schedulerName": "nobody", "containers": containers}}


@pytest.fixture
def waiting(target: Target) -> Json:
    """A pod without a node; the real server wants its namespace's service account first."""

    def created_pod() -> Json | None:
        try:
            return target.admin.create(target.path("pods"), pod())
        except ApiError as error:
            assert error.status == 403, error
            return None

    wait = wait_for("a pod", created_pod)
    assert wait is not None
    return wait


def binding(uid: str = "", node: str = "somewhere") -> Json:
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    metadata = {"name": "p", **({"uid": uid} if uid else {})}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}


def refused(target: Target, subresource: str, body: Json) -> ApiError:
    with pytest.raises(ApiError) as error:
        target.admin.create(target.path("pods", "p", subresource), body)
    return error.value


@pytest.mark.server
def test_a_pod_exists_once(target: Target, waiting: Json) -> None:
    with pytest.raises(ApiError) as error:
        target.admin.create(target.path("pods"), pod())
    assert (error.value.status, error.value.body["reason"]) == (409, "AlreadyExists")
    assert waiting["metadata"]["uid"]


def test_a_binding_gives_a_pod_its_node_once_and_for_all(target: Target, waiting: Json) -> None:
    path = target.path("pods", "p", "binding")
    assert target.admin.create(path, binding(waiting["metadata"]["uid"]))["status"] == "Success"
    assert target.admin.get(target.path("pods", "p"))["spec"]["nodeName"] == "somewhere"
    again = refused(target, "binding", binding(node="elsewhere"))
    assert (again.status, again.body["reason"]) == (409, "Conflict")
    assert 'is already assigned to node "somewhere"' in str(again)


def test_a_bindings_annotations_become_the_pods_in_the_same_write(target: Target, waiting: Json) -> None:
    path, body = target.path("pods", "p"), binding()
    own = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "annotations": {"a": "1", "b": "1"}}}
    target.admin.patch(path, own, "apply", fieldManager="t", force="1")
    body["metadata"]["annotations"] = {"b": "2", "c": "2"}
    target.admin.create(f"{path}/binding", body)
    bound = target.admin.get(path)
    assert bound["spec"]["nodeName"] == "somewhere"
    assert bound["metadata"]["annotations"] == {"a": "1", "b": "2", "c": "2"}


def test_a_dry_binding_binds_nothing(target: Target, waiting: Json) -> None:
    target.admin.create(target.path("pods", "p", "binding"), binding(), dryRun="All")
    assert "nodeName" not in target.admin.get(target.path("pods", "p"))["spec"]
    assert waiting["spec"].get("nodeName") is None


def test_a_binding_for_another_pod_of_the_name_is_refused(target: Target, waiting: Json) -> None:
    error = refused(target, "binding", binding("00000000-0000-0000-0000-000000000000"))
    assert error.status == 409
    assert waiting["metadata"]["uid"] in str(error)


def test_a_binding_of_nobody_or_to_nowhere_is_refused(target: Target, waiting: Json) -> None:
    assert refused(target, "binding", {**binding(), "target": {"kind": "Node"}}).status == 500
    with pytest.raises(ApiError) as error:
        target.admin.create(target.path("pods", "q", "binding"), {**binding(), "metadata": {"name": "q"}})
    assert error.value.status == 404
    assert waiting["metadata"]["name"] == "p"


def test_an_eviction_deletes_the_pod(target: Target, waiting: Json) -> None:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    other = {**body, "deleteOptions": {"preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}}}
    # where the node agent's guard is installed, the server refuses (422) until it knows the namespace's first pod
    wait_for("the uid is compared", lambda: refused(target, "eviction", other).status == 409)
    done = target.admin.create(
        target.path("pods", "p", "eviction"), {**body, "deleteOptions": {"gracePeriodSeconds": 0}}
    )
    assert (done["kind"], done["status"]) == ("Status", "Success")
    wait_for("the pod is gone", lambda: not target.admin.exists(target.path("pods", "p")))
    assert waiting["metadata"]["uid"]
