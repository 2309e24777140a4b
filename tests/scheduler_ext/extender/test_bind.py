"""The bind verb beside a real API server whose answers get lost: a pod is bound once, to one node, and said to be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cotenant.scheduler_ext.extender.serve.bind import Binder, binding_creation
from cotenant.scheduler_ext.extender.serve.wire import BindArgs
from tests.cluster.accounts import account, certified
from tests.cluster.control_plane import ControlPlane
from tests.cluster.faults import CUT, LOST_ANSWER, FaultProxy, Request, always, first
from tests.cluster.fixtures import FakeNodes
from tests.scheduler_ext.extender.live import EXTENDER


@pytest.fixture
def fault_proxy(control_plane: ControlPlane, tmp_path: Path) -> Iterator[FaultProxy]:
    """Between the documented account and the API server."""
    with FaultProxy(control_plane, tmp_path, certified(control_plane, EXTENDER)) as proxy:
        yield proxy


def waiting(plane: ControlPlane, namespace: str, name: str = "asks") -> BindArgs:
    """A pod that no scheduler takes, and that asks to be bound by us."""
    resources = {"requests": {"cotenant.dev/bind": "1"}, "limits": {"cotenant.dev/bind": "1"}}
    container = {"name": "main", "image": "example.invalid/app:1", "resources": resources}
    spec = {"schedulerName": "nobody", "containers": [container]}
    live = plane.api().create(f"/api/v1/namespaces/{namespace}/pods", {"metadata": {"name": name}, "spec": spec})
    return BindArgs(name, namespace, live["metadata"]["uid"], "")


def on(bind_args: BindArgs, node: str) -> BindArgs:
    return BindArgs(bind_args.name, bind_args.namespace, bind_args.uid, node)


def is_binding(request: Request) -> bool:
    return request.path.endswith("/binding")


def node_of(plane: ControlPlane, bind_args: BindArgs) -> Any:
    return plane.api().get(f"/api/v1/namespaces/{bind_args.namespace}/pods/{bind_args.name}")["spec"].get("nodeName")


def test_a_binding_that_was_done_and_whose_answer_was_lost_counts_as_done(
    control_plane: ControlPlane, fault_proxy: FaultProxy, namespace: str, fake_nodes: FakeNodes
) -> None:
    text, other = fake_nodes(2)
    args = waiting(control_plane, namespace)
    binder = Binder(control_plane.client(fault_proxy.kubeconfig, retries=0).sibling)
    fault_proxy.fault = first(1, LOST_ANSWER, is_binding)
    assert binder.bind(on(args, text)) == ""
    assert node_of(control_plane, args) == text
    # asked again, as after a crash of ours: done; for another node: refused, and nothing moves
    assert binder.bind(on(args, text)) == ""
    assert f"bound to {text} already" in binder.bind(on(args, other))
    assert node_of(control_plane, args) == text


def test_a_binding_that_never_arrived_is_said_to_have_failed_and_may_be_asked_again(
    control_plane: ControlPlane, fault_proxy: FaultProxy, namespace: str, fake_nodes: FakeNodes
) -> None:
    (node,) = fake_nodes(1)
    args = waiting(control_plane, namespace)
    binder = Binder(control_plane.client(fault_proxy.kubeconfig, retries=0).sibling)
    fault_proxy.fault = always(CUT, is_binding)
    assert "did not answer" in binder.bind(on(args, node))
    assert node_of(control_plane, args) is None
    fault_proxy.fault = always(CUT)
    assert binder.bind(on(args, node)) != ""
    fault_proxy.fault = first(0, CUT)
    assert binder.bind(on(args, node)) == ""
    assert node_of(control_plane, args) == node


def test_a_pod_of_the_same_name_that_came_in_between_is_not_bound_in_its_stead(
    control_plane: ControlPlane, namespace: str, fake_nodes: FakeNodes
) -> None:
    (node,) = fake_nodes(1)
    former = waiting(control_plane, namespace)
    path = f"/api/v1/namespaces/{namespace}/pods/{former.name}"
    control_plane.api().delete(path, gracePeriodSeconds="0")
    successor = waiting(control_plane, namespace)
    binder = Binder(control_plane.client(account(control_plane, EXTENDER)).sibling)
    assert "does not exist any more" in binder.bind(on(former, node))
    assert node_of(control_plane, successor) is None
    assert binding_creation(on(former, node)).body["metadata"]["uid"] == former.uid
