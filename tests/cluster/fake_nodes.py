"""Nodes and pods that exist only in the API server, by the thousand: kwok plays their kubelets.

    names = create_nodes(plane, 500, NodeShape(cpu="16"))
    create_pods(plane, namespace, 2_000, PodShape(), names)     # already bound; kwok makes them Running

Requests go over parallel connections. Nodes are created with their capacity and Ready, as a kubelet registers itself.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from tests.cluster.api import Api, Json
from tests.cluster.control_plane import FAKE_NODE, ControlPlane
from tests.cluster.waiting import wait_for

CONNECTIONS = 16
SCALE_SECONDS = 1_800.0
"""Ceiling for tens of thousands of objects on a busy machine."""
Customise = Callable[[int, Json], None]
"""Changes the object with the given number before it is created."""


@dataclass(frozen=True, slots=True)
class NodeShape:
    """What each node offers; quantities as Kubernetes writes them."""

    cpu: str = "16"
    memory: str = "64Gi"
    pods: str = "110"
    labels: Mapping[str, str] = field(default_factory=dict)
    prefix: str = "node"


@dataclass(frozen=True, slots=True)
class PodShape:
    """What each pod asks for."""

    requests: Mapping[str, str] = field(default_factory=lambda: {"cpu": "100m", "memory": "128Mi"})
    limits: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    prefix: str = "pod"


def create_nodes(
    plane: ControlPlane, count: int, shape: NodeShape | None = None, customise: Customise | None = None
) -> list[str]:
    """Names of new nodes PREFIX-0.., each Ready and without the taint of a node that is not."""
    shape = shape or NodeShape()
    nodes = [_node(f"{shape.prefix}-{i}", shape) for i in range(count)]
    _create(plane, "/api/v1/nodes", nodes, customise)
    names = {node["metadata"]["name"] for node in nodes}
    api = plane.api()
    wait_for(f"{count} nodes of {shape.prefix} that take pods", lambda: names <= _usable(api), SCALE_SECONDS, 0.1)
    return [node["metadata"]["name"] for node in nodes]


def delete_nodes(plane: ControlPlane, names: Iterable[str]) -> None:
    """Delete nodes; their pods are left to the cluster's own garbage collector."""
    each(plane.api, names, lambda api, name: api.delete(f"/api/v1/nodes/{name}"))


def create_pods(
    plane: ControlPlane,
    namespace: str,
    count: int,
    shape: PodShape,
    nodes: Sequence[str],
    customise: Customise | None = None,
) -> list[str]:
    """Names of new pods PREFIX-0.., bound to the nodes in turn, past the scheduler; returns when all are Running."""
    names = [f"{shape.prefix}-{i}" for i in range(count)]
    pods = (_pod(name, shape, node) for name, node in zip(names, itertools.cycle(nodes), strict=False))
    _create(plane, f"/api/v1/namespaces/{namespace}/pods", pods, customise)
    wait_running(plane, namespace)
    return names


def wait_running(plane: ControlPlane, namespace: str, seconds: float = SCALE_SECONDS) -> None:
    """Until no pod of the namespace is anything but Running."""
    api, path = plane.api(), f"/api/v1/namespaces/{namespace}/pods"
    waiting: dict[str, str] = {"fieldSelector": "status.phase!=Running", "limit": "1"}
    wait_for(f"running pods in {namespace}", lambda: not api.items(path, **waiting), seconds, 0.1)


def _node(name: str, shape: NodeShape) -> Json:
    """A node as a kubelet would register it."""
    amounts = {"cpu": shape.cpu, "memory": shape.memory, "pods": shape.pods}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "fake"}
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    return {
        "metadata": {"name": name, "labels": {**labels, **shape.labels}, "annotations": dict([FAKE_NODE])},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [ready],
            "addresses": [{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": "127.0.0.1"}],
        },
    }


def _pod(name: str, shape: PodShape, node: str) -> Json:
    resources = {"requests": dict(shape.requests), "limits": dict(shape.limits)}
    return {
        "metadata": {"name": name, "labels": dict(shape.labels), "annotations": dict(shape.annotations)},
        "spec": {
            "nodeName": node,
            "containers": [{"name": "main", "image": "example.invalid/app:1", "resources": resources}],
        },
    }


def _usable(api: Api) -> set[str]:
    """Names of the nodes that are Ready and carry no taint."""
    return {
        node["metadata"]["name"]
        for node in api.items("/api/v1/nodes")
        if not node["spec"].get("taints")
        and any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", ()))
    }


def _create(plane: ControlPlane, path: str, objects: Iterable[Json], customise: Customise | None) -> None:
    def one(api: Api, numbered: tuple[int, Json]) -> None:
        if customise:
            customise(*numbered)
        api.create(path, numbered[1])

    each(plane.api, enumerate(objects), one)


def each(connect: Callable[[], Api], things: Iterable[Any], act: Callable[[Api, Any], object]) -> None:
    """Act on every thing over `CONNECTIONS` connections; the first error is raised."""
    source, lock = iter(things), threading.Lock()

    def locked() -> Iterator[Any]:
        while True:
            with lock:
                try:
                    element = next(source)
                except StopIteration:
                    return
            yield element

    def work(_number: int) -> None:
        api = connect()
        try:
            for element in locked():
                act(api, element)
        finally:
            api.close()

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(work, range(CONNECTIONS)))
