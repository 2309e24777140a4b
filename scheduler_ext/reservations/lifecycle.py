"""Maintains a Reservation through the phases of `model.life_cycle`, and its placeholders. Pure.

Phases, conditions and reasons are Koordinator's. An ended Reservation is deleted a day later. Lost capacity (a
placeholder was preempted, or an owner has ended) is requested again on the same node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from cotenant.base.kubernetes.intent import Create, Delete, Intent
from cotenant.base.kubernetes.moments import moment_of
from cotenant.base.kubernetes.pod_identity import Condition
from cotenant.base.kubernetes.pod_request import fits, format_quantities, select_amounts, sum_amounts
from cotenant.base.kubernetes.protocol import ENDED_PHASES
from cotenant.scheduler_ext.reservations.model.life_cycle import Phase
from cotenant.scheduler_ext.reservations.model.reservation import Mode, Reservation, ReservationStatus
from cotenant.scheduler_ext.reservations.model.settings import ReservationSettings
from cotenant.scheduler_ext.reservations.owner import claim_patch
from cotenant.scheduler_ext.reservations.placeholder import (
    PlaceholderSpec,
    class_intent,
    fresh_name,
    impossible,
    lower_class,
    not_considered,
    placeholder_creation,
    placeholder_deletion,
)
from cotenant.scheduler_ext.reservations.status import (
    CONSIDERED,
    READY,
    SCHEDULED,
    address_of,
    condition,
    merge_conditions,
    references,
    status_intent,
)
from cotenant.scheduler_ext.reservations.swap import required_capacity, uncovered_capacity
from cotenant.scheduler_ext.reservations.view import PodView, ReservationView

EXPIRED: Final = "Expired"
# A busy API server may deliver a displacing pod's binding some seconds after the placeholder's end; until then the
# capacity is lost to nobody, so waiting costs nothing.
TAKER_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Care:
    """The writes that a Reservation needs now, or (`asks`) the node whose pods must be listed to compute the writes."""

    intents: tuple[Intent, ...] = ()
    asks: str = ""


def maintain_reservation(reservation: Reservation, view: ReservationView, settings: ReservationSettings) -> Care:
    """Return the writes of one Reservation's status and placeholders."""
    uid = reservation.uid
    swap, mine = view.swaps.get(uid), view.placeholders.get(uid, ())
    if reservation.deleting:
        return Care()
    if reservation.status.phase.ended:
        moments = [moment_of(c.since, "condition") or 0.0 for c in reservation.status.conditions if c.since]
        ended = max(moments, default=reservation.created_seconds)
        is_old = view.now_seconds >= ended + settings.keep_ended_seconds
        old = [Delete(address_of(reservation), reservation.uid, "the Reservation ended long ago")] if is_old else []
        return Care((*_placeholder_deletions(mine), *old))
    if (swap is not None and swap.owner is not None) or _is_up_to_date(reservation, mine, view):
        return Care()
    return _maintain_active_reservation(reservation, mine, view, settings)


def _is_up_to_date(reservation: Reservation, mine: Sequence[PodView], view: ReservationView) -> bool:
    """Return whether nothing has to be done, the usual case: one placeholder reserves all and no pod uses it."""
    status, uid = reservation.status, reservation.uid
    if status.phase is not Phase.AVAILABLE or len(mine) != 1 or uid in view.allocated or uid in view.swaps:
        return False
    (pod,) = mine
    holds = pod.alive and pod.node == status.node and fits(reservation.size, pod.requests)
    node_exists = view.nodes is None or status.node in view.nodes
    status_matches = status.allocatable == reservation.size and not status.owners and not any(status.allocated.values())
    ready = all(c.status == "True" for c in status.conditions if c.type in (SCHEDULED, READY))
    if not (holds and node_exists and status_matches and ready) or reservation.expired(view.now_seconds):
        return False
    return status.node not in view.nominations


