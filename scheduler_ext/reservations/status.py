"""The status of a Reservation in Koordinator's form: phase, node, amounts, owners, conditions. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from cotenant.base.kubernetes.intent import Address, Apply
from cotenant.base.kubernetes.moments import moment
from cotenant.base.kubernetes.pod_identity import Condition, Reference
from cotenant.base.kubernetes.pod_request import format_quantities
from cotenant.base.kubernetes.protocol import SCHEDULING_GROUP
from cotenant.scheduler_ext.reservations.model.life_cycle import Phase
from cotenant.scheduler_ext.reservations.model.reservation import Reservation, ReservationStatus
from cotenant.scheduler_ext.reservations.view import PodView

SCHEDULED: Final = "Scheduled"
READY: Final = "Ready"
CONSIDERED: Final = "TemplateConsidered"
"""Condition of cotenant: false if the template has requirements that a placeholder cannot express."""


def address_of(reservation: Reservation) -> Address:
    """Return the API address (version, resource, name) of a Reservation."""
    return Address(SCHEDULING_GROUP, "reservations", reservation.name)


def condition(type_: str, holds: bool, reason: str, message: str = "") -> Condition:
    """Return a condition without its transition time, which `merge_conditions` sets."""
    return Condition(type_, "True" if holds else "False", reason, message)


def references(owners: Sequence[PodView]) -> tuple[Reference, ...]:
    """Return the owners in the form and order of the status field currentOwners."""
    refs = [Reference("", o.identity.name, o.identity.namespace, o.uid) for o in owners]
    return tuple(sorted(refs, key=lambda r: (r.namespace, r.name)))


def merge_conditions(
    before: Sequence[Condition], conditions: Sequence[Condition], now_seconds: float
) -> tuple[Condition, ...]:
    """Return old conditions updated with new ones of their type; a changed status sets the transition time."""
    by_type = {c.type: c for c in before}
    for new in conditions:
        old = by_type.get(new.type)
        since = old.since if old is not None and old.status == new.status and old.since else moment(now_seconds)
        by_type[new.type] = replace(new, since=since)
    return tuple(by_type.values())


def status_intent(reservation: Reservation, status: ReservationStatus) -> Apply | None:
    """Return the write of the status, or None if it has not changed."""
    if status == reservation.status:
        return None
    written: dict[str, Any] = {
        "phase": Phase(status.phase).value,
        "allocatable": format_quantities(status.allocatable),
        "allocated": format_quantities(status.allocated),
        "currentOwners": [{"namespace": o.namespace, "name": o.name, "uid": o.uid} for o in status.owners],
        "conditions": [condition_body(c) for c in status.conditions],
    }
    written |= {"nodeName": status.node} if status.node else {}
    address = address_of(reservation)
    body = address.manifest("Reservation", {"uid": reservation.uid}, status=written)
    return Apply(address, body, "status", why=f"reservation {reservation.name} is {status.phase}")


def condition_body(c: Condition) -> Mapping[str, str]:
    """Return a condition as JSON of an object's status."""
    return {**c.body(), "lastProbeTime": c.since}
