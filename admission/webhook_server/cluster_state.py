"""EDGE: mirrors of the objects that the webhooks need, as one immutable `ClusterView` that is rebuilt after changes."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec
import structlog

from cotenant.admission.namespace_limits.demands import Demand, demands_of_quota, demands_of_range
from cotenant.admission.profile import PriorityClassEntry, Profile
from cotenant.admission.view import ClusterView
from cotenant.base.controllers.isolation import Watched, compute_without_failing
from cotenant.base.errors import ClusterAbsent, UsageError
from cotenant.base.kube import KubeClient, Mirror
from cotenant.base.kube.reflection import Key
from cotenant.base.kubernetes.models.metadata import LabelledObject
from cotenant.base.kubernetes.models.own_kinds import SwapGuardWire
from cotenant.base.kubernetes.models.pod import SizedTemplate
from cotenant.base.kubernetes.moments import moment_of
from cotenant.base.kubernetes.protocol import (
    CONFIG_GROUP,
    NATIVE_GANG_GROUP,
    NOT_ENDED,
    OPERATING_MODE_LABEL,
    OWN_GROUP,
    PROFILE_GROUP,
    QUOTA_GROUP,
    SCHEDULING_GROUP,
    SWAP_GUARD,
)
from cotenant.base.kubernetes.quota_tree import NAME_LABEL, QuotaNode, QuotaTree
from cotenant.base.process.in_hand import ObjectVersion
from cotenant.changes.model.annotated_resources import (
    CHANGE_ANNOTATION,
    KINDS,
    LABEL_VALUE,
    RESOURCES_ANNOTATION,
    RESOURCES_LABEL,
    AnnotatedResources,
    decode_swaps,
    same,
)
from cotenant.scheduler_ext.queues.admission.pod_gates import NativeGangs
from cotenant.scheduler_ext.queues.model.gang import NativeGroup, gang_of_pod_group
from cotenant.scheduler_ext.queues.view import QuotaProfile
from cotenant.scheduler_ext.reservations.model.reservation import Reservation
from cotenant.scheduler_ext.reservations.pod_gate import Offers

STOP_SECONDS: Final = 1.0
log = structlog.get_logger(__name__)
_PATHS: Final = {
    "profiles": f"/apis/{CONFIG_GROUP}/clustercolocationprofiles",
    "namespaces": "/api/v1/namespaces",
    "priority_classes": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "quotas": f"/apis/{QUOTA_GROUP}/elasticquotas",
    "quota_profiles": f"/apis/{PROFILE_GROUP}/elasticquotaprofiles",
    "reservations": f"/apis/{SCHEDULING_GROUP}/reservations",
    "swapguards": f"/apis/{OWN_GROUP}/swapguards",
    "standby": "/api/v1/pods",
    "limit_ranges": "/api/v1/limitranges",
    "resource_quotas": "/api/v1/resourcequotas",
    "pod_groups": f"/apis/{QUOTA_GROUP}/podgroups",
    "native_groups": f"/apis/{NATIVE_GANG_GROUP}/podgroups",
    **{kind: f"/apis/apps/v1/{plural}" for kind, plural in KINDS.items()},
}
_STANDBY: Final = f"{OPERATING_MODE_LABEL}=Reservation"
_DEMANDING: Final = ("limit_ranges", "resource_quotas")
_NECESSARY: Final = ("profiles", "namespaces", "priority_classes")
"""Pods are mutated without the others, too."""


class _PriorityClass(msgspec.Struct):
    value: int = 0
    preemptionPolicy: str | None = None  # noqa: N815 - the API's name

    def entry(self) -> PriorityClassEntry:
        return PriorityClassEntry(self.value, self.preemptionPolicy or "PreemptLowerPriority")


class _WorkloadSpec(msgspec.Struct):
    template: SizedTemplate = msgspec.field(default_factory=SizedTemplate)


class _AnnotatedWorkload(LabelledObject):
    """A workload with an annotation of cotenant, and its template's resources."""

    spec: _WorkloadSpec = msgspec.field(default_factory=_WorkloadSpec)


