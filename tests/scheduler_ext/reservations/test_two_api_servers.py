"""Two API servers, one of which hears of changes a second late: it gives nobody the room of a hand-over."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cotenant.base.errors import ClusterInvalid
from cotenant.base.kube import Writer
from cotenant.base.kubernetes.intent import Patch
from cotenant.base.kubernetes.pod_identity import Reference
from cotenant.base.kubernetes.protocol import KNOWN_SWAPS_ANNOTATION
from cotenant.scheduler_ext.reservations.api_servers import POLICY, ApiServers
from cotenant.scheduler_ext.reservations.guard import ADDRESS, Guard, ReservationSwap
from tests.cluster.api import Api, ApiError
from tests.cluster.second_apiserver import second_apiserver
from tests.cluster.waiting import wait_for
from tests.scheduler_ext.reservations.scene import Scene

Nodes = Callable[..., list[str]]
BEHIND_SECONDS = 1.0
"""Twenty times `ReservationSettings.swap_settle_seconds`."""


def test_a_server_knows_the_hand_overs_that_its_guard_reads(cluster: Scene) -> None:
    swap = ReservationSwap(
        "known", "held", "uid-of-held", "node-0", Reference("Pod", "owner", cluster.namespace, "uid-of-owner")
    )
    client = cluster.plane.client(cluster.account)
    writer, servers = Writer(client, "cotenant-manager"), ApiServers(client, [cluster.plane.server])
    writer.send(Guard((swap,), time.time() + 60).intent("a hand-over"))
    wait_for("the server knows", lambda: servers.confirmed(["known"]))
    assert servers.problems == {}
    with pytest.raises(ClusterInvalid, match=f"{POLICY}.*does not know the hand-over yet"):
        writer.send(question("known,later"), dry_run=True)


def question(ids: str) -> Patch:
    """What the manager asks a server: it refuses where its copy of the SwapGuard lacks one of the hand-overs."""
    annotations = {KNOWN_SWAPS_ANNOTATION: ids}
    return Patch(ADDRESS, ({"op": "add", "path": "/metadata/annotations", "value": annotations},))


def await_guard(cluster: Scene, url: str) -> None:
    """Until a server that has just started knows our CRDs, for which it looks every 30 seconds, and judges by them."""
    client = cluster.plane.client(cluster.account)
    Writer(client, "cotenant-manager").send(Guard((), time.time() + 60).intent("no hand-over yet"))
    writer = Writer(client.at(url), "cotenant-manager")

    def judges() -> bool:
        with pytest.raises(ClusterInvalid, match=POLICY) as refusal:
            writer.send(question("unknown"), dry_run=True)
        return "does not know the hand-over yet" in str(refusal.value)

    wait_for("the server judges by its guard", judges)


def bind(api: Api, namespace: str, pod: str, node: str) -> int:
    """What a scheduler does that believes the room to be free; the answer's status."""
    body: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    try:
        api.create(f"/api/v1/namespaces/{namespace}/pods/{pod}/binding", body)
    except ApiError as error:
        assert "is being handed over" in str(error) or error.status != 403, error
        return error.status
    return 201


def test_a_server_that_is_behind_gives_the_room_to_nobody_else(
    cluster: Scene, fake_nodes: Nodes, tmp_path: Path
) -> None:
    (node,) = fake_nodes(1, cpu="4")
    pin: dict[str, Any] = {"nodeSelector": {"kubernetes.io/hostname": node}}
    with second_apiserver(cluster.plane, tmp_path) as behind:
        await_guard(cluster, behind.url)
        with cluster.manager(api_servers=[behind.url]):
            behind.delay_seconds = BEHIND_SECONDS
            name = cluster.reservation("held", template=pin)
            cluster.await_phase(name, "Available")
            (stranger,) = cluster.strangers(1, schedulerName="nobody")
            slow = cluster.plane.api(behind.kubeconfig)
            assert slow.get(f"/api/v1/nodes/{node}")  # connected
            cluster.pod("owner", app=name, gate=True, **pin)
            wait_for("the placeholder makes room", lambda: not cluster.placeholders(name), every=0.002)
            # A scheduler that follows the fast server may bind through the slow one, as behind a load balancer.
            assert bind(slow, cluster.namespace, stranger, node) == 403
            assert cluster.await_bound("owner") == node
            assert cluster.node_of(stranger) == ""
