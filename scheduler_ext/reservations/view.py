"""The inputs of the reservation controller: Reservations, placeholders, owners, waiting pods, the SwapGuard. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import msgspec

from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.kubernetes.moments import moment_of
from cotenant.base.kubernetes.observed import PodState
from cotenant.base.kubernetes.pod_identity import PodIdentity, Toleration, is_placeholder, toleration
from cotenant.base.kubernetes.pod_request import CPU
from cotenant.base.kubernetes.pod_wire import requests_of_pod
from cotenant.base.kubernetes.protocol import (
    ENDED_PHASES,
    RESERVATION_ALLOCATED_ANNOTATION,
    RESERVATION_GATE,
    RESERVATION_LABEL,
)
from cotenant.scheduler_ext.reservations.guard import Guard, ReservationSwap, SwapPlaceholder
from cotenant.scheduler_ext.reservations.model.reservation import Reservation

Json = Mapping[str, Any]

MISSED_ANNOTATION: Final = "cotenant.dev/reservation-missed"
"""Annotation of a pod that did not get its reserved capacity in time and does not try again."""


@dataclass(frozen=True, slots=True)
class PodView(PodState):
    """The fields of a pod that hand-overs use. `nominated` is the node that its status names as expected node, or "".

    `unschedulable` is the scheduler's message if it found no node, otherwise "".
    """

    identity: PodIdentity
    version: str = ""
    nominated: str = ""
    tolerations: tuple[Toleration, ...] = ()
    affinity: Json = field(default_factory=dict)
    unschedulable: str = ""

    @classmethod
    def parse(cls, pod: Json) -> PodView:
        """Parse those fields of a pod that decisions use; QuantityError names a pod whose requests are unreadable."""
        meta, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
        what = f"pod {meta.get('namespace')}/{meta.get('name')}"
        unplaced = (
            str(condition.get("message") or "no node fits")
            for condition in status.get("conditions") or ()
            if condition.get("type") == "PodScheduled" and condition.get("reason") == "Unschedulable"
        )
        return cls(
            PodIdentity.parse(pod),
            str(meta.get("resourceVersion") or ""),
            status.get("nominatedNodeName") or "",
            tuple(toleration(entry) for entry in spec.get("tolerations") or ()),
            spec.get("affinity") or {},
            next(unplaced, ""),
            node=spec.get("nodeName") or "",
            phase=status.get("phase") or "Pending",
            deleting=bool(meta.get("deletionTimestamp")),
            gates=tuple(gate.get("name") or "" for gate in spec.get("schedulingGates") or ()),
            requests=requests_of_pod(pod, what),
            priority=int(spec.get("priority") or 0),
            created_seconds=moment_of(meta.get("creationTimestamp"), what) or 0.0,
        )

    @property
    def uid(self) -> str:
        """The UID of the pod."""
        return self.identity.uid

    @property
    def place(self) -> str:
        """The pod's namespace/name."""
        return f"{self.identity.namespace}/{self.identity.name}"

    @property
    def alive(self) -> bool:
        """True if the pod has not ended and is not being deleted."""
        return not self.deleting and self.phase not in ENDED_PHASES

    @property
    def gated(self) -> bool:
        """True if cotenant's Reservation gate keeps the pod from being scheduled."""
        return RESERVATION_GATE in self.gates

    @property
    def is_placeholder(self) -> bool:
        """True if the pod is a placeholder of a Reservation."""
        return is_placeholder(self.identity.namespace, self.identity.labels)

    @property
    def reservation_uid(self) -> str:
        """UID of the Reservation to which a placeholder belongs; "" if there is none."""
        return next((c.uid for c in self.identity.controllers if c.kind == "Reservation"), "")

    @property
    def allocated_from(self) -> str:
        """UID of the Reservation whose capacity the pod has or will get; "" if there is none."""
        text = self.identity.annotations.get(RESERVATION_ALLOCATED_ANNOTATION)
        if not text or RESERVATION_LABEL not in self.identity.labels:
            return ""
        try:
            return str(msgspec.json.decode(text).get("uid") or "")
        except (AttributeError, *UNDECODABLE):
            return ""

    def as_placeholder(self) -> SwapPlaceholder:
        """Return the placeholder in the form in which a hand-over records it."""
        amounts = {name: amount for name, amount in self.requests.items() if amount or name == CPU}
        return SwapPlaceholder(self.identity.namespace, self.identity.name, self.uid, amounts)