class WebhookMirrors:
    """Watched copies of the objects that webhooks need, such as profiles and quotas. `view` is thread-safe."""

    def __init__(self, client: KubeClient, native_gangs: bool = False) -> None:
        """Create the mirrors without requests yet; with `native_gangs`, Kubernetes places gangs where it can."""
        self.client = client
        json, ours = dict[str, Any], f"{RESOURCES_LABEL}={LABEL_VALUE}"
        self.mirrors: dict[str, Mirror[Any]] = {
            "profiles": Mirror(client, _PATHS["profiles"], dict[str, Any], Profile.parse),
            "namespaces": Mirror(client, _PATHS["namespaces"], LabelledObject, lambda n: n.metadata.labels or {}),
            "priority_classes": Mirror(client, _PATHS["priority_classes"], _PriorityClass, _PriorityClass.entry),
            "quotas": Mirror(client, _PATHS["quotas"], dict[str, Any], QuotaNode.read),
            "quota_profiles": Mirror(client, _PATHS["quota_profiles"], json, QuotaProfile.parse),
            "reservations": Mirror(client, _PATHS["reservations"], dict[str, Any], Reservation.parse),
            "swapguards": Mirror(client, _PATHS["swapguards"], SwapGuardWire, _served_until),
            "standby": Mirror(client, _PATHS["standby"], dict[str, Any], Reservation.of_pod, labelSelector=_STANDBY),
            "limit_ranges": Mirror(client, _PATHS["limit_ranges"], json, demands_of_range),
            "resource_quotas": Mirror(client, _PATHS["resource_quotas"], json, demands_of_quota),
            **{
                kind: Mirror(client, _PATHS[kind], _AnnotatedWorkload, _parse_annotated_resources, labelSelector=ours)
                for kind in KINDS
            },
        }
        if native_gangs:
            self.mirrors["pod_groups"] = Mirror(client, _PATHS["pod_groups"], json, gang_of_pod_group)
            self.mirrors["native_groups"] = Mirror(client, _PATHS["native_groups"], json, NativeGroup.parse)
        self._seen: dict[str, Mapping[Any, Any]] = {}
        self._watched: Watched[tuple[str, Key]] = Watched(
            "view", lambda place: self.mirrors[place[0]].version(place[1])
        )
        self._view = ClusterView(synced=False, quotas_synced=False)

    def start(self) -> None:
        """Begin to list and watch."""
        for mirror in self.mirrors.values():
            mirror.start()

    def stop(self) -> None:
        """End all watches in parallel; one that is stuck in a request ends with the process."""
        ending = [threading.Thread(target=mirror.stop, daemon=True) for mirror in self.mirrors.values()]
        for thread in ending:
            thread.start()
        until = time.monotonic() + STOP_SECONDS
        for thread in ending:
            thread.join(max(0.0, until - time.monotonic()))

    def wrong(self) -> str:
        """Return why pods are not mutated yet, or ""."""
        return "; ".join(
            f"{name}: {mirror.error.message if mirror.error else 'not read yet'}"
            for name, mirror in self.mirrors.items()
            if name in _NECESSARY and not _is_complete_or_absent(mirror)
        )

    def view(self) -> ClusterView:
        """Return the present cluster state; the same object as before while nothing has changed."""
        snapshots = {name: mirror.snapshot() for name, mirror in self.mirrors.items()}
        ready = {name: _is_complete_or_absent(mirror) for name, mirror in self.mirrors.items()}
        synced = all(ready[name] for name in _NECESSARY)
        same = self._seen and all(snapshots[name] is self._seen[name] for name in snapshots)
        if not same or (self._view.synced, self._view.quotas_synced) != (synced, ready["quotas"]):
            places = [(name, key) for name, objects in snapshots.items() for key in objects]

            def view_without(places: Collection[tuple[str, Key]]) -> ClusterView:
                usable = dict(snapshots)
                for name in {name for name, _ in places}:
                    usable[name] = {key: value for key, value in usable[name].items() if (name, key) not in places}
                return replace(self._view_of(usable), synced=synced, quotas_synced=ready["quotas"])

            self._view, failures = compute_without_failing(places, view_without, (MemoryError,), self._watched)
            for (name, key), why in failures.items():
                log.error("object left out of the view", object=str(ObjectVersion(_PATHS[name], *key, "")), why=why)
            self._seen = snapshots
        return self._view

    def _view_of(self, snapshots: Mapping[str, Mapping[Any, Any]]) -> ClusterView:
        # Reservations, and running pods that are some.
        reservations = (*snapshots["reservations"].values(), *snapshots["standby"].values())
        # The demands of LimitRanges and ResourceQuotas, by namespace.
        demands: defaultdict[str, list[Demand]] = defaultdict(list)
        for kind in _DEMANDING:
            for (namespace, _), those in sorted(snapshots[kind].items()):
                demands[namespace] += those
        # Until when reservations, and queues, are looked after, Unix seconds, by the SwapGuard; 0 without one.
        reservations_until, queues_until = snapshots["swapguards"].get(("", SWAP_GUARD), (0.0, 0.0))
        # None until Kubernetes' own PodGroups were listed, which needs a server that has them.
        natives: NativeGangs | None = None
        if "native_groups" in self.mirrors and self.mirrors["native_groups"].wait_synced(0):
            groups, ours = (
                {f"{namespace}/{name}": object_ for (namespace, name), object_ in snapshots[kind].items()}
                for kind in ("native_groups", "pod_groups")
            )
            natives = NativeGangs(groups, ours)
        return ClusterView(
            profiles=tuple(sorted(snapshots["profiles"].values(), key=lambda profile: profile.name)),
            namespaces={name: labels for (_, name), labels in snapshots["namespaces"].items()},
            priority_classes={name: entry for (_, name), entry in snapshots["priority_classes"].items()},
            quotas=QuotaTree.of(snapshots["quotas"]),
            quota_profiles=tuple(profile for _, profile in sorted(snapshots["quota_profiles"].items())),
            offers=Offers.of(reservations, reservations_until),
            annotated={(kind, *place): noted for kind in KINDS for place, noted in snapshots[kind].items()},
            queues_served_until_seconds=queues_until,
            natives=natives,
            demands={namespace: tuple(those) for namespace, those in demands.items()},
        )

    def pods_of_quota(self, name: str) -> int:
        """Return how many pods that have not ended use a quota, by label or namespace, as the API server lists them."""
        tree = self.view().quotas
        quota = tree.quotas.get(name)
        bound = {*quota.namespaces, quota.namespace} if quota is not None else set()
        client = self.client.sibling()
        try:
            labelled = client.list(
                "/api/v1/pods", LabelledObject, labelSelector=f"{NAME_LABEL}={name}", fieldSelector=NOT_ENDED
            )
            pods = {pod.metadata.uid for pod in labelled}
            for namespace in sorted(bound):
                inside = client.list(f"/api/v1/namespaces/{namespace}/pods", LabelledObject, fieldSelector=NOT_ENDED)
                for pod in inside:
                    used = tree.of_pod(namespace, pod.metadata.labels or {})
                    pods |= {pod.metadata.uid} if used is not None and used.name == name else set()
            return len(pods)
        finally:
            client.close()


def _is_complete_or_absent(mirror: Mirror[Any]) -> bool:
    """Return whether the mirror has been complete once, or its kind is not installed (no CRD)."""
    return mirror.wait_synced(0) or isinstance(mirror.error, ClusterAbsent)


def _served_until(guard: SwapGuardWire) -> tuple[float, float]:
    """Return until when (Unix time) the manager promises to handle Reservations, and queues."""
    spec = guard.spec
    return moment_of(spec.served_until, "swapguards") or 0.0, moment_of(spec.queues_served_until, "swapguards") or 0.0


def _parse_annotated_resources(workload: _AnnotatedWorkload) -> AnnotatedResources:
    annotations = workload.metadata.annotations or {}
    change = annotations.get(CHANGE_ANNOTATION, "")
    try:
        swaps = decode_swaps(annotations.get(RESOURCES_ANNOTATION, "{}"))
    except UsageError as error:
        return AnnotatedResources(workload.metadata.uid, {}, change, error.message)
    template = workload.spec.template.resources()
    stale = frozenset(name for name, swap in swaps.items() if not same(template.get(name), swap.before))
    return AnnotatedResources(workload.metadata.uid, swaps, change, stale=stale)
