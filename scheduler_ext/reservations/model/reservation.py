"""Koordinator's Reservation (scheduling.koordinator.sh/v1alpha1) as data types that are matched with pods.

Pure. The webhook checks whether a new pod waits for a Reservation, the extender for which pods a node reserves
capacity, and the controller what to do next. Semantics: koordinator-sh/koordinator `apis/scheduling/v1alpha1`,
`apis/extension/reservation.go`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import msgspec

from cotenant.base.errors import UsageError
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.kubernetes.moments import moment_of, seconds_of
from cotenant.base.kubernetes.pod_identity import (
    Condition,
    PodIdentity,
    Reference,
    Taint,
    Toleration,
    object_of,
    toleration,
)
from cotenant.base.kubernetes.pod_request import parse_quantities
from cotenant.base.kubernetes.pod_wire import requests_of
from cotenant.base.kubernetes.protocol import REQUIRED_TERMS, RESERVATION_AFFINITY_ANNOTATION, RESERVATION_IGNORED_LABEL
from cotenant.base.kubernetes.selector import LabelSelector, Operator
from cotenant.base.text import format_value
from cotenant.scheduler_ext.reservations.model.life_cycle import Phase

Json = Mapping[str, Any]

MODE_ANNOTATION: Final = "cotenant.dev/reservation-mode"
"""Annotation of a Reservation: `pinned` or `last-resort`, which overrides the setting."""
RESERVATION_OWNERS_ANNOTATION: Final = "scheduling.koordinator.sh/reservation-owners"
"""Annotation of a pod in operating mode Reservation: its owners as JSON."""
ORDER_LABEL: Final = "scheduling.koordinator.sh/reservation-order"
DEFAULT_TTL_SECONDS: Final = 86_400.0


class AllocatePolicy(StrEnum):
    """The right of an owner to use unreserved capacity of the node too: Aligned (also "") grants it, Restricted not."""

    DEFAULT = ""
    ALIGNED = "Aligned"
    RESTRICTED = "Restricted"


class Mode(StrEnum):
    """The way owner pods get reserved capacity: sent to the node with it, or by preemption if no other node fits."""

    PINNED = "pinned"
    LAST_RESORT = "last-resort"


@dataclass(frozen=True, slots=True)
class Owner:
    """One entry of a Reservation's `owners`. A pod must match every field that is set; an empty entry matches all.

    `namespace` is the only one whose pods match, whatever the entry says; None for any.
    """

    object: Reference | None = None
    controller: Reference | None = None
    selector: LabelSelector | None = None
    namespace: str | None = None

    def matches(self, pod: PodIdentity) -> bool:
        """Return whether the pod matches every field that is set in this owner entry."""
        return (
            self.namespace in (None, pod.namespace)
            and (self.object is None or _says(self.object, Reference("Pod", pod.name, "", pod.uid, "v1", True), pod))
            and (self.controller is None or any(_says(self.controller, c, pod) for c in pod.controllers))
            and (self.selector is None or self.selector.matches(pod.labels))
        )


@dataclass(frozen=True, slots=True)
class Affinity:
    """The annotation `reservation-affinity`: which Reservations a pod may use; `tolerations` are for their taints.

    A Reservation must have the `name` and all labels of `selector`, and match one of `terms`, as far as these are set.
    """

    name: str = ""
    selector: Mapping[str, str] = field(default_factory=dict)
    terms: tuple[LabelSelector, ...] = ()
    tolerations: tuple[Toleration, ...] = ()

    @property
    def required(self) -> bool:
        """True if the pod must use a Reservation; tolerations alone do not require one."""
        return bool(self.name or self.selector or self.terms)

    def matches(self, reservation: Reservation) -> bool:
        """Return whether the affinity allows the Reservation; the Reservation's own rules are not checked."""
        if self.name and self.name != reservation.name:
            return False
        if any(reservation.labels.get(key) != value for key, value in self.selector.items()):
            return False
        return not self.terms or any(term.matches(reservation.labels) for term in self.terms)


@dataclass(frozen=True, slots=True)
class ReservationStatus:
    """The status of a Reservation as the controller last wrote it."""

    phase: Phase = Phase.PENDING
    node: str = ""
    allocatable: Mapping[str, int] = field(default_factory=dict)
    allocated: Mapping[str, int] = field(default_factory=dict)
    owners: tuple[Reference, ...] = ()
    conditions: tuple[Condition, ...] = ()

    def condition(self, type_: str) -> Condition | None:
        """Return the condition of a type, or None."""
        return next((condition for condition in self.conditions if condition.type == type_), None)


