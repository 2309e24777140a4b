"""The Reservation for the capacity of one gang member: its creation, state and deletion. Pure.

The Reservation controller gives it a placeholder, and hands the capacity over once the member's gang gate is removed
(`scheduler_ext.reservations`). A Reservation is cluster-scoped, so no pod can own it for garbage collection: the gang
controller deletes it, and if that fails its time to live ends it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

from cotenant.base.kubernetes.intent import Address, Create
from cotenant.base.kubernetes.pod_request import format_quantities
from cotenant.base.kubernetes.protocol import GANG_LABEL, SCHEDULING_GROUP
from cotenant.scheduler_ext.queues.model.gang import Gang
from cotenant.scheduler_ext.queues.model.queue_pod import Placement, QueuePod
from cotenant.scheduler_ext.queues.model.settings import QueueSettings
from cotenant.scheduler_ext.reservations.guard import MANAGED
from cotenant.scheduler_ext.reservations.model.life_cycle import Phase
from cotenant.scheduler_ext.reservations.model.reservation import MODE_ANNOTATION, Mode, Reservation
from cotenant.scheduler_ext.reservations.placeholder import fresh_name, label_of
from cotenant.scheduler_ext.reservations.status import READY, SCHEDULED

GANG_ANNOTATION: Final = GANG_LABEL
"""Annotation of a gang's Reservation: the full "namespace/name" of the gang."""
SPARE_SECONDS: Final = 600.0
"""A Reservation outlives the time for placing by this time, because hand-overs on one node take turns."""
_NAME_LENGTH: Final = 200


def member_reservation_creation(pod: QueuePod, gang: Gang, settings: QueueSettings) -> Create:
    """Return the creation of a Reservation for one member: its requests, on nodes where it may run."""
    # the one name for this very pod, so that a second write makes no second Reservation
    digest = hashlib.sha256(pod.uid.encode()).hexdigest()[:12]
    name = f"gang-{pod.namespace}-{pod.name}"[:_NAME_LENGTH].rstrip(".-") + f"-{digest}"
    address = Address(SCHEDULING_GROUP, "reservations", name)
    metadata = {
        "labels": MANAGED | {GANG_LABEL: label_of(gang.name)},
        "annotations": {GANG_ANNOTATION: gang.key, MODE_ANNOTATION: Mode.PINNED.value},
    }
    owner = {"apiVersion": "v1", "kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": pod.uid}
    placement = pod.placement or Placement()
    requests = format_quantities({name: amount for name, amount in pod.requests.items() if amount > 0})
    tolerations = [
        {name: text for name in ("key", "operator", "value", "effect") if (text := getattr(toleration, name))}
        for toleration in placement.tolerations
    ]
    optional = {
        "nodeSelector": dict(placement.node_selector),
        "affinity": dict(placement.affinity),
        "tolerations": tolerations,
    }
    containers = [{"name": "member", "image": "member", "resources": {"requests": requests}}]
    template = {"containers": containers} | {name: value for name, value in optional.items() if value}
    spec = {
        "template": {"metadata": {"namespace": pod.namespace}, "spec": template},
        "owners": [{"object": owner}],
        "allocateOnce": True,
        "ttl": f"{int(settings.gang_place_seconds + SPARE_SECONDS)}s",
    }
    body = address.manifest("Reservation", metadata, spec=spec)
    return Create(address, body, why=f"place gang {gang.key} as a whole", asker=asker_of(pod, gang))


def asker_of(pod: QueuePod, gang: Gang) -> str:
    """Return the object that gets an Event if a member gets no capacity: the gang's PodGroup, or the pod."""
    return f"podgroups/{gang.key}" if gang.from_pod_group else f"pods/{pod.place}"


def member_uid(reservation: Reservation) -> str:
    """Return the UID of the pod for which the Reservation was created."""
    references = (owner.object for owner in reservation.owners)
    return next((reference.uid for reference in references if reference is not None), "")


def has_reserved_capacity(reservation: Reservation) -> bool:
    """Return whether the member's capacity is reserved now; False if it was lost and is being requested again."""
    if reservation.status.phase is not Phase.AVAILABLE or reservation.deleting:
        return False
    ready = reservation.status.condition(READY)
    return ready is None or ready.status == "True"


def refusal(reservation: Reservation) -> str:
    """Return the scheduler's message why the capacity cannot be reserved; "" while this is undecided."""
    if reservation.status.phase is Phase.FAILED:
        return f"reservation {reservation.name} expired unused"
    if reservation.status.phase is Phase.AVAILABLE:
        return ""
    scheduled = reservation.status.condition(SCHEDULED)
    return scheduled.message or scheduled.reason if scheduled is not None and scheduled.status == "False" else ""


def has_bound_placeholder(reservation: Reservation, placeholders: frozenset[str]) -> bool:
    """Return whether a placeholder pod of the Reservation has a node; `placeholders` is from `placeholder_stems`."""
    return fresh_name(reservation, ()).rpartition("-")[0] in placeholders


def placeholder_stems(pods: Iterable[QueuePod]) -> frozenset[str]:
    """Return the names, without their trailing number, of the placeholder pods that have a node."""
    return frozenset(pod.name.rpartition("-")[0] for pod in pods if pod.placeholder and pod.node and not pod.deleting)