def _maintain_active_reservation(
    reservation: Reservation, mine: Sequence[PodView], view: ReservationView, settings: ReservationSettings
) -> Care:
    """Return the writes of a Reservation that has not ended and is not being handed over."""
    mode, node = reservation.mode(Mode(settings.mode)), reservation.status.node
    owners = [p for p in view.allocated.get(reservation.uid, ()) if not node or p.node == node]
    takers = _takers(reservation, view) if mode is Mode.LAST_RESORT else ()
    if takers:
        return Care(tuple(claim_patch(pod, reservation) for pod in takers))
    status = desired_status(reservation, mine, owners, view, settings)
    vanished = mode is Mode.LAST_RESORT and status.phase is Phase.AVAILABLE and not mine and not owners
    if vanished and status.node and status.node not in view.found:
        return Care(asks=status.node)  # nobody is known to have the capacity of the placeholder
    if vanished:
        # the pod that displaced it must have been seen first: mirrors report the two in any order
        ready = status.condition(READY)
        since = moment_of(ready.since, "condition") if ready is not None and ready.status == "False" else None
        if since is None or view.now_seconds - since < TAKER_SECONDS:
            return Care((intent,) if (intent := status_intent(reservation, status)) else ())
    if vanished and status.node in view.found:
        # a stranger pushed it aside: it is placed anew, anywhere
        text = "a pod of higher priority took the capacity; the scheduler looks for another node"
        conditions = [condition(SCHEDULED, False, "Unschedulable", text), condition(READY, False, "RoomLost", text)]
        status = _with_phase(status, Phase.PENDING, conditions, view.now_seconds)
        status = replace(status, node="", allocatable={})
    written = [intent] if (intent := status_intent(reservation, status)) else []
    if status.phase.ended:
        return Care((*written, *_placeholder_deletions(mine)))
    return Care((*written, *_keep_placeholders(replace(reservation, status=status), mine, view, settings)))


def desired_status(
    reservation: Reservation,
    mine: Sequence[PodView],
    owners: Sequence[PodView],
    view: ReservationView,
    settings: ReservationSettings,
) -> ReservationStatus:
    """Return the status that the Reservation should have, given its placeholders `mine` and the pods of its owners.

    Succeeded takes precedence over Failed: a Reservation for one use whose owner runs has succeeded, even after its
    deadline.
    """
    before, now = reservation.status, view.now_seconds
    bound = [p for p in mine if p.alive and p.node]
    node = before.node or next((p.node for p in (*bound, *owners)), "")
    status = replace(
        before,
        node=node,
        allocatable=reservation.size if node else {},
        allocated=select_amounts(sum_amounts(p.requests for p in owners), reservation.size) if node else {},
        owners=references(owners),
    )
    if reservation.allocate_once and owners:
        text = f"used by {owners[0].place}"
        return _with_phase(status, Phase.SUCCEEDED, [condition(READY, False, "Succeeded", text)], now)
    lost_node = bool(node) and view.nodes is not None and node not in view.nodes
    if reservation.expired(now) or lost_node:
        text = f"node {node} no longer exists" if lost_node else "the Reservation has expired"
        return _with_phase(status, Phase.FAILED, [condition(READY, False, EXPIRED, text)], now)
    return _reserved_status(reservation, status, mine, owners, view, settings)


def _reserved_status(
    reservation: Reservation,
    status: ReservationStatus,
    mine: Sequence[PodView],
    owners: Sequence[PodView],
    view: ReservationView,
    settings: ReservationSettings,
) -> ReservationStatus:
    """Return the status by what is reserved now; an Available Reservation stays so while lost capacity is requested."""
    left_out = not_considered(reservation.template, settings.scheduler_name)
    text = f"the placeholder lacks these constraints of the template: {', '.join(left_out)}"
    extra = [condition(CONSIDERED, False, "ConstraintsNotConsidered", text)] if left_out else []
    open_ = [p for p in mine if p.alive and not p.node]
    missing = uncovered_capacity(view, reservation.uid, reservation)
    here = bool(owners) or any(p.alive and p.node for p in mine)
    if here and not open_ and not missing:
        good = [condition(SCHEDULED, True, "Scheduled"), condition(READY, True, "Available"), *extra]
        return _with_phase(status, Phase.AVAILABLE, good, view.now_seconds)
    unmade = view.unmade.get(str(address_of(reservation)), "")
    reason = impossible(reservation) or unmade or next((p.unschedulable for p in open_ if p.unschedulable), "")
    if status.phase is Phase.AVAILABLE:
        lacking = (
            ", ".join(" ".join(part) for part in format_quantities(missing).items())
            or reason
            or "a placeholder waits for a node"
        )
        text = f"reserved capacity was lost and is requested again: {lacking}"
        return _with_phase(status, Phase.AVAILABLE, [condition(READY, False, "RoomLost", text)], view.now_seconds)
    waits = reservation.pre_allocation and bool(reason) and not (impossible(reservation) or unmade)
    bad = [condition(SCHEDULED, False, "Unschedulable", reason)] if reason else []
    return _with_phase(status, Phase.WAITING if waits else Phase.PENDING, [*bad, *extra], view.now_seconds)


def _with_phase(
    status: ReservationStatus, phase: Phase, conditions: Sequence[Condition], now_seconds: float
) -> ReservationStatus:
    """Return the status in this phase with the conditions merged in; those that changed get the time `now_seconds`."""
    return replace(status, phase=phase, conditions=merge_conditions(status.conditions, conditions, now_seconds))


