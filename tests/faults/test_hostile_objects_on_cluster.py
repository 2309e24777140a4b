"""Objects that a real API server admits and that once stopped a process: the inventory is read beside them."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest

from cotenant.base.cluster import Inventory
from cotenant.base.kube.live import observe
from cotenant.base.kube.overlay import overlay
from cotenant.base.resource import Resource
from cotenant.scheduler_ext.queues.model.gang import gang_of_pod
from tests.cluster.control_plane import ControlPlane

pytestmark = pytest.mark.cluster
WAIT = "gang.scheduling.koordinator.sh/waiting-time"
ENDINGS = "x" + "-22222" * 30 + "-a-b"


def pod(name: str, request: str = "1Mi", **annotations: str) -> dict[str, Any]:
    container = {"name": "main", "image": "i", "resources": {"requests": {"memory": request, "cpu": "1m"}}}
    owner = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "x", "uid": "u", "controller": True}
    meta = {"name": name, "annotations": annotations, "ownerReferences": [owner]}
    second = {**container, "name": "beside"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {"nodeName": "nowhere", "containers": [container, second]},
    }


def test_the_inventory_is_read_in_time_beside_hostile_pods(control_plane: ControlPlane, namespace: str) -> None:
    gang = {"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/min-available": "1"}
    digits = pod("digits", **gang, **{WAIT: "1" * 200_000})
    admitted = [
        control_plane.api().create(f"/api/v1/namespaces/{namespace}/pods", body)
        for body in (digits, pod(ENDINGS), pod("huge", "8E"), pod("other"))
    ]
    began = time.process_time()
    inventory = overlay(Inventory("c", 0, (), (), ()), observe(control_plane.admin_client()))
    note = gang_of_pod(namespace, "digits", {}, admitted[0]["metadata"]["annotations"])
    assert time.process_time() - began < 5  # all objects of this API server, at some ten milliseconds each
    assert {p.name for p in inventory.pods if p.namespace == namespace} == {"digits", ENDINGS, "huge", "other"}
    assert note is not None and note.min_available == 1 and "is not a waiting time" in note.notes[0]
    assert len(note.notes[0]) < 300
    requested = {p.name: p.requests[Resource.MEMORY] for p in inventory.pods if p.namespace == namespace}
    assert (requested["other"], requested["huge"]) == (2 << 20, 2**63 - 1)
    assert msgspec.msgpack.encode(inventory.pods)  # what an analysis notes of each pod: integers of 64 bits alone
