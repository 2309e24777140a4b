"""Which new pods wait for reserved capacity: those that an open Reservation names get a scheduling gate. Pure.

The gate is a promise that the manager lifts it soon, so it is given only while the manager says that it is there
(`servedUntil` of the SwapGuard). Without it, and for every other pod, nothing happens: the pod is scheduled normally.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from cotenant.base.kubernetes.pod_identity import PodIdentity, toleration
from cotenant.base.kubernetes.protocol import PLACEHOLDER_LABEL, RESERVATION_GATE
from cotenant.scheduler_ext.reservations.guard import is_promised
from cotenant.scheduler_ext.reservations.model.reservation import Mode, Reservation

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Offers:
    """Reservations that are open to owners, and until when (Unix time) the manager promises to hand them over."""

    reservations: tuple[Reservation, ...] = ()
    served_until_seconds: float = 0.0
    by_label: Mapping[tuple[str, str] | None, tuple[Reservation, ...]] = field(default_factory=dict)
    """By a label that owners must have; None: owners that need none."""

    @classmethod
    def of(cls, reservations: Iterable[Reservation], served_until_seconds: float) -> Offers:
        """Return the offers of the Reservations that are open and whose owners wait for them."""
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
        """Yield the Reservations whose owners may have these labels."""
        for label in (None, *labels.items()):
            yield from self.by_label.get(label, ())


def add_reservation_gate(pod: Json, offers: Offers, namespace: str, now_seconds: float) -> Json:
    """The pod with our gate when a Reservation waits for it; the same pod otherwise.

    pod: a pod that is being created; its spec may be written on.
    """
    if not offers.reservations or not is_promised(offers.served_until_seconds, now_seconds) or not may_be_gated(pod):
        return pod
    if any(gate.get("name") == RESERVATION_GATE for gate in pod["spec"].get("schedulingGates") or ()):
        return pod
    identity = PodIdentity.parse(pod, namespace)
    tolerations = [toleration(entry) for entry in pod["spec"].get("tolerations") or ()]
    if not any(r.usable_by(identity, tolerations) for r in offers.likely(identity.labels)):
        return pod
    gates = [*(pod["spec"].get("schedulingGates") or ()), {"name": RESERVATION_GATE}]
    return {**pod, "spec": {**pod["spec"], "schedulingGates": gates}}


def may_be_gated(pod: Json) -> bool:
    """Not a pod that has its node, that a DaemonSet places, or that only holds capacity."""
    meta, spec = pod["metadata"], pod["spec"]
    if spec.get("nodeName") or PLACEHOLDER_LABEL in (meta.get("labels") or {}):
        return False
    return all(owner.get("kind") != "DaemonSet" for owner in meta.get("ownerReferences") or ())
