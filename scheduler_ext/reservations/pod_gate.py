"""Cotenant's scheduling gates: which pods have them, their removal, and which new pods wait for Reservations. Pure.

A new pod that matches an open Reservation waits for its capacity. The gate relies on the manager to remove it soon, so
it is set only while the manager reports that it runs (`servedUntil` of the SwapGuard). Otherwise, and for every other
pod, nothing happens: the pod is scheduled normally.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cotenant.base.kubernetes.pod_identity import PodIdentity, is_placeholder, toleration
from cotenant.base.kubernetes.protocol import GANG_GATE, QUOTA_GATE, RESERVATION_GATE
from cotenant.scheduler_ext.reservations.guard import is_promised
from cotenant.scheduler_ext.reservations.model.reservation import Mode, Reservation

Json = Mapping[str, Any]

OUR_GATES: Final = (RESERVATION_GATE, QUOTA_GATE, GANG_GATE)
_PREFIX: Final = f"{QUOTA_GATE.partition('/')[0]}/"
MISSPELT: Final = f"cotenant does not know this gate and never removes it; cotenant's gates are {', '.join(OUR_GATES)}"


@dataclass(frozen=True, slots=True)
class Offers:
    """Reservations that are open to owners, and the Unix time until which the manager promises to hand them over."""

    reservations: tuple[Reservation, ...] = ()
    served_until_seconds: float = 0.0
    by_label: Mapping[tuple[str, str] | None, tuple[Reservation, ...]] = field(default_factory=dict)
    """The Reservations by a label that their owners must have; None for owners that need none."""

    @classmethod
    def of(cls, reservations: Iterable[Reservation], served_until_seconds: float) -> Offers:
        """Return the offers of those Reservations that are open and of mode pinned: their owners get a gate."""
        open_reservations = [r for r in reservations if r.open_to_owners and r.mode(Mode.PINNED) is Mode.PINNED]
        places: dict[tuple[str, str] | None, list[Reservation]] = {}
        for reservation in open_reservations:
            for label in reservation.owner_labels:
                places.setdefault(label, []).append(reservation)
        return cls(
            tuple(open_reservations),
            served_until_seconds,
            {label: tuple(reservations) for label, reservations in places.items()},
        )

    def likely(self, labels: Mapping[str, str]) -> Iterator[Reservation]:
        """Yield the Reservations whose owner entries may match a pod with these labels."""
        for label in (None, *labels.items()):
            yield from self.by_label.get(label, ())


def add_reservation_gate(pod: Json, offers: Offers, namespace: str, now_seconds: float) -> Json:
    """Return the pod, with the gate of Reservations if one matches it and the manager promises to remove the gate."""
    promised = offers.reservations and is_promised(offers.served_until_seconds, now_seconds)
    if not promised or not may_be_gated(pod, namespace):
        return pod
    if any(gate.get("name") == RESERVATION_GATE for gate in pod["spec"].get("schedulingGates") or ()):
        return pod
    identity = PodIdentity.parse(pod, namespace)
    tolerations = [toleration(entry) for entry in pod["spec"].get("tolerations") or ()]
    if not any(r.usable_by(identity, tolerations) for r in offers.likely(identity.labels)):
        return pod
    gates = [*(pod["spec"].get("schedulingGates") or ()), {"name": RESERVATION_GATE}]
    return {**pod, "spec": {**pod["spec"], "schedulingGates": gates}}


def may_be_gated(pod: Json, namespace: str) -> bool:
    """Return whether a pod may get a gate: it has no node, belongs to no DaemonSet, and is no placeholder."""
    meta, spec = pod["metadata"], pod["spec"]
    if spec.get("nodeName") or is_placeholder(namespace, meta.get("labels") or {}):
        return False
    return all(owner.get("kind") != "DaemonSet" for owner in meta.get("ownerReferences") or ())


def misspelt(gates: Iterable[str]) -> tuple[str, ...]:
    """Return the gates that have cotenant's prefix but that cotenant does not know."""
    return tuple(gate for gate in gates if gate.startswith(_PREFIX) and gate not in OUR_GATES)


def gates_of(pod: Json) -> tuple[str, ...]:
    """Return the names of a pod's scheduling gates."""
    return tuple(str(gate.get("name") or "") for gate in (pod.get("spec") or {}).get("schedulingGates") or ())


def without_gate(gates: Sequence[str], version: str, *ended: str) -> list[Json]:
    """Return the JSON patch that removes the `ended` gates (default: that of Reservations) at this resourceVersion."""
    ended = ended or (RESERVATION_GATE,)
    remaining = [{"name": name} for name in gates if name not in ended]
    changed = len(remaining) < len(gates)
    ours = [{"op": "replace", "path": "/spec/schedulingGates", "value": remaining}] if changed else []
    return [{"op": "replace", "path": "/metadata/resourceVersion", "value": version}, *ours]
