"""EDGE: the manager's watches: each collection that a feature reads is watched once, for all features."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from cotenant.base.colocation.nodemetric import NodeMetric
from cotenant.base.controllers.watched import watched_node, watched_pod
from cotenant.base.kube import KubeClient, Mirror
from cotenant.base.kube.observed import (
    NOT_ENDED,
    ON_NODES,
    EndedPodWire,
    ManagedNodeWire,
    ObservedPodWire,
    QueueNodeWire,
    QueuePodWire,
)
from cotenant.base.kubernetes.protocol import (
    NATIVE_GANG_GROUP,
    OPERATING_MODE_LABEL,
    OWN_GROUP,
    PROFILE_GROUP,
    QUOTA_GROUP,
    RESERVATION_LABEL,
    SCHEDULING_GROUP,
    SLO_CONFIG_MAP,
    SLO_GROUP,
    SWAP_GUARD,
    TOPOLOGIES,
    TOPOLOGY_GROUP,
)
from cotenant.base.kubernetes.reservation import Reservation
from cotenant.base.settings.root import Settings
from cotenant.base.settings.sections.extender import LoadAwareSettings
from cotenant.recommender.colocation.node_slo import NodeSloObject
from cotenant.recommender.colocation.node_slo_controller import ConfigMapObject
from cotenant.recommender.colocation.zones import Topology
from cotenant.scheduler_ext.queues.model.gang import POD_GROUP_LABEL, gang_of_pod_group
from cotenant.scheduler_ext.queues.model.native_group import NativeGroup
from cotenant.scheduler_ext.queues.model.quota_tree import QuotaNode
from cotenant.scheduler_ext.queues.queue_objects import ENDED, ended_member, queue_node, queue_pod
from cotenant.scheduler_ext.queues.view import QuotaProfile
from cotenant.scheduler_ext.rebalance.cluster_reading import BUDGETS, BudgetWire, budget_of
from cotenant.scheduler_ext.rebalance.load import pod_of as rebalance_pod_of
from cotenant.scheduler_ext.rebalance.migration.job import JOBS, MigrationJob
from cotenant.scheduler_ext.reservations.guard import Guard
from cotenant.scheduler_ext.reservations.model.plan import PLURAL as PLANS
from cotenant.scheduler_ext.reservations.model.plan_wire import parse_plan
from cotenant.scheduler_ext.reservations.view import PodView

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
    "load-taints": (),
    "queues": (
        "ended-members",
        "native-gangs",
        "pod-groups",
        "queue-nodes",
        "queue-pods",
        "quota-profiles",
        "quotas",
        "reservations",
        "swapguards",
    ),
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
        return _migration_mirror(name, client, settings.extender.load_aware, wake)
    other = _queue_mirror if name in QUEUING else _reservation_mirror if name in RESERVING else _node_object_mirror
    return other(name, client, wake)


def _node_object_mirror(name: str, client: KubeClient, wake: threading.Event) -> Mirror[Any]:
    """Return the mirror of objects that are named like their node: its report, its NUMA zones, its policy."""
    if name == "nodemetrics":
        return Mirror(client, f"/apis/{SLO_GROUP}/nodemetrics", dict[str, Any], NodeMetric.parse, wake)
    if name == "topologies":
        return Mirror(client, f"/apis/{TOPOLOGY_GROUP}/{TOPOLOGIES}", dict[str, Any], Topology.parse, wake)
    return Mirror(client, f"/apis/{SLO_GROUP}/nodeslos", NodeSloObject, wake=wake)


RESERVING: Final = frozenset(
    {"pending-pods", "plans", "priorityclasses", "reservations", "reserved-pods", "standby-pods", "swapguards"}
)


MIGRATING: Final = frozenset({"disruption-budgets", "migration-jobs", "migration-pods"})


QUEUING: Final = frozenset(
    {"ended-members", "native-gangs", "pod-groups", "queue-nodes", "queue-pods", "quota-profiles", "quotas"}
)


class _MirroredPriorityClass(msgspec.Struct):
    value: int = 0


def _reservation_mirror(name: str, client: KubeClient, wake: threading.Event) -> Mirror[Any]:
    """Return a mirror that Reservations need; of pods only those without a node and those that carry our label."""
    json = dict[str, Any]
    if name == "plans":
        return Mirror(client, f"/apis/{OWN_GROUP}/{PLANS}", json, parse_plan, wake)
    if name == "reservations":
        return Mirror(client, f"/apis/{SCHEDULING_GROUP}/reservations", json, Reservation.parse, wake)
    if name == "swapguards":
        one = f"metadata.name={SWAP_GUARD}"
        return Mirror(client, f"/apis/{OWN_GROUP}/swapguards", json, Guard.parse, wake, fieldSelector=one)
    if name == "priorityclasses":
        path = "/apis/scheduling.k8s.io/v1/priorityclasses"
        return Mirror(client, path, _MirroredPriorityClass, lambda item: item.value, wake)
    return _reservation_pod_mirror(name, client, wake)


def _queue_mirror(name: str, client: KubeClient, wake: threading.Event) -> Mirror[Any]:
    """Return a mirror that queues need.

    These are quotas, their profiles, gangs, every pod that has not ended, and nodes with their taints.
    """
    json = dict[str, Any]
    if name == "queue-pods":
        return Mirror(client, "/api/v1/pods", QueuePodWire, queue_pod, wake, fieldSelector=NOT_ENDED)
    if name == "queue-nodes":
        return Mirror(client, "/api/v1/nodes", QueueNodeWire, queue_node, wake)
    if name == "quotas":
        return Mirror(client, f"/apis/{QUOTA_GROUP}/elasticquotas", json, QuotaNode.parse, wake)
    if name == "quota-profiles":
        return Mirror(client, f"/apis/{PROFILE_GROUP}/elasticquotaprofiles", json, QuotaProfile.parse, wake)
    return _gang_mirror(name, client, wake)


def _gang_mirror(name: str, client: KubeClient, wake: threading.Event) -> Mirror[Any]:
    """PodGroups, those of Kubernetes itself, and pods of PodGroups that have ended."""
    json = dict[str, Any]
    if name == "ended-members":
        return Mirror(
            client, "/api/v1/pods", EndedPodWire, ended_member, wake, labelSelector=POD_GROUP_LABEL, fieldSelector=ENDED
        )
    if name == "native-gangs":
        return Mirror(client, f"/apis/{NATIVE_GANG_GROUP}/podgroups", json, NativeGroup.parse, wake)
    return Mirror(client, f"/apis/{QUOTA_GROUP}/podgroups", json, gang_of_pod_group, wake)


def _migration_mirror(name: str, client: KubeClient, settings: LoadAwareSettings, wake: threading.Event) -> Mirror[Any]:
    """Return a mirror that moves of pods need: jobs, every pod that has not ended, or disruption budgets."""
    if name == "migration-jobs":
        return Mirror(client, f"/apis/{SCHEDULING_GROUP}/{JOBS}", dict[str, Any], MigrationJob.parse, wake)
    if name == "disruption-budgets":
        return Mirror(client, BUDGETS, BudgetWire, budget_of, wake)
    project = partial(rebalance_pod_of, settings=settings)
    return Mirror(client, "/api/v1/pods", msgspec.Raw, project, wake, fieldSelector=NOT_ENDED)


def _reservation_pod_mirror(name: str, client: KubeClient, wake: threading.Event) -> Mirror[Any]:
    """Pods without a node, pods that are Reservations themselves, pods that carry our label."""
    if name == "standby-pods":
        mine = f"{OPERATING_MODE_LABEL}=Reservation"
        return Mirror(client, "/api/v1/pods", dict[str, Any], _standby, wake, labelSelector=mine)
    if name == "pending-pods":
        waiting = "spec.nodeName=,status.phase=Pending"
        return Mirror(client, "/api/v1/pods", dict[str, Any], PodView.parse, wake, fieldSelector=waiting)
    return Mirror(client, "/api/v1/pods", dict[str, Any], PodView.parse, wake, labelSelector=RESERVATION_LABEL)


def _standby(pod: dict[str, Any]) -> tuple[Reservation, PodView]:
    return Reservation.of_pod(pod), PodView.parse(pod)
