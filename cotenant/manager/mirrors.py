"""EDGE: the manager's watches: each collection that a feature reads is watched once, for all features."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any, Final

from cotenant.base.colocation.nodemetric import NodeMetric
from cotenant.base.controllers.watched import watched_node, watched_pod
from cotenant.base.kube import KubeClient, Mirror
from cotenant.base.kubernetes.models.metadata import ConfigMapObject
from cotenant.base.kubernetes.models.node import ManagedNodeWire
from cotenant.base.kubernetes.models.pod import ObservedPodWire
from cotenant.base.kubernetes.observed import ON_NODES
from cotenant.base.kubernetes.protocol import SLO_CONFIG_MAP, SLO_GROUP, TOPOLOGIES, TOPOLOGY_GROUP
from cotenant.recommender.colocation.node_slo import NodeSloObject
from cotenant.recommender.colocation.zones import Topology
from cotenant.scheduler_ext.queues.queue_objects import QUEUE_MIRRORS, QUEUING, queue_mirror
from cotenant.scheduler_ext.rebalance.cluster_reading import MIGRATING, migration_mirror
from cotenant.scheduler_ext.reservations.service.mirrors import RESERVING, reservation_mirror
from cotenant.settings import Settings

READ: Final[Mapping[str, tuple[str, ...]]] = {
    "colocation": ("config", "nodes", "nodemetrics", "pods", "topologies"),
    "node-slo": ("config", "nodes", "nodeslos"),
    "node-metric": ("config", "nodes", "nodemetrics", "pods"),
    "recommendations": (),
    "forecasts": ("nodes",),
    "reservations": (
        "nodes",
        "pending-pods",
        "priorityclasses",
        "reservations",
        "reserved-pods",
        "standby-pods",
        "swapguards",
    ),
    "plans": ("nodes", "plans", "reservations"),
    "migrations": ("disruption-budgets", "migration-jobs", "migration-pods", "reservations", "swapguards"),
    "descheduler": ("migration-jobs",),
    "autopilot": (),
    "ladders": (),
    "load-taints": (),
    "queues": QUEUE_MIRRORS,
}
"""Feature -> the mirrors that it reads."""


def mirrors_of(
    client: KubeClient, settings: Settings, features: Iterable[str], wake: threading.Event
) -> dict[str, Mirror[Any]]:
    """The mirrors that the wanted features read, not yet started; all of them set `wake`."""
    needed = {name for feature in features for name in READ[feature]}
    mirrors = {name: _make_mirror(name, client, settings, wake) for name in sorted(needed)}
    for mirror in mirrors.values():
        mirror.renew_within(settings.manager.stale_seconds)
    return mirrors


def _make_mirror(name: str, client: KubeClient, settings: Settings, wake: threading.Event) -> Mirror[Any]:
    if name == "config":
        path = f"/api/v1/namespaces/{settings.manager.namespace}/configmaps"
        return Mirror(client, path, ConfigMapObject, wake=wake, fieldSelector=f"metadata.name={SLO_CONFIG_MAP}")
    if name == "nodes":
        return Mirror(client, "/api/v1/nodes", ManagedNodeWire, watched_node, wake)
    if name == "pods":
        return Mirror(client, "/api/v1/pods", ObservedPodWire, watched_pod, wake, fieldSelector=ON_NODES)
    if name in MIGRATING:
        return migration_mirror(name, client, settings.extender.load_aware, wake)
    other = queue_mirror if name in QUEUING else reservation_mirror if name in RESERVING else _node_object_mirror
    return other(name, client, wake)


def _node_object_mirror(name: str, client: KubeClient, wake: threading.Event) -> Mirror[Any]:
    """Return the mirror of objects that are named like their node: its report, its NUMA zones, its policy."""
    if name == "nodemetrics":
        return Mirror(client, f"/apis/{SLO_GROUP}/nodemetrics", dict[str, Any], NodeMetric.parse, wake)
    if name == "topologies":
        return Mirror(client, f"/apis/{TOPOLOGY_GROUP}/{TOPOLOGIES}", dict[str, Any], Topology.parse, wake)
    return Mirror(client, f"/apis/{SLO_GROUP}/nodeslos", NodeSloObject, wake=wake)
