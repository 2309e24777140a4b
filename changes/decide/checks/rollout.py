"""Progress of a rollout: how far a workload's controller has brought the pods to its template, by the status. Pure.

A controller omits counts of zero from its status. Until it has read the object's present version the counts are
outdated, and before its first status there are none; neither means zero.

Source: Kubernetes API reference, DeploymentStatus, StatefulSetStatus, DaemonSetStatus, ReplicaSetStatus (apps/v1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

Json = Mapping[str, Any]

_COUNTS: Final = {
    "Deployment": ("readyReplicas", "updatedReplicas"),
    "StatefulSet": ("readyReplicas", "updatedReplicas"),
    "DaemonSet": ("numberReady", "updatedNumberScheduled"),
    "ReplicaSet": ("readyReplicas", ""),
    "ReplicationController": ("readyReplicas", ""),
}
"""Status fields by kind with the number of ready pods and of pods of the present template; "" if there is none."""
_ALWAYS_WRITTEN: Final = {"DaemonSet": ("desiredNumberScheduled", "numberReady")}
"""Counts that a controller writes even if they are zero."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """The numbers of a workload's pods: desired, ready, and `updated`, which have the present template.

    `updated` is None if the controller does not count it. `awaited` is the number of pods that will get the template;
    `still` says why other pods keep an older one. `stuck` is the controller's message if it has given up; `unread` says
    why the counts are not usable.
    """

    desired: int
    ready: int
    updated: int | None
    awaited: int
    still: str = ""
    stuck: str = ""
    unread: str = ""

    @property
    def behind(self) -> int:
        """Number of pods that the controller still has to create from the template; 0 if it does not count them."""
        return 0 if self.updated is None else max(0, self.awaited - self.updated)

    @property
    def unready(self) -> int:
        """Number of pods that are not ready."""
        return max(0, self.desired - self.ready)

    @property
    def readiness(self) -> str:
        """The number of ready replicas as a clause, such as "1 of 3 replicas is ready"."""
        return f"{self.ready} of {self.desired} replicas {'is' if self.ready == 1 else 'are'} ready"


def rollout_of(live: Json, kind: str) -> Rollout | None:
    """Return the rollout of a live workload; None for a kind without replicas, such as a CronJob."""
    if kind not in _COUNTS:
        return None
    spec, status = live.get("spec") or {}, live.get("status") or {}
    ready, updated = (int(status.get(name) or 0) if name else None for name in _COUNTS[kind])
    wanted_count = status.get("desiredNumberScheduled") if kind == "DaemonSet" else spec.get("replicas", 1)
    desired, strategy = int(wanted_count or 0), spec.get("updateStrategy") or {}
    # Why the controller replaces no pod when the template changes; "" where it replaces them.
    if kind in ("ReplicaSet", "ReplicationController"):
        still = f"a {kind} does not replace its pods"
    elif kind == "Deployment":
        still = "the Deployment is paused" if spec.get("paused") else ""
    else:
        still = "the workload's update strategy is OnDelete" if strategy.get("type") == "OnDelete" else ""
    # How many of a StatefulSet's first pods keep the template that they have.
    rolling = strategy.get("rollingUpdate") or {}
    partition = int(rolling.get("partition") or 0) if kind == "StatefulSet" else 0
    stuck = ""
    for condition in status.get("conditions") or ():
        if condition.get("type") == "Progressing" and condition.get("reason") == "ProgressDeadlineExceeded":
            stuck = stuck or str(condition.get("message") or "the rollout has passed its progress deadline")
    if int(status.get("observedGeneration") or 0) < int((live.get("metadata") or {}).get("generation") or 0):
        unread = "the workload's controller has not observed the present template yet"
    elif any(status.get(name) is None for name in _ALWAYS_WRITTEN.get(kind, ())):
        unread = "the workload's controller has not reported pods yet"
    else:
        unread = ""
    return Rollout(
        desired=desired,
        ready=ready or 0,
        updated=updated,
        awaited=0 if still else max(0, desired - partition),
        still=still or (f"the partition of the workload's update strategy is {partition}" if partition else ""),
        stuck=stuck,
        unread=unread,
    )