def _keep_placeholders(
    reservation: Reservation, mine: Sequence[PodView], view: ReservationView, settings: ReservationSettings
) -> list[Intent]:
    """Return the writes that create missing placeholders and delete ended or superfluous ones.

    Placeholders are superfluous if an owner has grown, or was placed beside them on the node. Whole ones are deleted,
    largest first; if none can go, a smaller one replaces the largest. It is created before the larger one is deleted,
    so that an owner's resize never waits for capacity that is reserved for this owner.
    """
    dead = [placeholder_deletion(p.as_placeholder(), "placeholder has ended") for p in mine if p.phase in ENDED_PHASES]
    if dead or impossible(reservation):
        return [*dead]
    missing = uncovered_capacity(view, reservation.uid, reservation)
    if missing:
        return _missing_placeholder_intents(reservation, missing, mine, view, settings)
    needed = required_capacity(reservation, view.allocated.get(reservation.uid, ()))
    intents: list[Intent] = []
    remaining = [p for p in mine if p.alive]
    total = sum_amounts(p.requests for p in remaining)
    by_name = sorted(remaining, key=lambda p: p.identity.name, reverse=True)
    for pod in sorted(by_name, key=lambda p: ([-p.requests.get(n, 0) for n in sorted(reservation.size)], bool(p.node))):
        without = {n: total.get(n, 0) - pod.requests.get(n, 0) for n in total}
        if all(without.get(n, 0) >= amount for n, amount in needed.items()):
            intents.append(placeholder_deletion(pod.as_placeholder(), "the placeholder is no longer needed"))
            remaining, total = [p for p in remaining if p is not pod], without
    excess = {n: total.get(n, 0) - needed.get(n, 0) for n in reservation.size}
    excess = {n: amount for n, amount in excess.items() if amount > 0}
    if intents or not excess or not reservation.status.node or reservation.uid in view.swaps:
        return intents
    pod = max(remaining, key=lambda p: [p.requests.get(n, 0) for n in sorted(excess)])
    smaller = {n: max(0, pod.requests.get(n, 0) - excess.get(n, 0)) for n in reservation.size}
    fresh = _missing_placeholder_intents(reservation, {n: a for n, a in smaller.items() if a}, mine, view, settings)
    replaced = [i for i in fresh if isinstance(i, Create) and i.address.resource == "pods"]
    deletions = [placeholder_deletion(pod.as_placeholder(), "a smaller placeholder replaces it")] if replaced else []
    return [*fresh, *deletions]


def _missing_placeholder_intents(
    reservation: Reservation,
    missing: dict[str, int],
    mine: Sequence[PodView],
    view: ReservationView,
    settings: ReservationSettings,
) -> list[Intent]:
    """Return the writes that create a placeholder for the `missing` amounts by resource, or prepare for it.

    Under LastResort a lower PriorityClass is created first, and used in the run after that. Nodes with
    `placeholders_per_node` placeholders are avoided.
    """
    swap = view.swaps.get(reservation.uid)
    names = [p.identity.name for p in mine]
    free = swap.rest.name if swap is not None and swap.rest and swap.rest.name not in names else ""
    crowded = [node for node, count in view.crowded.items() if count >= settings.placeholders_per_node]
    placeholder = PlaceholderSpec(
        free or fresh_name(reservation, names), missing, reservation.status.node, tuple(sorted(crowded))
    )
    mode = reservation.mode(Mode(settings.mode))
    if mode is Mode.LAST_RESORT:
        name, value = lower_class(reservation, view.classes)
        if name not in view.classes:
            return [class_intent(name, value, str(address_of(reservation)))]
        if name in view.new_classes:
            return []  # the API server's admission may not know it yet
    return [placeholder_creation(reservation, placeholder, mode, view.classes, settings)]


def _takers(reservation: Reservation, view: ReservationView) -> list[PodView]:
    """Return the pod that displaces the placeholder: nominated for its node, or found there once it was gone."""
    node = reservation.status.node
    if not node or not reservation.open_to_owners:
        return []
    near = [p for p in view.pods.values() if p.nominated == node and not p.node and not p.is_placeholder]
    arrived = [
        p for p in view.found.get(node, ()) if p.node in ("", node) and p.created_seconds >= reservation.created_seconds
    ]
    usable = [
        p
        for p in (*near, *arrived)
        if p.alive and not p.allocated_from and reservation.usable_by(p.identity, p.tolerations)
    ]
    return sorted(usable, key=lambda p: (-p.created_seconds, p.place))[:1]


def _placeholder_deletions(mine: Sequence[PodView]) -> list[Intent]:
    return [placeholder_deletion(p.as_placeholder(), "the reservation has ended") for p in mine if not p.deleting]
