"""Progress of a workload's controller in bringing its pods to the present template, by the status that it writes. Pure.

A controller leaves counts of zero out of its status; before it has read the object's present version its counts are
those of another one, and before its first status there are none. Neither is a zero.

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
"""Where each kind counts the ready pods and those of the present template; "" where it does not count these."""
_ALWAYS_WRITTEN: Final = {"DaemonSet": ("desiredNumberScheduled", "numberReady")}
"""Counts that a controller writes also when they are zero."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """Pods of a workload: how many it wants, how many are ready, how many are of its present template.

    updated: None where the controller does not count these; awaited: how many of them its controller makes by itself;
    still: why that is not all of them, "" where it is; stuck: the controller's words when it has given up, "" while it
    has not; unread: why the counts cannot be used, "" when they can.
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
        """Number of pods of the present template that the controller still has to make."""
        return 0 if self.updated is None else max(0, self.awaited - self.updated)

    @property
    def unready(self) -> int:
        """Number of pods that are not ready."""
        return max(0, self.desired - self.ready)

    @property
    def readiness(self) -> str:
        """Say the number of pods that are ready, in a clause such as "1 of 3 replicas is ready"."""
        return f"{self.ready} of {self.desired} replicas {'is' if self.ready == 1 else 'are'} ready"


def rollout_of(live: Json, kind: str) -> Rollout | None:
    """The rollout of a workload's live object; None for a kind that has no replicas, such as a CronJob."""
    if kind not in _COUNTS:
        return None
    spec, status = live.get("spec") or {}, live.get("status") or {}
    ready, updated = (int(status.get(name) or 0) if name else None for name in _COUNTS[kind])
    wanted = status.get("desiredNumberScheduled") if kind == "DaemonSet" else spec.get("replicas", 1)
    desired, strategy = int(wanted or 0), spec.get("updateStrategy") or {}
    # Why the controller replaces no pod when the template changes; "" where it replaces them.
    if kind in ("ReplicaSet", "ReplicationController"):
        still = f"a {kind} replaces no pod"
    elif kind == "Deployment":
        still = "it is paused" if spec.get("paused") else ""
    else:
        still = "its update strategy is OnDelete" if strategy.get("type") == "OnDelete" else ""
    # How many of a StatefulSet's first pods keep the template that they have.
    rolling = strategy.get("rollingUpdate") or {}
    partition = int(rolling.get("partition") or 0) if kind == "StatefulSet" else 0
    stuck = ""
    for condition in status.get("conditions") or ():
        if condition.get("type") == "Progressing" and condition.get("reason") == "ProgressDeadlineExceeded":
            stuck = stuck or str(condition.get("message") or "it has passed its progress deadline")
    if int(status.get("observedGeneration") or 0) < int((live.get("metadata") or {}).get("generation") or 0):
        unread = "its controller has not observed its present template yet"
    elif any(status.get(name) is None for name in _ALWAYS_WRITTEN.get(kind, ())):
        unread = "its controller has not reported its pods yet"
    else:
        unread = ""
    return Rollout(
        desired=desired,
        ready=ready or 0,
        updated=updated,
        awaited=0 if still else max(0, desired - partition),
        still=still or (f"its partition is {partition}" if partition else ""),
        stuck=stuck,
        unread=unread,
    )
