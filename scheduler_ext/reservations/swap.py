"""One hand-over of capacity. Each step follows from record and pods, so the manager may crash at any time. Pure.

    record (guards the node) -> owner claimed, nominated -> placeholder deleted -> rest created, owner narrowed, ungated
    -> owner bound, rest bound -> record dropped

An abandoned hand-over bars the owner and guards the node until the state of the placeholders is certain: deleted
capacity is requested again, and the scheduler refuses that by itself if the owner was bound after all. No capacity is
ever assigned twice, because only the scheduler assigns it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from cotenant.base.kubernetes.intent import Intent
from cotenant.base.kubernetes.pod_request import rest, sum_amounts
from cotenant.base.kubernetes.protocol import PLACEHOLDER_NAMESPACE
from cotenant.scheduler_ext.reservations.guard import ReservationSwap, SwapPlaceholder
from cotenant.scheduler_ext.reservations.model.reservation import AllocatePolicy, Mode, Reservation
from cotenant.scheduler_ext.reservations.model.settings import ReservationSettings
from cotenant.scheduler_ext.reservations.owner import handing_patch, preparations, release_patch
from cotenant.scheduler_ext.reservations.placeholder import (
    PlaceholderSpec,
    fresh_name,
    placeholder_creation,
    placeholder_deletion,
)
from cotenant.scheduler_ext.reservations.view import PodView, ReservationView

SWAP_TIMEOUT_SECONDS: Final = 15.0
"""A hand-over that takes longer is undone and its capacity reserved again. Many times what a hand-over takes."""

HandOverOutcome = Literal["HandedOver", "TimedOut", "OwnerGone", "ReservationGone", "Undone"]


@dataclass(frozen=True, slots=True)
class SwapStep:
    """The next writes of a hand-over and its new record; `swap` is None once it is over; `outcome` is how it ended."""

    intents: tuple[Intent, ...] = ()
    swap: ReservationSwap | None = None
    outcome: HandOverOutcome | Literal[""] = ""


def advance(swap: ReservationSwap, view: ReservationView, settings: ReservationSettings) -> SwapStep:
    """Return the next step of a hand-over, from its record and the pods alone; every step may be repeated.

    A hand-over is abandoned if the owner is gone or bound elsewhere, or if it times out, and finished once the owner is
    bound. Until then the owner is prepared while all placeholders exist, and may be scheduled once they are gone.
    """
    reservation = view.known(swap)
    if swap.owner is None:
        return _rollback_step(swap, reservation, view)
    owner = view.pods.get(swap.owner.uid)
    standing = [placeholder for placeholder in swap.placeholders if view.stands(placeholder)]
    if owner is None or not owner.alive or owner.node not in ("", swap.node):
        return _abandon_swap(swap, view, "OwnerGone")
    if owner.node:
        return _step_after_binding(swap, standing, reservation, view, settings)
    if late(swap, view):
        return _abandon_swap(swap, view, "TimedOut")
    if len(standing) == len(swap.placeholders):
        return _prepare_owner(swap, owner, reservation, view)
    return _release_owner(swap, owner, standing, reservation, view, settings)


def _prepare_owner(
    swap: ReservationSwap, owner: PodView, reservation: Reservation | None, view: ReservationView
) -> SwapStep:
    """Prepare the owner; once it is ready and every API server has the guard, delete its placeholders."""
    if reservation is None:
        return _abandon_swap(swap, view, "ReservationGone")
    lacking = preparations(owner, reservation, swap.node)
    if lacking or owner.uid not in view.labelled or swap.id not in view.settled:
        return SwapStep(tuple(lacking), swap)
    return _step_of_deletions(swap, swap.placeholders, f"hand over to {owner.place}")


def _release_owner(
    swap: ReservationSwap,
    owner: PodView,
    placeholders: list[SwapPlaceholder],
    reservation: Reservation | None,
    view: ReservationView,
    settings: ReservationSettings,
) -> SwapStep:
    """Once all placeholders are gone, reserve what the owner does not use and let the owner be scheduled."""
    if placeholders:
        return _step_of_deletions(swap, placeholders, f"hand over to {owner.place}")
    policy = reservation.allocate_policy if reservation else AllocatePolicy.ALIGNED
    released = [handing_patch(owner, swap.node, policy)] if owner.gated else []
    return SwapStep((*_rest_placeholder_creation(swap, reservation, view, settings), *released), swap)


def _step_of_deletions(swap: ReservationSwap, placeholders: Sequence[SwapPlaceholder], why: str) -> SwapStep:
    return SwapStep(tuple(placeholder_deletion(placeholder, why) for placeholder in placeholders), swap)


def late(swap: ReservationSwap, view: ReservationView) -> bool:
    """Return whether the hand-over has timed out; a manager that restarted waits the whole time again."""
    noticed_seconds = view.noticed.get(swap.id)
    again = noticed_seconds + SWAP_TIMEOUT_SECONDS if noticed_seconds is not None else swap.expires_seconds
    return view.now_seconds >= max(swap.expires_seconds, again)


def uncovered_capacity(view: ReservationView, uid: str, reservation: Reservation) -> dict[str, int]:
    """Return the amounts, by resource, that should be reserved but are in no placeholder, without zeros."""
    missing = rest(required_capacity(reservation, view.allocated.get(uid, ())), placeholder_capacity(view, uid))
    return {name: amount for name, amount in missing.items() if amount}


def required_capacity(reservation: Reservation, owners: Sequence[PodView]) -> dict[str, int]:
    """Return the amounts to reserve beyond what owners already use; {} if the Reservation has ended or is used up."""
    if reservation.status.phase.ended or (reservation.allocate_once and owners):
        return {}
    return rest(reservation.size, sum_amounts(owner.requests for owner in owners))


def placeholder_capacity(view: ReservationView, uid: str) -> dict[str, int]:
    """Return the amounts that the placeholders of a Reservation request, bound or not."""
    return sum_amounts(pod.requests for pod in view.placeholders.get(uid, ()) if pod.alive)


def _step_after_binding(
    swap: ReservationSwap,
    placeholders: list[SwapPlaceholder],
    reservation: Reservation | None,
    view: ReservationView,
    settings: ReservationSettings,
) -> SwapStep:
    """Keep the guard after the owner is bound until every scheduler knows it and the rest is reserved again."""
    if placeholders:
        return _step_of_deletions(swap, placeholders, "the placeholder's capacity was handed over")
    making = _rest_placeholder_creation(swap, reservation, view, settings)
    rest_pod = view.named(swap.rest.name, swap.reservation_uid) if swap.rest and reservation else None
    if (making or (rest_pod is not None and not rest_pod.node)) and not late(swap, view):
        return SwapStep(tuple(making), swap)
    if swap.id not in view.lingered:
        return SwapStep((), swap)
    return SwapStep(outcome="HandedOver")


def _rest_placeholder_creation(
    swap: ReservationSwap, reservation: Reservation | None, view: ReservationView, settings: ReservationSettings
) -> list[Intent]:
    """Return the creation of the placeholder for what the owner does not use, unless it exists."""
    if swap.rest is None or reservation is None or view.named(swap.rest.name, swap.reservation_uid):
        return []
    placeholder = PlaceholderSpec(swap.rest.name, swap.rest.amounts, swap.node)
    return [placeholder_creation(reservation, placeholder, Mode.PINNED, view.classes, settings)]


def _abandon_swap(swap: ReservationSwap, view: ReservationView, why: HandOverOutcome) -> SwapStep:
    """Bar the owner and reserve the capacity again, even if placeholders seem to exist: a mirror may lag."""
    owner = view.pods.get(swap.owner.uid) if swap.owner else None
    letting = owner is not None and owner.alive and not owner.node and why != "ReservationGone"
    freed = (release_patch(owner, swap.reservation_uid),) if owner and letting else ()
    reservation = view.known(swap)
    if reservation is None or any(placeholder.standby for placeholder in swap.placeholders):
        return SwapStep(freed, outcome=why)  # nobody is there to take the capacity back
    taken = [pod.identity.name for pod in view.placeholders.get(reservation.uid, ())]
    name = fresh_name(reservation, taken)
    back = SwapPlaceholder(PLACEHOLDER_NAMESPACE, name)
    rollback = replace(swap, id=name, owner=None, placeholders=(), rest=back)
    # A record of its own: of one that a manager finds an hour later, the policy would refuse such a long time.
    now, end = view.now_seconds, view.now_seconds + SWAP_TIMEOUT_SECONDS
    return SwapStep(freed, replace(rollback, started_seconds=now, expires_seconds=end), why)


def _rollback_step(swap: ReservationSwap, reservation: Reservation | None, view: ReservationView) -> SwapStep:
    """Return a step of a hand-over that is undone: the node stays guarded until the new placeholder is bound.

    `lifecycle` creates that placeholder. The record is dropped ("Undone") when bound placeholders have all of the
    capacity and the record has existed long enough (`lingered`), when the Reservation has ended, or on the timeout.
    """
    if reservation is None or reservation.status.phase.ended or late(swap, view):
        return SwapStep(outcome="Undone")
    waiting = [pod for pod in view.placeholders.get(reservation.uid, ()) if pod.alive and not pod.node]
    if uncovered_capacity(view, reservation.uid, reservation) or waiting or swap.id not in view.lingered:
        return SwapStep((), swap)
    return SwapStep(outcome="Undone")
