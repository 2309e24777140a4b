"""Tens of thousands of nodes and running pods in seconds, for benches: copies written to etcd beside the API server.

One object is made the ordinary way, through the API server and kwok, and read back whole; its copies, each with a name,
a uid and a node of its own, are what the API server would have stored for them. It decodes them from etcd, serves and
watches them like any other; only its admission and the time of a hundred thousand writes are left out.
"""

from __future__ import annotations

import base64
import itertools
import uuid
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from tests.cluster.api import Api, ApiError, Json
from tests.cluster.control_plane import ControlPlane
from tests.cluster.fake_nodes import SCALE_SECONDS, Customise, NodeShape, PodShape, create_nodes, create_pods, each
from tests.cluster.waiting import wait_for


def seed_nodes(
    plane: ControlPlane, count: int, shape: NodeShape | None = None, customise: Customise | None = None
) -> list[str]:
    """Names of new nodes PREFIX-0.., Ready. The control plane should run without heartbeats (`Options`)."""
    shape = shape or NodeShape()
    create_nodes(plane, 1, shape, customise)
    names = [f"{shape.prefix}-{i}" for i in range(count)]
    text = _read(plane, f"/api/v1/nodes/{names[0]}", "Node")

    def copies() -> Iterator[Json]:
        for number, name in enumerate(names[1:], 1):
            node = _copy(text, name)
            node["metadata"]["labels"]["kubernetes.io/hostname"] = name
            node["status"]["addresses"][0]["address"] = name
            if customise:
                customise(number, node)
            yield node

    _served(plane, "/api/v1/nodes", _write(plane, "/registry/minions/", copies()))
    return names


def seed_pods(
    plane: ControlPlane,
    namespace: str,
    count: int,
    shape: PodShape,
    nodes: Sequence[str],
    customise: Customise | None = None,
) -> list[str]:
    """Names of new pods PREFIX-0.., Running on the nodes in turn."""
    create_pods(plane, namespace, 1, shape, nodes, customise)
    path = f"/api/v1/namespaces/{namespace}/pods"
    names = [f"{shape.prefix}-{i}" for i in range(count)]
    text = _read(plane, f"{path}/{names[0]}", "Pod")

    def copies() -> Iterator[Json]:
        for number, (name, node) in enumerate(zip(names, itertools.cycle(nodes), strict=False)):
            if number:
                pod = _copy(text, name)
                pod["spec"]["nodeName"] = node
                if customise:
                    customise(number, pod)
                yield pod

    _served(plane, path, _write(plane, f"/registry/pods/{namespace}/", copies()))
    return names


def _read(plane: ControlPlane, path: str, kind: str) -> bytes:
    """An object as etcd would hold it, if it held JSON."""
    live = plane.api().get(path)
    del live["metadata"]["resourceVersion"]
    return msgspec.json.encode({**live, "apiVersion": "v1", "kind": kind})


def _copy(text: bytes, name: str) -> Json:
    copy: Json = msgspec.json.decode(text)
    copy["metadata"] |= {"name": name, "uid": str(uuid.uuid4())}
    return copy


def _write(plane: ControlPlane, prefix: str, objects: Iterable[Json]) -> int:
    """Put objects under PREFIX/NAME, each at a revision of its own as Kubernetes expects; gives the last one."""
    revisions = [0]

    def put(etcd: Api, item: Json) -> None:
        key = f"{prefix}{item['metadata']['name']}".encode()
        pair = {"key": base64.b64encode(key).decode(), "value": base64.b64encode(msgspec.json.encode(item)).decode()}
        revisions.append(int(etcd.create("/v3/kv/put", pair)["header"]["revision"]))

    each(lambda: Api(plane.etcd_url, None), objects, put)
    return max(revisions)


def _served(plane: ControlPlane, path: str, revision: int) -> None:
    """Until the API server's cache, which every watch is fed from, has come as far as a revision."""
    api = plane.api()
    query = {
        "resourceVersion": str(revision),
        "resourceVersionMatch": "NotOlderThan",
        "fieldSelector": "metadata.name=-",
    }

    def served() -> bool:
        try:
            api.items(path, **query)
        except ApiError as error:
            if error.status != 504:  # "Too large resource version": not yet
                raise
            return False
        return True

    if revision:
        wait_for(f"{path} as of revision {revision}", served, SCALE_SECONDS)
