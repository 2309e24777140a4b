"""Shares of GPUs given by two replicas that are killed, on a real API server: no GPU is given beyond 100 percent."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from cotenant.base.allocation.device_allocator import COLLECTION
from cotenant.base.allocation.devices import (
    DEVICE_ALLOCATED_ANNOTATION,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    DeviceKind,
    decode_allocations,
)
from tests.cluster.accounts import account
from tests.cluster.api import Api
from tests.cluster.control_plane import ControlPlane
from tests.cluster.crds import install_crd
from tests.cluster.fixtures import FakeNodes
from tests.cluster.waiting import wait_for
from tests.scheduler_ext.extender.live import EXTENDER
from tests.scheduler_ext.extender.test_cpus_on_a_cluster import LEDGERS, Replica
from tests.support.extent import full

SHARE = 25
"""Percent of a GPU that each pod asks for."""


@dataclass(frozen=True)
class GpuExtent:
    """A cluster and its pods."""

    nodes: int
    gpus: int
    pods: int
    seconds: float


SMALL = GpuExtent(nodes=2, gpus=3, pods=20, seconds=90)
"""2 nodes x 3 GPUs x 4 shares = 24 places."""
LARGE = GpuExtent(nodes=20, gpus=8, pods=500, seconds=900)
"""20 nodes x 8 GPUs x 4 shares = 640 places."""


def publish(api: Api, node: str, gpus: int) -> None:
    amounts = {GPU_CORE: "100", GPU_MEMORY_RATIO: "100", GPU_MEMORY: "16Gi"}
    devices = [
        {"type": "gpu", "minor": minor, "id": f"GPU-{minor}", "health": True, "resources": amounts}
        for minor in range(gpus)
    ]
    head = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Device"}
    api.create(COLLECTION, {**head, "metadata": {"name": node}, "spec": {"devices": devices}})


def create_pod(api: Api, namespace: str, name: str, share: int = SHARE) -> dict[str, Any]:
    amounts = {"koordinator.sh/gpu": str(share), "cpu": "10m"}
    container = {"name": "m", "image": "example.invalid/a:1", "resources": {"requests": amounts, "limits": amounts}}
    spec = {"schedulerName": "nobody", "containers": [container], "terminationGracePeriodSeconds": 0}
    body = {"metadata": {"name": name}, "spec": spec}
    created: dict[str, Any] = api.create(f"/api/v1/namespaces/{namespace}/pods", body)
    return created


def check(pods: list[dict[str, Any]]) -> int:
    """Of one list, which is one moment: every bound pod has its share, no GPU over 100 percent; how many are bound."""
    percents: Counter[tuple[str, int]] = Counter()
    bound = [pod for pod in pods if pod["spec"].get("nodeName")]
    for pod in bound:
        (share,) = decode_allocations(pod["metadata"]["annotations"][DEVICE_ALLOCATED_ANNOTATION])[DeviceKind.GPU]
        # 25 percent of 16 GiB
        assert share.amounts == {GPU_CORE: SHARE, GPU_MEMORY_RATIO: SHARE, GPU_MEMORY: 4 << 30}
        percents[pod["spec"]["nodeName"], share.minor] += SHARE
    assert max(percents.values(), default=0) <= 100
    return len(bound)


@pytest.mark.parametrize("extent", [SMALL, *full(LARGE)], ids=["20 pods", "500 pods"])
def test_two_replicas_that_are_killed_give_no_gpu_beyond_all_of_it(
    control_plane: ControlPlane, namespace: str, fake_nodes: FakeNodes, extent: GpuExtent
) -> None:
    api = control_plane.api()
    for kind in ("nodeallocations.cotenant.dev", "devices.scheduling.koordinator.sh"):
        install_crd(api, kind)
    nodes = fake_nodes(extent.nodes, cpu="64", memory="256Gi")
    for node in nodes:
        publish(api, node, extent.gpus)
    dice, path = random.Random(20), f"/api/v1/namespaces/{namespace}/pods"
    kubeconfig = account(control_plane, EXTENDER)
    replicas = [Replica(kubeconfig), Replica(kubeconfig)]
    pods = [create_pod(api, namespace, f"gpu-{number}") for number in range(extent.pods)]
    by_name = {pod["metadata"]["name"]: pod for pod in pods}
    errors: list[str] = []
    try:
        for number, pod in enumerate(pods):
            replicas[number % 2].ask(pod, dice.sample(nodes, len(nodes)))
        for number in (0, 1):
            part = (number + 1) * extent.pods // 4
            wait_for(f"{part} are bound", lambda part=part: check(api.items(path)) >= part, extent.seconds)
            unanswered = replicas[number].kill()
            errors += replicas[number].errors
            replicas[number] = Replica(kubeconfig)
            for name in unanswered:
                replicas[number].ask(by_name[name], dice.sample(nodes, len(nodes)))
        wait_for("all are bound", lambda: check(api.items(path)) == extent.pods, extent.seconds)
        wait_for("nothing is open", lambda: not any(any_replica.open for any_replica in replicas), extent.seconds)
    finally:
        for replica in replicas:
            replica.kill()
    errors += [error for any_replica in replicas for error in any_replica.errors]
    assert [error for error in errors if "already" not in error] == []
    entries = [entry["name"] for node in nodes for entry in api.get(f"{LEDGERS}/{node}")["spec"]["pods"]]
    assert sorted(entries) == sorted(by_name)
    for node in nodes:
        api.delete(f"{COLLECTION}/{node}")
