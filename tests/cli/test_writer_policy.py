"""What RBAC lets the manager do to pods as a whole, an admission policy holds to pods that wait for reserved room."""

from __future__ import annotations

from typing import Any

import pytest

from cotenant.base.kubernetes.protocol import MANAGER
from tests.cluster.accounts import install_rights
from tests.cluster.api import Api, ApiError
from tests.cluster.control_plane import ControlPlane
from tests.cluster.waiting import wait_for

LABEL = "cotenant.dev/reservation"


@pytest.fixture
def manager(control_plane: ControlPlane) -> Api:
    """The manager's own account, with its rights and the policies that we ship."""
    install_rights(control_plane)
    return control_plane.api(control_plane.user(f"system:serviceaccount:cotenant:{MANAGER}", ["system:masters"]))


def pod(api: Api, namespace: str, name: str, **spec: Any) -> str:
    containers = [{"name": "app", "image": "example.invalid/a:1"}]
    body = {"metadata": {"name": name}, "spec": {"containers": containers, **spec}}
    api.create(f"/api/v1/namespaces/{namespace}/pods", body)
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


def refused(api: Api, path: str, patch: dict[str, Any]) -> str:
    """The refusal of a patch, "" when it passes."""
    try:
        api.patch(path, patch, kind="strategic", dryRun="All")
    except ApiError as error:
        return str(error)
    return ""


def test_the_manager_touches_only_pods_that_wait_or_that_it_labels_and_no_image(
    control_plane: ControlPlane, namespace: str, fake_nodes: Any, manager: Api
) -> None:
    (node,) = fake_nodes(1)
    admin = control_plane.api()
    runs = pod(admin, namespace, "runs", nodeName=node)
    first = [{"name": "first", "image": "example.invalid/first:1"}]
    waits = pod(admin, namespace, "waits", schedulingGates=[{"name": LABEL}], initContainers=first)
    note: dict[str, Any] = {"metadata": {"annotations": {"a": "b"}}}
    wait_for("the policy", lambda: "changes no pod that runs" in refused(manager, runs, note))
    labelled = {"metadata": {"labels": {LABEL: "r"}}}
    assert refused(manager, runs, labelled) == "" and refused(manager, waits, labelled) == ""
    swapped = {**labelled, "spec": {"containers": [{"name": "app", "image": "example.invalid/evil:1"}]}}
    assert "changes no pod that runs" in refused(manager, runs, swapped)
    wait_for("the policy of pods that wait", lambda: "of a pod that waits" in refused(manager, waits, swapped))
    evil = {"initContainers": [{**first[0], "image": "evil:1"}]}
    assert "of a pod that waits" in refused(manager, waits, {"spec": evil})
    assert refused(manager, waits, {"spec": {"schedulingGates": [{"$patch": "delete", "name": LABEL}]}}) == ""
    # Others are not its business.
    assert refused(admin, runs, note) == ""
