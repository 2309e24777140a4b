"""A pod as queues see it: what it requests, which quota and gang it belongs to, which gates hold it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cotenant.base.kubernetes.intent import Address, Patch
from cotenant.base.kubernetes.observed import PodState, outlasts_its_end
from cotenant.base.kubernetes.pod_identity import PodIdentity, Toleration
from cotenant.base.kubernetes.protocol import GANG_GATE, QUOTA_GATE, SUB_PRIORITY_LABEL
from cotenant.scheduler_ext.queues.model.gang import Gang
from cotenant.scheduler_ext.reservations.pod_gate import without_gate


def sub_priority(labels: Mapping[str, str]) -> int:
    """Return the sub-priority in the label koordinator.sh/priority; 0 without the label, or when it is not a number."""
    try:
        return int(labels.get(SUB_PRIORITY_LABEL, "0"))
    except ValueError:
        return 0


@dataclass(frozen=True, slots=True)
class Placement:
    """The constraints on the node of a pod that has none: node selector, affinity as written, tolerations."""

    node_selector: Mapping[str, str] = field(default_factory=dict)
    affinity: Mapping[str, Any] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()


@dataclass(frozen=True, slots=True)
class QueuePod(PodState):
    """A pod that has not ended.

    version: resourceVersion, which patches test. quota: name of its quota, "" for none. gang: "namespace/name" of its
    gang, "" for none. placement: only while it has no node. placeholder: it only reserves capacity. missed: not gated
    at its creation; it counts as used and is never given back for that. declared_gang: its gang as its annotations say.
    handed_over: it was given reserved capacity (annotation reservation-allocated). scheduling_group: Kubernetes' own
    PodGroup that it names, as its gang. preempts: it may take capacity from pods of lower priority (preemptionPolicy).
    started_seconds: Unix time. ends: it does so by itself (its restartPolicy is not Always), after deadline_seconds at
    the latest where it has one. gone_by_seconds: Unix time at which the grace period of its deletion ends. owner_uid:
    of the owner that manages a member of a gang. identity: by what Reservations choose it, while the gate of theirs
    keeps a pod of no gang.
    """

    namespace: str
    name: str
    uid: str
    version: str = ""
    sub_priority: int = 0
    preemptible: bool = True
    quota: str = ""
    gang: str = ""
    placeholder: bool = False
    placement: Placement | None = None
    missed: bool = False
    declared_gang: Gang | None = None
    handed_over: bool = False
    scheduling_group: str = ""
    preempts: bool = True
    started_seconds: float | None = None
    deadline_seconds: float | None = None
    ends: bool = False
    gone_by_seconds: float | None = None
    owner_uid: str = ""
    identity: PodIdentity | None = None

    @property
    def place(self) -> str:
        """Return namespace/name of the object."""
        return f"{self.namespace}/{self.name}"

    def is_ending(self, now_seconds: float) -> bool:
        """Return whether the pod is being deleted and will be gone; one that outlasts its grace period may never be."""
        return self.deleting and not outlasts_its_end(self.gone_by_seconds, now_seconds)

    @property
    def waits_for_quota(self) -> bool:
        """True if our quota gate keeps the pod waiting."""
        return QUOTA_GATE in self.gates

    @property
    def waits_for_gang(self) -> bool:
        """True if our gang gate keeps the pod waiting."""
        return GANG_GATE in self.gates

    def gate_removal(self, why: str, *gates: str) -> Patch:
        """Return the write that ends these gates; refused when the pod has changed since it was read."""
        address = Address("v1", "pods", self.name, self.namespace)
        return Patch(address, tuple(without_gate(self.gates, self.version, *gates)), why=why)
