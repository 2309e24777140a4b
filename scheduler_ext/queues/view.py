"""The inputs of the queue controller: quotas, gangs, pods, nodes, and Reservations of gangs and plans. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec

from cotenant.base.errors import UsageError
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.kubernetes.pod_identity import Taint
from cotenant.base.kubernetes.quota_tree import RESOURCE_KEYS_ANNOTATION, TREE_LABEL, Amounts, QuotaNode
from cotenant.base.kubernetes.selector import LabelSelector
from cotenant.base.text import format_value
from cotenant.scheduler_ext.queues.model.gang import Gang, MatchPolicy, NativeGroup
from cotenant.scheduler_ext.queues.model.queue_pod import QueuePod
from cotenant.scheduler_ext.reservations.model.reservation import Reservation


@dataclass(frozen=True, slots=True)
class QueueNode:
    """A node: allocatable amounts (cpu in millicores), labels and taints; `ready` is the kubelet's report."""

    name: str
    allocatable: Amounts = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True


@dataclass(frozen=True, slots=True)
class QuotaProfile:
    """An ElasticQuotaProfile: a tree's root quota, whose total is `ratio` times the capacity of the selected nodes.

    `quota_labels` are labels of the quota that is created from it, `resources` those that this quota limits.
    """

    quota: str
    tree_id: str
    selector: LabelSelector = field(default_factory=LabelSelector)
    ratio: float = 1.0
    namespace: str = ""
    name: str = ""
    quota_labels: Mapping[str, str] = field(default_factory=dict)
    resources: tuple[str, ...] = ("cpu", "memory")

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> QuotaProfile:
        """Parse an ElasticQuotaProfile object; UsageError names the first invalid field.

        As in Koordinator, a missing tree id is the FNV-1a hash of namespace/name, and a ratio outside 0..1 counts as 1.
        """
        metadata, spec = body.get("metadata") or {}, body.get("spec") or {}
        namespace, name = str(metadata.get("namespace") or ""), str(metadata.get("name") or "")
        what = f"elasticquotaprofile {namespace}/{name}"
        if not spec.get("quotaName"):
            raise UsageError(f"{what}: spec.quotaName is missing", fix="Set spec.quotaName to the root quota.")
        return cls(
            quota=str(spec["quotaName"]),
            tree_id=str((metadata.get("labels") or {}).get(TREE_LABEL) or _fnv1a(f"{namespace}/{name}")),
            selector=LabelSelector.parse(spec.get("nodeSelector"), f"{what}: spec.nodeSelector"),
            ratio=_ratio(spec.get("resourceRatio")),
            namespace=namespace,
            name=name,
            quota_labels={str(key): str(value) for key, value in (spec.get("quotaLabels") or {}).items()},
            resources=_resources((metadata.get("annotations") or {}).get(RESOURCE_KEYS_ANNOTATION), what),
        )


def _resources(text: Any, what: str) -> tuple[str, ...]:
    if not text:
        return ("cpu", "memory")
    try:
        return tuple(msgspec.json.decode(str(text), type=list[str]))
    except UNDECODABLE as error:
        message = f"{what}: {RESOURCE_KEYS_ANNOTATION} {format_value(text)} is not a JSON list of resources"
        raise UsageError(message, fix='Write ["cpu", "memory"].') from error


def _ratio(text: Any) -> float:
    try:
        ratio = float(text)
    except (TypeError, ValueError):
        return 1.0
    return ratio if 0.0 < ratio <= 1.0 else 1.0


def _fnv1a(text: str) -> str:
    """Return the 64-bit FNV-1a hash in decimal digits, as Koordinator names trees."""
    digest = 0xCBF29CE484222325
    for byte in text.encode():
        digest = (digest ^ byte) * 0x100000001B3 % 2**64
    return str(digest)


@dataclass(frozen=True)
class QueueView:
    """All inputs of one decision of the queue controller; times are Unix seconds.

    `quotas` are by name, `gangs` by "namespace/name", and so are `native_groups` (Kubernetes' PodGroups; None if the
    API server has no such kind). `reservations` are those for gangs and those of plans. The last run computed
    `over_since` and `borrows_since`, the times since which a quota's use exceeds its runtime or its min, by quota.
    `attempts` has, by the gang group's key, the number of failed attempts and the time before which the group is not
    retried. `released` are UIDs of pods whose quota gate was removed but that are still seen with it; they count as
    admitted. `evicted` are UIDs of pods that were, or may have been, evicted and are not seen as ending yet.
    `evictions_refused` has, by UID, the time before which an eviction is not retried. `ended_members` is the number of
    ended pods of PodGroups by (gang's key, phase, owner's UID). `runs` has, by quota, the run times of ended pods in
    seconds, ascending; None if they are not needed. `unreadable` are (object, reason) of objects that are left out.
    `unmade` has, by an object's address, the reason why it could not be created.
    """

    now_seconds: float
    quotas: Mapping[str, QuotaNode] = field(default_factory=dict)
    profiles: tuple[QuotaProfile, ...] = ()
    gangs: Mapping[str, Gang] = field(default_factory=dict)
    pods: tuple[QueuePod, ...] = ()
    nodes: tuple[QueueNode, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    over_since: Mapping[str, float] = field(default_factory=dict)
    borrows_since: Mapping[str, float] = field(default_factory=dict)
    attempts: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    released: frozenset[str] = frozenset()
    evicted: frozenset[str] = frozenset()
    evictions_refused: Mapping[str, float] = field(default_factory=dict)
    runs: Mapping[str, tuple[float, ...]] | None = None
    ended_members: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    native_groups: Mapping[str, NativeGroup] | None = None
    unreadable: tuple[tuple[str, str], ...] = ()
    unmade: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def done_members(self) -> Mapping[str, int]:
        """Number of members, by gang, that succeeded and need no capacity again; only of once-satisfied gangs.

        Only pods of an owner (a Job) that still has pods count: those of another owner belong to another run.
        """
        owners: dict[str, set[str]] = {}
        for pod in self.pods:
            if pod.owner_uid and not pod.deleting:
                owners.setdefault(pod.gang, set()).add(pod.owner_uid)
        done: dict[str, int] = {}
        for (key, phase, owner), count in self.ended_members.items():
            gang = self.gangs.get(key)
            once = gang is not None and gang.match_policy is MatchPolicy.ONCE_SATISFIED
            if once and phase == "Succeeded" and owner in owners.get(key, ()):
                done[key] = done.get(key, 0) + count
        return done