@dataclass(frozen=True)
class ReservationView:
    """All inputs of one decision of the reservation controller.

    `pending` pods have no node; `reserved` pods have cotenant's label, placeholders as well as owners. `nodes` are
    names, None if unknown. `classes` are values by PriorityClass, and `new_classes` were just created. `settled` are
    hand-overs whose record every API server has, `noticed` the Unix time at which this process first saw each,
    `lingered` those whose owner was bound so long ago that every scheduler knows. `found` has the pods of nodes that a
    decision asked for. `standby` are running pods that serve as Reservations, each with that Reservation. `unreadable`
    are names of invalid Reservations. `unmade` has why an object of a Reservation could not be created, by address.
    """

    reservations: Mapping[str, Reservation] = field(default_factory=dict)
    guard: Guard = field(default_factory=Guard)
    pending: tuple[PodView, ...] = ()
    reserved: tuple[PodView, ...] = ()
    nodes: frozenset[str] | None = None
    classes: Mapping[str, int] = field(default_factory=dict)
    new_classes: frozenset[str] = frozenset()
    settled: frozenset[str] = frozenset()
    noticed: Mapping[str, float] = field(default_factory=dict)
    lingered: frozenset[str] = frozenset()
    found: Mapping[str, tuple[PodView, ...]] = field(default_factory=dict)
    standby: tuple[tuple[Reservation, PodView], ...] = ()
    unmade: Mapping[str, str] = field(default_factory=dict)
    unreadable: frozenset[str] = frozenset()
    now_seconds: float = 0.0

    @cached_property
    def pods(self) -> dict[str, PodView]:
        """The newest known version of each pod, by UID."""
        newest: dict[str, PodView] = {}
        for pod in (*self.pending, *self.reserved, *(pod for _, pod in self.standby)):
            latest = newest.get(pod.uid)
            if latest is None or _number(pod.version) >= _number(latest.version):
                newest[pod.uid] = pod
        return newest

    @cached_property
    def labelled(self) -> frozenset[str]:
        """UIDs of pods with cotenant's reservation label, which are watched also after they are bound."""
        return frozenset(pod.uid for pod in self.reserved)

    @cached_property
    def placeholders(self) -> dict[str, list[PodView]]:
        """Placeholders, including ended ones, by UID of their Reservation."""
        by_uid: dict[str, list[PodView]] = {}
        for pod in self.pods.values():
            if pod.is_placeholder:
                by_uid.setdefault(pod.reservation_uid, []).append(pod)
        return by_uid

    @cached_property
    def allocated(self) -> dict[str, list[PodView]]:
        """Bound pods that use reserved capacity and match an owner entry, by UID of the Reservation."""
        by_uid = {r.uid: r for r in self.reservations.values()}
        owners: dict[str, list[PodView]] = {}
        for pod in self.reserved:
            if pod.is_placeholder or not pod.node or pod.phase in ENDED_PHASES:
                continue
            reservation = by_uid.get(pod.allocated_from)
            if reservation is not None and reservation.owned_by(pod.identity):
                owners.setdefault(reservation.uid, []).append(pod)
        return owners

    @cached_property
    def nominations(self) -> frozenset[str]:
        """Nodes that some pending pod's status names as its expected node."""
        return frozenset(pod.nominated for pod in self.pending if pod.nominated)

    @cached_property
    def swaps(self) -> dict[str, ReservationSwap]:
        """The hand-overs under way, by UID of their Reservation."""
        return {swap.reservation_uid: swap for swap in self.guard.swaps}

    @cached_property
    def crowded(self) -> dict[str, int]:
        """The number of placeholders on each node."""
        return Counter(pod.node for pod in self.reserved if pod.is_placeholder and pod.node and pod.alive)

    def known(self, swap: ReservationSwap) -> Reservation | None:
        """Return the Reservation of a hand-over; None if it is gone or another one has its name now."""
        reservation = self.reservations.get(swap.reservation)
        if reservation is None:
            reservation = next((r for r, pod in self.standby if pod.uid == swap.reservation_uid), None)
        return reservation if reservation is not None and reservation.uid == swap.reservation_uid else None

    def stands(self, placeholder: SwapPlaceholder) -> bool:
        """Return whether a recorded placeholder still exists and takes up capacity."""
        pod = self.pods.get(placeholder.uid)
        return pod is not None and pod.phase not in ENDED_PHASES

    def named(self, name: str, reservation_uid: str) -> PodView | None:
        """Return the placeholder of a Reservation by its name, or None."""
        return next((p for p in self.placeholders.get(reservation_uid, ()) if p.identity.name == name), None)


def _number(version: str) -> int:
    return int(version) if version.isdigit() else 0
