"""EDGE: the watched collections that queues read."""

from __future__ import annotations

import threading
from typing import Any, Final

from cotenant.base.kube import KubeClient, Mirror
from cotenant.base.kubernetes.models.node import QueueNodeWire
from cotenant.base.kubernetes.models.pod import EndedPodWire, QueuePodWire
from cotenant.base.kubernetes.protocol import NATIVE_GANG_GROUP, NOT_ENDED, PROFILE_GROUP, QUOTA_GROUP
from cotenant.base.kubernetes.quota_tree import QuotaNode
from cotenant.scheduler_ext.queues.model.gang import POD_GROUP_LABEL, gang_of_pod_group
from cotenant.scheduler_ext.queues.model.native_group import NativeGroup
from cotenant.scheduler_ext.queues.queue_objects import ENDED, ended_member, queue_node, queue_pod
from cotenant.scheduler_ext.queues.view import QuotaProfile

QUEUE_MIRRORS: Final = (
    "ended-members",
    "native-gangs",
    "pod-groups",
    "queue-nodes",
    "queue-pods",
    "quota-profiles",
    "quotas",
    "reservations",
    "swapguards",
)
"""Names of the mirrors, with those of Reservations that hold a gang's capacity."""
QUEUING: Final = frozenset(
    {"ended-members", "native-gangs", "pod-groups", "queue-nodes", "queue-pods", "quota-profiles", "quotas"}
)


def queue_mirror(name: str, client: KubeClient, wake: threading.Event) -> Mirror[Any]:
    """Return a mirror that queues need.

    These are quotas, their profiles, gangs, every pod that has not ended, and nodes with their taints.
    """
    json = dict[str, Any]
    if name == "queue-pods":
        return Mirror(client, "/api/v1/pods", QueuePodWire, queue_pod, wake, fieldSelector=NOT_ENDED)
    if name == "queue-nodes":
        return Mirror(client, "/api/v1/nodes", QueueNodeWire, queue_node, wake)
    if name == "quotas":
        return Mirror(client, f"/apis/{QUOTA_GROUP}/elasticquotas", json, QuotaNode.read, wake)
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