@dataclass(frozen=True, slots=True)
class Reservation:
    """Capacity that is reserved on a node for pods that need not exist yet.

    `size` is the sum of the template's requests: cpu in millicores, other resources in their unit. A `ttl_seconds` of 0
    means forever. `template` is the pod template as written, {} if there is none.
    """

    name: str
    uid: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    created_seconds: float = 0.0
    deleting: bool = False
    version: str = ""
    generation: int = 0
    template: Json = field(default_factory=dict)
    size: Mapping[str, int] = field(default_factory=dict)
    owners: tuple[Owner, ...] = ()
    ttl_seconds: float = DEFAULT_TTL_SECONDS
    expires_seconds: float | None = None
    allocate_once: bool = True
    allocate_policy: AllocatePolicy = AllocatePolicy.ALIGNED
    unschedulable: bool = False
    pre_allocation: bool = False
    taints: tuple[Taint, ...] = ()
    status: ReservationStatus = ReservationStatus()

    @classmethod
    def parse(cls, body: Json) -> Reservation:
        """Parse a Reservation from JSON; raise UsageError or QuantityError that names the Reservation and the field."""
        meta, spec = body.get("metadata") or {}, body.get("spec") or {}
        name = str(meta.get("name") or "")
        what = f"reservation {name}"
        template = object_of(spec.get("template"), f"{what}: template")
        ttl = spec.get("ttl")
        return cls(
            name=name,
            uid=str(meta.get("uid") or ""),
            labels=meta.get("labels") or {},
            annotations=meta.get("annotations") or {},
            created_seconds=moment_of(meta.get("creationTimestamp"), what) or 0.0,
            deleting=bool(meta.get("deletionTimestamp")),
            version=str(meta.get("resourceVersion") or ""),
            generation=int(meta.get("generation") or 0),
            template=template,
            size={n: a for n, a in requests_of(object_of(template.get("spec"), what), what).items() if a},
            owners=tuple(_owner(owner, f"{what}: owners[{i}]") for i, owner in enumerate(spec.get("owners") or ())),
            ttl_seconds=DEFAULT_TTL_SECONDS if ttl is None else seconds_of(str(ttl), f"{what}: ttl"),
            expires_seconds=moment_of(spec.get("expires"), what),
            allocate_once=spec.get("allocateOnce") is not False,
            allocate_policy=_policy(spec.get("allocatePolicy"), what),
            unschedulable=bool(spec.get("unschedulable")),
            pre_allocation=bool(spec.get("preAllocation")),
            taints=tuple(Taint.parse(taint) for taint in spec.get("taints") or ()),
            status=_status(body.get("status") or {}, what),
        )

    @classmethod
    def of_pod(cls, pod: Json) -> Reservation:
        """Return the Reservation that a running pod represents, by its operating-mode label and owners' annotation.

        Its name is NAMESPACE.NAME and its uid the pod's; it is Available while the pod runs. Its owners are pods of its
        own namespace: who may create it there may hold and move no pod of another one. Raise UsageError or
        QuantityError if the annotation or a request is unreadable.
        """
        meta, spec, status = pod.get("metadata") or {}, pod.get("spec") or {}, pod.get("status") or {}
        what = f"pod {meta.get('namespace')}/{meta.get('name')}"
        try:
            text = (meta.get("annotations") or {}).get(RESERVATION_OWNERS_ANNOTATION) or "[]"
            owners = msgspec.json.decode(text, type=list[Any])
        except UNDECODABLE as error:
            raise UsageError(
                f"{what}: {RESERVATION_OWNERS_ANNOTATION}: {error}", fix="Write a JSON list of owners."
            ) from error
        runs = status.get("phase") == "Running" and not meta.get("deletionTimestamp")
        return cls(
            name=f"{meta.get('namespace')}.{meta.get('name')}",
            uid=str(meta.get("uid") or ""),
            labels=meta.get("labels") or {},
            created_seconds=moment_of(meta.get("creationTimestamp"), what) or 0.0,
            version=str(meta.get("resourceVersion") or ""),
            size={name: amount for name, amount in requests_of(spec, what).items() if amount},
            owners=tuple(_owner(o, f"{what}: owners[{i}]", meta.get("namespace")) for i, o in enumerate(owners)),
            ttl_seconds=0.0,
            status=ReservationStatus(Phase.AVAILABLE if runs else Phase.PENDING, spec.get("nodeName") or ""),
        )

    @property
    def namespace(self) -> str:
        """Namespace of the template's pods: that of its metadata, or `default`."""
        return str((self.template.get("metadata") or {}).get("namespace") or "default")

    @property
    def deadline_seconds(self) -> float | None:
        """Unix time at which the Reservation expires, None for never. `expires` takes precedence over `ttl`."""
        if self.expires_seconds is not None:
            return self.expires_seconds
        return self.created_seconds + self.ttl_seconds if self.ttl_seconds else None

    @property
    def order(self) -> int:
        """Order in which Reservations are used: the lowest number above zero comes first; 0 is unordered."""
        text = self.labels.get(ORDER_LABEL, "")
        return int(text) if text.isdigit() else 0

    def mode(self, default: Mode) -> Mode:
        """Return the hand-over mode of the Reservation's annotation, or the default."""
        word = self.annotations.get(MODE_ANNOTATION, "")
        return Mode(word) if word in list(Mode) else default

    def expired(self, now_seconds: float) -> bool:
        """Return whether the Reservation's deadline has passed."""
        return self.deadline_seconds is not None and now_seconds >= self.deadline_seconds

    def owned_by(self, pod: PodIdentity) -> bool:
        """Return whether one of the owner entries matches the pod; False without entries."""
        return any(owner.matches(pod) for owner in self.owners)

    def usable_by(self, pod: PodIdentity, tolerations: Sequence[Toleration] = ()) -> bool:
        """Return whether a pod may use the Reservation, regardless of its phase and its remaining capacity.

        An owner entry must match the pod; the pod must not ignore Reservations, its affinity must match the
        Reservation, and it must tolerate all taints.
        """
        if pod.labels.get(RESERVATION_IGNORED_LABEL) == "true" or not self.owned_by(pod):
            return False
        affinity = affinity_of(pod)
        return affinity.matches(self) and all(
            taint.tolerated((*tolerations, *affinity.tolerations)) for taint in self.taints
        )

    @property
    def owner_labels(self) -> frozenset[tuple[str, str] | None]:
        """Index keys: a label (key, value) that an owner entry requires of pods, None if it requires no single value.

        An owner entry that names one pod by uid has the key ("", uid), which no label can have.
        """
        labels: set[tuple[str, str] | None] = set()
        for owner in self.owners:
            if owner.object is not None and owner.object.uid:
                labels.add(("", owner.object.uid))
                continue
            required = owner.selector.requirements if owner.selector and owner.selector.requirements else ()
            single = [r for r in required if r.operator is Operator.IN and len(r.values) == 1]
            labels.add((single[0].key, min(single[0].values)) if single else None)
        return frozenset(labels)

    @property
    def open_to_owners(self) -> bool:
        """True if a further pod could use the Reservation: Available, schedulable, not being deleted, not used up."""
        if self.status.phase is not Phase.AVAILABLE or self.unschedulable or self.deleting:
            return False
        return not (self.allocate_once and self.status.owners)


