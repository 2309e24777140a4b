"""EDGE: the view that a decision about queues rests on, put together from mirrors: each pod with its quota."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from cotenant.base.errors import ClusterAbsent, ClusterForbidden
from cotenant.base.kube import Mirror
from cotenant.base.kubernetes.protocol import GANG_LABEL, OWNER_WORKLOAD_ANNOTATION
from cotenant.base.kubernetes.quota_tree import (
    BORROWS_SINCE_ANNOTATION,
    NAME_LABEL,
    OVER_SINCE_ANNOTATION,
    QuotaNode,
    QuotaTree,
)
from cotenant.scheduler_ext.queues.model.gang import NativeGroup, gangs_of
from cotenant.scheduler_ext.queues.model.queue_pod import QueuePod
from cotenant.scheduler_ext.queues.queue_objects import WatchedQueuePod
from cotenant.scheduler_ext.queues.quota_status import published_since
from cotenant.scheduler_ext.queues.view import QueueView
from cotenant.scheduler_ext.reservations.model.reservation import Reservation

Key = tuple[str, str]
Mirrors = Mapping[str, Mirror[Any]]
READABLE: Final = {
    "quotas": "elasticquotas",
    "quota-profiles": "elasticquotaprofiles",
    "pod-groups": "podgroups",
    "queue-pods": "pods",
    "ended-members": "pods",
    "queue-nodes": "nodes",
    "reservations": "reservations",
}
"""Plural of what each mirror holds: how an unreadable object is named."""


class QueueViewBuilder:
    """Builds views of the same mirrors again and again; a pod whose tree did not change is resolved once."""

    def __init__(self, mirrors: Mirrors) -> None:
        """Create the builder; nothing is read yet."""
        self._mirrors = mirrors
        self._quotas: Mapping[Key, QuotaNode] | None = None
        self._tree = QuotaTree()
        self._resolved: dict[str, tuple[WatchedQueuePod, QueuePod]] = {}

    def view(self, now_seconds: float) -> QueueView:
        """Return the view of what the mirrors show now; the caller adds the results of other rounds."""
        quotas: Mapping[Key, QuotaNode] = self._mirrors["quotas"].snapshot()
        if quotas is not self._quotas:
            before = self._tree.addressing
            self._quotas = quotas
            self._tree = QuotaTree.of(quotas)
            if self._tree.addressing != before:  # not when only figures were written, as in most rounds
                self._resolved = {}
        pods = self._pods()
        groups = self._mirrors["pod-groups"].snapshot().values()
        return QueueView(
            now_seconds=now_seconds,
            quotas=self._tree.quotas,
            profiles=tuple(profile for _, profile in sorted(self._mirrors["quota-profiles"].snapshot().items())),
            gangs=gangs_of(groups, (pod.declared_gang for pod in pods if pod.declared_gang is not None)),
            pods=pods,
            nodes=tuple(self._mirrors["queue-nodes"].snapshot().values()),
            reservations=tuple(r for r in self._mirrors["reservations"].snapshot().values() if counts(r)),
            ended_members=Counter(self._mirrors["ended-members"].snapshot().values()),
            native_groups=self.native_groups(),
            over_since=published_since(self._tree.quotas, OVER_SINCE_ANNOTATION),
            borrows_since=published_since(self._tree.quotas, BORROWS_SINCE_ANNOTATION),
            unreadable=(*self._refused_objects(), *self._named_twice(quotas)),
        )

    def settled(self) -> bool:
        """Return whether it is known if Kubernetes' own PodGroups are offered, and which there are."""
        mirror = self._mirrors["native-gangs"]
        return mirror.wait_synced(0) or mirror.error is not None

    def native_groups(self) -> dict[str, NativeGroup] | None:
        """Kubernetes' own PodGroups by "namespace/name"; None where the server offers none, or none may be read."""
        mirror = self._mirrors["native-gangs"]
        if not mirror.wait_synced(0) or isinstance(mirror.error, ClusterAbsent | ClusterForbidden):
            return None
        return {f"{namespace}/{name}": group for (namespace, name), group in mirror.snapshot().items()}

    def _pods(self) -> tuple[QueuePod, ...]:
        previous, self._resolved = self._resolved, {}
        for watched in self._mirrors["queue-pods"].snapshot().values():
            before = previous.get(watched.pod.uid)
            same = before is not None and before[0] is watched
            pod = before[1] if before is not None and same else resolve_quota(watched, self._tree)
            self._resolved[pod.uid] = (watched, pod)
        return tuple(pod for _, pod in self._resolved.values())

    def _refused_objects(self) -> Iterator[tuple[str, str]]:
        for name, plural in READABLE.items():
            for (namespace, item), why in sorted(self._mirrors[name].refusals.items()):
                yield "/".join(part for part in (plural, namespace, item) if part), why

    def _named_twice(self, quotas: Mapping[Key, QuotaNode]) -> Iterator[tuple[str, str]]:
        for (namespace, name), quota in sorted(quotas.items()):
            other = self._tree.quotas[name]
            if quota is not other:
                yield (
                    f"elasticquotas/{namespace}/{name}",
                    f"{other.namespace}/{name} has the same name and goes first",
                )


def resolve_quota(watched: WatchedQueuePod, tree: QuotaTree) -> QueuePod:
    """The pod with the quota that it counts against.

    A pod that none names counts against the one that it was gated for while that cannot be read: its namespaces may
    be what is not known.
    """
    if watched.pod.placeholder:
        return watched.pod
    labels = {NAME_LABEL: watched.quota_label} if watched.quota_label else {}
    quota = tree.of_pod(watched.pod.namespace, labels, watched.gated_for)
    if quota is None:
        quota = tree.quotas.get(watched.gated_for)
        if quota is None or not quota.problem:
            return watched.pod
    return replace(watched.pod, quota=quota.name, missed=not (watched.gated_for or watched.never_gated))


def counts(reservation: Reservation) -> bool:
    """Return whether queues use a Reservation: it has capacity for a gang member, or belongs to a plan."""
    return GANG_LABEL in reservation.labels or OWNER_WORKLOAD_ANNOTATION in reservation.annotations
