"""Adds scheduling gates to new pods that have to wait for their quota or their gang. Pure.

Gates cannot be added later, so a member of a gang gets at once all that it will need: the gates of its quota, of its
gang, and of the Reservation for its capacity. The gates rely on the manager to remove them, so they are added only
while the manager reports that it runs (`queuesServedUntil` of the SwapGuard).

A member of a gang that Kubernetes can place also names the gang's PodGroup, which cannot be added later. Once the
gang's minimum was placed, new members name none: the scheduler would place none of them alone after others ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cotenant.base.kubernetes.protocol import (
    GANG_GATE,
    QUEUED_ANNOTATION,
    QUOTA_GATE,
    REQUIRED_TERMS,
    RESERVATION_GATE,
    ROOT_QUOTA,
)
from cotenant.base.kubernetes.quota_tree import SYSTEM_QUOTAS, QuotaNode, QuotaTree
from cotenant.scheduler_ext.queues.model.gang import (
    Gang,
    MatchPolicy,
    NativeGroup,
    gang_key,
    gang_of_pod,
    group_named,
    inexpressible_fields,
)
from cotenant.scheduler_ext.queues.view import QuotaProfile
from cotenant.scheduler_ext.reservations.guard import is_promised
from cotenant.scheduler_ext.reservations.pod_gate import may_be_gated

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class NativeGangs:
    """PodGroups known to the webhook, by "namespace/name": `groups` are Kubernetes', `pod_groups` those of cotenant."""

    groups: Mapping[str, NativeGroup] = field(default_factory=dict)
    pod_groups: Mapping[str, Gang] = field(default_factory=dict)

    def names(self, namespace: str, pod: Json) -> bool:
        """Return whether the spec of a gang's new pod must name the Kubernetes PodGroup that has the gang's name."""
        labels, annotations = pod["metadata"].get("labels") or {}, pod["metadata"].get("annotations") or {}
        gang = self.pod_groups.get(gang_key(namespace, labels, annotations))
        gang = gang or gang_of_pod(namespace, "", labels, annotations)
        if gang is None or inexpressible_fields(gang):
            return False
        group = self.groups.get(gang.key)
        placed_once = gang.started or (group is not None and group.scheduled)
        return not (placed_once and gang.match_policy is MatchPolicy.ONCE_SATISFIED)


def add_queue_gates(
    pod: Json,
    quotas: QuotaTree,
    served_until_seconds: float,
    namespace: str,
    now_seconds: float,
    natives: NativeGangs | None = None,
) -> Json:
    """Return a new pod with the gates of its quota and its gang; unchanged if it has neither or may not be gated.

    It is also unchanged if no manager promises to remove gates (`served_until_seconds`). A pod that waits for its quota
    also gets an annotation with the quota's name, unlike pods that the webhook missed. `natives` is given if Kubernetes
    is to place gangs. A pod that itself names a PodGroup of Kubernetes is in none of cotenant's gangs.
    """
    if not is_promised(served_until_seconds, now_seconds) or not may_be_gated(pod, namespace):
        return pod
    meta, spec = pod["metadata"], pod["spec"]
    labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
    quota = _quota(quotas, namespace, labels)
    gates = [QUOTA_GATE] if quota else []
    in_gang = bool(gang_key(namespace, labels, annotations)) and not group_named(pod)
    gates += [GANG_GATE, RESERVATION_GATE] if in_gang else []
    existing = spec.get("schedulingGates") or ()
    names = {gate.get("name") for gate in existing}
    added = [{"name": gate} for gate in gates if gate not in names]
    if quota and annotations.get(QUEUED_ANNOTATION) != quota.name:
        meta = {**meta, "annotations": {**annotations, QUEUED_ANNOTATION: quota.name}}
    elif not added:
        return pod
    spec = {**spec, "schedulingGates": [*existing, *added]}
    if in_gang and natives is not None and natives.names(namespace, pod):
        gang = gang_key(namespace, labels, annotations).partition("/")[2]
        spec = {**spec, "schedulingGroup": {"podGroupName": gang}}
    return {**pod, "metadata": meta, "spec": spec}


def with_tree_affinity(pod: Json, quotas: QuotaTree, profiles: Iterable[QuotaProfile], namespace: str) -> Json:
    """Return a new pod that requires the nodes of its quota's tree, as Koordinator's webhook does.

    A pod stays as it is if it requires these nodes already, or may not be gated, such as a DaemonSet's, which is bound
    to its node.
    """
    quota = _quota(quotas, namespace, pod["metadata"].get("labels") or {})
    profile = None
    if quota is not None and may_be_gated(pod, namespace):
        # it names the quota, or one above it, as the tree's root
        names = {quota.name, *quotas.ancestors(quota)} - {ROOT_QUOTA}
        profile = next((profile for profile in profiles if profile.quota in names), None)
    if profile is None or not profile.selector.requirements:
        return pod
    tree_terms = [
        {"key": r.key, "operator": r.operator.value, **({"values": sorted(r.values)} if r.values else {})}
        for r in profile.selector.requirements
    ]
    affinity: Json = pod["spec"].get("affinity") or {}
    of_nodes: Json = affinity.get("nodeAffinity") or {}
    required: Json = of_nodes.get(REQUIRED_TERMS) or {}
    before: Sequence[Json] = required.get("nodeSelectorTerms") or ({},)
    terms = []
    for term in before:
        own = list(term.get("matchExpressions") or ())
        terms.append({**term, "matchExpressions": own + [each for each in tree_terms if each not in own]})
    required = {**required, "nodeSelectorTerms": terms}
    affinity = {**affinity, "nodeAffinity": {**of_nodes, REQUIRED_TERMS: required}}
    return {**pod, "spec": {**pod["spec"], "affinity": affinity}}


def _quota(quotas: QuotaTree, namespace: str, labels: Mapping[str, str]) -> QuotaNode | None:
    quota = quotas.of_pod(namespace, labels)
    return quota if quota is not None and quota.name not in SYSTEM_QUOTAS else None
