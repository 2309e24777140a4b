"""Reservations with no more rights than `cotenant install` grants: enough to hand room over, and not a pod more."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cotenant.base.errors import ClusterDenied, ClusterForbidden
from cotenant.base.kube import KubeClient, Writer
from cotenant.base.kubernetes.intent import Address, Create, Delete, Patch
from tests.cluster.fake_nodes import PodShape, create_pods
from tests.cluster.waiting import wait_for
from tests.scheduler_ext.reservations.scene import Scene, hand_over

Nodes = Callable[..., list[str]]


@pytest.fixture
def client(cluster: Scene) -> KubeClient:
    return cluster.plane.client(cluster.account)


def test_the_managers_own_account_holds_and_hands_over(cluster: Scene, fake_nodes: Nodes) -> None:
    (node,) = fake_nodes(1, cpu="4")
    with cluster.manager():
        assert hand_over(cluster, node, 0) == (node, [])


def test_it_changes_no_pod_that_runs(cluster: Scene, fake_nodes: Nodes, client: KubeClient) -> None:
    create_pods(cluster.plane, cluster.namespace, 1, PodShape(prefix="running"), fake_nodes(1))
    patch = Patch(
        Address("v1", "pods", "running-0", cluster.namespace),
        ({"op": "add", "path": "/metadata/annotations", "value": {"a": "b"}},),
    )

    def refused() -> str:
        try:
            Writer(client, "cotenant-manager").send(patch, dry_run=True)
        except ClusterDenied as error:
            return error.message
        return ""

    assert "changes no pod that runs" in wait_for("the policy is in force", refused)


def test_it_makes_and_ends_pods_in_its_own_namespace_only(cluster: Scene, client: KubeClient) -> None:
    writer = Writer(client, "cotenant-manager")
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": []}}
    address = Address("v1", "pods", "p", cluster.namespace)
    with pytest.raises(ClusterForbidden):
        writer.send(Create(address, body))
    with pytest.raises(ClusterForbidden):
        writer.send(Delete(address))
