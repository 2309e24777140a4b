"""The Reservation for a moved pod's capacity on another node: its creation, check and deletion. Pure.

Each job's Reservation has a fixed name, so that a repeated write creates no second one. The job owns it, so that
Kubernetes deletes both together. It expires, so that capacity is not reserved forever if nobody deletes it.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from cotenant.base.json_documents.struct_validation import merge_objects
from cotenant.base.kubernetes.intent import Address, Create, Delete
from cotenant.base.kubernetes.pod_request import format_quantities
from cotenant.base.kubernetes.protocol import MIGRATION_LABEL, PREFERRED_TERMS, REQUIRED_TERMS, SCHEDULING_GROUP
from cotenant.scheduler_ext.rebalance.load import RebalancePod
from cotenant.scheduler_ext.rebalance.migration.job import KIND, MigrationJob
from cotenant.scheduler_ext.reservations.guard import MANAGED
from cotenant.scheduler_ext.reservations.model.life_cycle import Phase
from cotenant.scheduler_ext.reservations.model.reservation import MODE_ANNOTATION, Mode, Reservation
from cotenant.scheduler_ext.reservations.placeholder import label_of
from cotenant.scheduler_ext.reservations.status import READY, SCHEDULED, address_of

Json = Mapping[str, Any]

SPARE_SECONDS: Final = 60.0  # a Reservation outlives its job's time by so much: the job's end comes first, and says why
LONGEST_SECONDS: Final = 86_400.0  # the capacity of a job without an end is given back after a day
_NODE_NAME: Final = "metadata.name"


def job_reservation_name(job: MigrationJob) -> str:
    """Return the name of the job's Reservation: that of its reservationRef, or a name made from the job."""
    return job.reservation_ref or f"migration-{job.uid}"


def successor_reservation_creation(job: MigrationJob, pod: RebalancePod, left_seconds: float) -> Create:
    """Return the creation of a Reservation for the pod's successor, which the controller creates in its place.

    The pod must have a controller. The capacity is on any node except the pod's own, or on the job's target. The
    Reservation lives a little longer than `left_seconds`, the time until the job's deadline. An invalid template in the
    job raises AttributeError, KeyError, TypeError or ValueError.
    """
    identity = pod.facts.identity
    controller = next(owner for owner in identity.controllers if owner.controlling)
    own: dict[str, Any] = {
        "template": {"metadata": {"namespace": identity.namespace}, "spec": _pod_template(pod)},
        "owners": [
            {
                "controller": {
                    "apiVersion": controller.api_version,
                    "kind": controller.kind,
                    "name": controller.name,
                    "namespace": identity.namespace,
                    "uid": controller.uid,
                    "controller": True,
                }
            }
        ],
        "ttl": f"{math.ceil(min(left_seconds + SPARE_SECONDS, LONGEST_SECONDS))}s",
    }
    spec = merge_objects(own, job.reservation_template.get("spec") or {}) | {"allocateOnce": True}
    # The required node affinity of the template is narrowed to the target, or away from the source.
    template = spec["template"]["spec"]
    values = [job.target or pod.facts.node]
    place = {"key": _NODE_NAME, "operator": "In" if job.target else "NotIn", "values": values}
    affinity = copy.deepcopy(dict(template.get("affinity") or {}))
    nodes = affinity.setdefault("nodeAffinity", {})
    terms = (nodes.get(REQUIRED_TERMS) or {}).get("nodeSelectorTerms") or [{}]
    for term in terms:
        term["matchFields"] = [*(term.get("matchFields") or ()), place]
    nodes[REQUIRED_TERMS] = {"nodeSelectorTerms": terms}
    spec["template"]["spec"] = {**template, "affinity": affinity}
    owner = {"apiVersion": SCHEDULING_GROUP, "kind": KIND, "name": job.name, "uid": job.uid, "controller": True}
    metadata = {
        "labels": MANAGED | {MIGRATION_LABEL: label_of(job.name)},
        "annotations": {MODE_ANNOTATION: Mode.PINNED.value},
        "ownerReferences": [owner],
    }
    address = Address(SCHEDULING_GROUP, "reservations", job_reservation_name(job))
    body, why = address.manifest("Reservation", metadata, spec=spec), f"reserve capacity to move pod {pod.key}"
    return Create(address, body, why=why, asker=f"podmigrationjobs/{job.name}")


def is_capacity_reserved(reservation: Reservation) -> bool:
    """Return whether the Reservation has capacity that no pod uses yet."""
    if not reservation.open_to_owners:
        return False
    ready = reservation.status.condition(READY)
    return ready is None or ready.status == "True"


def refusal(reservation: Reservation) -> str:
    """Return the scheduler's message why no node has the capacity; "" while this is undecided."""
    scheduled = reservation.status.condition(SCHEDULED)
    if reservation.status.phase is not Phase.PENDING or scheduled is None or scheduled.status != "False":
        return ""
    return scheduled.message or scheduled.reason


def release_reservations(reservations: Iterable[Reservation], jobs: Iterable[MigrationJob]) -> Iterator[Delete]:
    """Yield the deletion of the Reservation of every job that has ended or was deleted."""
    open_rooms = {job_reservation_name(job) for job in jobs if not job.status.phase.ended}
    for reservation in reservations:
        over = reservation.status.phase.ended or reservation.deleting
        if MIGRATION_LABEL in reservation.labels and reservation.name not in open_rooms and not over:
            yield Delete(address_of(reservation), reservation.uid, "the move that needed this reservation has ended")


def _pod_template(pod: RebalancePod) -> dict[str, Any]:
    """Return the pod's requests and constraints on nodes, without what an earlier hand-over added to its affinity."""
    requests = format_quantities({name: amount for name, amount in pod.facts.requests.items() if amount > 0})
    constraints = copy.deepcopy(dict(pod.constraints()))
    nodes = (constraints.get("affinity") or {}).get("nodeAffinity") or {}
    for term in (nodes.get(REQUIRED_TERMS) or {}).get("nodeSelectorTerms") or ():
        _forget_node(term)
    if PREFERRED_TERMS in nodes:
        for entry in nodes[PREFERRED_TERMS] or ():
            _forget_node(entry.get("preference") or {})
        nodes[PREFERRED_TERMS] = [entry for entry in nodes[PREFERRED_TERMS] or () if entry.get("preference")]
    return {"containers": [{"name": "moved", "image": "moved", "resources": {"requests": requests}}], **constraints}


def _forget_node(term: dict[str, Any]) -> None:
    fields = [expression for expression in term.pop("matchFields", None) or () if expression.get("key") != _NODE_NAME]
    if fields:
        term["matchFields"] = fields
