"""A pod as queues see it: its requests, its quota and gang, and the gates that keep it waiting. Pure."""

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
    """Return the sub-priority in the label koordinator.sh/priority; 0 if it is absent or no number."""
    try:
        return int(labels.get(SUB_PRIORITY_LABEL, "0"))
    except ValueError:
        return 0


@dataclass(frozen=True, slots=True)
class Placement:
    """The constraints that limit on which nodes a pod may run: node selector, affinity as written, tolerations."""

    node_selector: Mapping[str, str] = field(default_factory=dict)
    affinity: Mapping[str, Any] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()


@dataclass(frozen=True, slots=True)
class QueuePod(PodState):
    """A pod that has not ended, with the fields that queues need; times are Unix seconds.

    `version` is the resourceVersion that patches test. `quota` is the name of the pod's quota, `gang` the
    "namespace/name" of its gang, "" for none. `declared_gang` is the gang that its annotations define,
    `scheduling_group` the Kubernetes PodGroup that it names, and `owner_uid` the UID of a gang member's controller. A
    `placeholder` only reserves capacity. A `missed` pod was not gated at its creation, so that it counts as used and is
    never evicted for its quota. A pod that was `handed_over` got reserved capacity (annotation reservation-allocated).
    `preempts` says whether its preemptionPolicy allows preemption. A pod that `ends` does so by itself (restartPolicy
    is not Always), at most `deadline_seconds` after its start. `gone_by_seconds` is the end of the grace period of its
    deletion. `placement` is None once the pod has a node. `identity` is kept only while a pod without a gang has a
    Reservation's gate.
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
        """The pod's namespace/name."""
        return f"{self.namespace}/{self.name}"

    def is_ending(self, now_seconds: float) -> bool:
        """Return whether the pod is being deleted and within its grace period; after that period it may never end."""
        return self.deleting and not outlasts_its_end(self.gone_by_seconds, now_seconds)

    @property
    def waits_for_quota(self) -> bool:
        """True if cotenant's quota gate keeps the pod waiting."""
        return QUOTA_GATE in self.gates

    @property
    def waits_for_gang(self) -> bool:
        """True if cotenant's gang gate keeps the pod waiting."""
        return GANG_GATE in self.gates

    def gate_removal(self, why: str, *gates: str) -> Patch:
        """Return the patch that removes these gates; it is refused if the pod has changed since it was read."""
        address = Address("v1", "pods", self.name, self.namespace)
        return Patch(address, tuple(without_gate(self.gates, self.version, *gates)), why=why)