def affinity_of(pod: PodIdentity) -> Affinity:
    """Return the reservation affinity of a pod's annotation; an unreadable one counts as none."""
    text = pod.annotations.get(RESERVATION_AFFINITY_ANNOTATION)
    if not text:
        return Affinity()
    try:
        affinity = msgspec.json.decode(text)
        terms = (affinity.get(REQUIRED_TERMS) or {}).get("reservationSelectorTerms") or ()
        return Affinity(
            str(affinity.get("name") or ""),
            {str(k): str(v) for k, v in (affinity.get("reservationSelector") or {}).items()},
            tuple(LabelSelector.parse({"matchExpressions": t.get("matchExpressions") or []}) for t in terms),
            tuple(toleration(entry) for entry in affinity.get("tolerations") or ()),
        )
    except (UsageError, AttributeError, TypeError, *UNDECODABLE):
        return Affinity()


def _policy(policy: Any, what: str) -> AllocatePolicy:
    if policy not in (None, *AllocatePolicy):
        raise UsageError(
            f"{what}: allocatePolicy {format_value(policy)} is unknown", fix="Write Aligned or Restricted."
        )
    return AllocatePolicy.RESTRICTED if policy == AllocatePolicy.RESTRICTED else AllocatePolicy.ALIGNED


def _owner(body: Any, what: str, namespace: str | None = None) -> Owner:
    entry = object_of(body, what)
    chosen = entry.get("labelSelector")
    reference, controller = entry.get("object"), entry.get("controller")
    return Owner(
        Reference.parse(reference) if reference is not None else None,
        Reference.parse(controller) if controller is not None else None,
        LabelSelector.parse(chosen, f"{what}.labelSelector") if chosen is not None else None,
        namespace,
    )


def _says(reference: Reference, has: Reference, pod: PodIdentity) -> bool:
    """Return whether every field of the reference that is set matches `has`, a pod or one of its controllers."""
    return (
        (not reference.uid or reference.uid == has.uid)
        and (not reference.name or reference.name == has.name)
        and (not reference.kind or reference.kind == has.kind)
        and (not reference.api_version or reference.api_version == has.api_version)
        and (not reference.namespace or reference.namespace == pod.namespace)
        and (not reference.controlling or has.controlling)
    )


def _status(body: Json, what: str) -> ReservationStatus:
    phase = body.get("phase")
    return ReservationStatus(
        Phase(phase) if phase in list(Phase) else Phase.PENDING,
        str(body.get("nodeName") or ""),
        parse_quantities(body.get("allocatable") or {}, what),
        parse_quantities(body.get("allocated") or {}, what),
        tuple(Reference.parse(owner) for owner in body.get("currentOwners") or ()),
        tuple(Condition.parse(condition) for condition in body.get("conditions") or ()),
    )
