"""Follows each pod's owners to the top by kube-state-metrics' series, and names the missing link if there is one. Pure.

A series that names no owner is an answer: the object has none. No series at all is no answer: then the next link is
taken from a name or label that only one owner can have written, or it is unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cotenant.base.identity import WorkloadRef
from cotenant.base.kubernetes.owners import MOST_LINKS, owner_by_name

Key = tuple[str, str]
"""(namespace, name)."""
Series = Mapping[str, Sequence[Mapping[str, str]]]

POD_OWNER: Final = "kube_pod_owner"
LINKS: Final[Mapping[str, tuple[str, str]]] = {
    "ReplicaSet": ("kube_replicaset_owner", "replicaset"),
    "ReplicationController": ("kube_replicationcontroller_owner", "replicationcontroller"),
    "Job": ("kube_job_owner", "job_name"),
}
"""Kind that has owners -> the metric that names them, and the label with its own name."""
TEMPLATE_HASH: Final = "label_pod_template_hash"
DEPLOYMENT_CONFIG: Final = "label_deploymentconfig"
"""Labels of pods as kube-state-metrics writes them, if it is configured to export them."""


@dataclass(frozen=True, slots=True)
class Chains:
    """The topmost known owner of each pod, (namespace, pod), and pods for which a further owner is unknown.

    `missing` maps those pods to the metric that lacks a series; `direct` maps pods to their direct owner.
    """

    owner: Mapping[Key, WorkloadRef]
    missing: Mapping[Key, str]
    direct: Mapping[Key, WorkloadRef]

    @property
    def unowned(self) -> frozenset[Key]:
        """Pods whose direct owner is unknown."""
        return frozenset(key for key, metric in self.missing.items() if metric == POD_OWNER)

    def notes(self) -> Iterable[str]:
        """Yield a note for each metric that lacks series of owners, with the number of pods that this concerns."""
        for metric in sorted(set(self.missing.values())):
            pods = sorted(key for key, lacking in self.missing.items() if lacking == metric)
            first = "/".join(pods[0])
            whose = (
                "the pods themselves"
                if metric == POD_OWNER
                else f"the {next(kind for kind, (name, _) in LINKS.items() if name == metric)}s that own them"
            )
            yield (
                f"the owners of {len(pods)} pods (such as {first}) are not known up to the workload: {metric} has no "
                f"series of {whose}; nothing is proposed for these pods or the workloads that they may belong to"
            )


def chains(
    series: Series, pods: Collection[Key], labels: Mapping[Key, Mapping[str, str]], listed: Iterable[WorkloadRef]
) -> Chains:
    """Return the owner chains of these pods; `labels` are from kube_pod_labels, `listed` the existing controllers."""
    # The direct owner of each pod of which any series tells; None = it has none.
    direct: dict[Key, WorkloadRef | None] = {}
    for x in series[POD_OWNER]:
        key = (x.get("namespace", ""), x.get("pod", ""))
        direct[key] = _owner_of(x) or direct.get(key)
    creators = [x for x in series["kube_pod_info"] if "created_by_kind" in x]
    for x in series["kube_pod_info"] if creators else ():
        key = (x.get("namespace", ""), x.get("pod", ""))
        if key not in direct:
            direct[key] = _owner_ref(key[0], x.get("created_by_kind", ""), x.get("created_by_name", ""))
    # The owner of each workload that can have one, such as a ReplicaSet's Deployment; None: it has none.
    above: dict[WorkloadRef, WorkloadRef | None] = {}
    for kind, (metric, label) in LINKS.items():
        for x in series[metric]:
            ref = WorkloadRef(x.get("namespace", ""), kind, x.get(label, ""))
            above[ref] = _owner_of(x) or above.get(ref)
    known_refs = frozenset(listed) | {ref for ref in above.values() if ref}
    owner: dict[Key, WorkloadRef] = {}
    missing: dict[Key, str] = {}
    for key in pods:
        owner[key], lacking = _top(key, direct, above, known_refs, labels.get(key, {}))
        if lacking:
            missing[key] = lacking
    return Chains(owner, missing, {key: ref for key, ref in direct.items() if ref})


def _top(
    pod: Key,
    direct: Mapping[Key, WorkloadRef | None],
    above: Mapping[WorkloadRef, WorkloadRef | None],
    known_refs: Collection[WorkloadRef],
    labels: Mapping[str, str],
) -> tuple[WorkloadRef, str]:
    """Return the topmost owner, and the metric that lacks the link above it; "" if no link is missing."""
    ref = WorkloadRef(pod[0], "Pod", pod[1])
    for _ in range(MOST_LINKS):
        if ref.kind == "Pod":
            key = (ref.namespace, ref.name)
            if key not in direct:
                return ref, POD_OWNER
            upper = direct[key]
        elif ref in above:
            upper = above[ref]
        elif ref.kind in LINKS:
            upper = owner_by_name(ref, labels.get(TEMPLATE_HASH, ""), labels.get(DEPLOYMENT_CONFIG, ""), known_refs)
            if upper is None:
                return ref, LINKS[ref.kind][0]
        else:
            return ref, ""
        if upper is None:
            return ref, ""
        ref = upper
    return ref, ""


def _owner_of(labels: Mapping[str, str]) -> WorkloadRef | None:
    if labels.get("owner_is_controller") == "false":
        return None
    return _owner_ref(labels.get("namespace", ""), labels.get("owner_kind", ""), labels.get("owner_name", ""))


def _owner_ref(namespace: str, kind: str, name: str) -> WorkloadRef | None:
    """Return the owner; None for a static pod, whose owner is its node."""
    nobody = kind in ("", "<none>", "Node") or name in ("", "<none>")
    return None if nobody else WorkloadRef(namespace, kind, name)
