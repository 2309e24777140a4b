"""EDGE: reads the cluster once for `cotenant explain pod`, into the snapshot that a running extender would have.

What may not be read or is not installed is left out and reported; rules that need it then do not apply.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from cotenant.base.errors import ClusterAbsent, ClusterError, ClusterForbidden, NoData
from cotenant.base.kube import KubeClient
from cotenant.base.kube.watch import read_each
from cotenant.base.kubernetes.intent import Address
from cotenant.scheduler_ext.extender.decide import Instant
from cotenant.scheduler_ext.extender.metric import ExtenderNode
from cotenant.scheduler_ext.extender.settings import ExtenderSettings
from cotenant.scheduler_ext.extender.snapshot import NodeSnapshot, next_snapshot
from cotenant.scheduler_ext.extender.watch.frame import CollectionState
from cotenant.scheduler_ext.extender.watch.table import NodeTable
from cotenant.scheduler_ext.extender.watch.watcher import PATHS, puts_into, watched_kinds

DEPLOYMENTS: Final = "/apis/apps/v1/deployments"
EXTENDER_NAME: Final = "cotenant-extender"
CONNECT_SECONDS: Final = 0.5


class _Ready(msgspec.Struct, rename="camel"):
    ready_replicas: int = 0


class _Deployment(msgspec.Struct):
    status: _Ready = msgspec.field(default_factory=_Ready)


@dataclass(frozen=True, slots=True)
class ClusterReading:
    """The cluster at one time; `nodes` are in the order of the snapshot's rows."""

    snapshot: NodeSnapshot
    nodes: tuple[ExtenderNode, ...]
    moment: Instant


def read_cluster(client: KubeClient, settings: ExtenderSettings) -> ClusterReading:
    """Read everything that the rules need; raise ClusterError if nodes cannot be listed."""
    table = NodeTable(settings.load_aware)
    sources: dict[str, CollectionState] = {}
    kinds = watched_kinds(settings)
    nodes_kind = kinds.pop("nodes")
    for (_, name), node in read_each(client, PATHS["nodes"], nodes_kind.wire, nodes_kind.project)[0].items():
        table.put_node(name, node)
    if not table.nodes:
        raise NoData("the cluster has no nodes", fix="Check that --context names the right cluster.")
    now = table.watched_since = client.clock().now_seconds()  # the reports of nodes have the cluster's times
    sources["nodes"] = CollectionState(0.0)
    puts = puts_into(table, now)
    for name, kind in kinds.items():
        try:
            values, refused = read_each(client, PATHS[name], kind.wire, kind.project, **kind.selectors)
        except ClusterAbsent:
            sources[name] = CollectionState(age_seconds=0.0, synced=False, absent=True)
            continue
        except ClusterForbidden as error:
            sources[name] = CollectionState(age_seconds=0.0, error=error.message, synced=False)
            continue  # any other ClusterError is the caller's
        unread = [f"{name} {'/'.join(filter(None, key))} cannot be read: {why}" for key, why in refused.items()]
        sources[name] = CollectionState(0.0, "; ".join(unread))
        for key, value in values.items():
            puts[name](key, value)
    nodes = tuple(table.nodes.values())
    moment = Instant(now, time.monotonic())
    return ClusterReading(next_snapshot(NodeSnapshot(), table.take(sources, now, moment.monotonic)), nodes, moment)


def extender_runs(client: KubeClient, settings: ExtenderSettings) -> bool:
    """Return whether the extender runs, as a ready Deployment or on this machine; an error counts as no Deployment."""
    try:
        for deployment in client.list(
            DEPLOYMENTS, _Deployment, labelSelector=f"app.kubernetes.io/name={EXTENDER_NAME}"
        ):
            if deployment.status.ready_replicas:
                return True
    except ClusterError:  # without the right to look it may be on this machine all the same
        pass
    host = "127.0.0.1" if settings.host in ("0.0.0.0", "::", "") else settings.host  # noqa: S104 - compared, not bound
    try:
        socket.create_connection((host, settings.port), timeout=CONNECT_SECONDS).close()
    except OSError:
        return False
    return True


def pod_of(client: KubeClient, namespace: str, name: str) -> Mapping[str, Any]:
    """Return a pod as JSON; raise NoData if it does not exist, ClusterError if it cannot be read."""
    pod = client.get(Address("v1", "pods", name, namespace).path)
    if pod is None:
        raise NoData(
            f"there is no pod {name} in namespace {namespace}",
            fix=f"kubectl get pods -n {namespace} lists the pods; -n NAME looks in another namespace.",
        )
    return pod
