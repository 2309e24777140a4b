"""The whole decision of the reservation controller: computes all writes from the observed state. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from cotenant.base.kubernetes.intent import Intent
from cotenant.base.kubernetes.protocol import GANG_GATE
from cotenant.scheduler_ext.reservations.assign import Assignment, assign_waiting_pods
from cotenant.scheduler_ext.reservations.guard import Guard, ReservationSwap
from cotenant.scheduler_ext.reservations.lifecycle import maintain_reservation
from cotenant.scheduler_ext.reservations.model.reservation import Mode, Reservation
from cotenant.scheduler_ext.reservations.model.settings import ReservationSettings
from cotenant.scheduler_ext.reservations.owner import release_patch
from cotenant.scheduler_ext.reservations.placeholder import placeholder_deletion
from cotenant.scheduler_ext.reservations.swap import SwapStep, advance
from cotenant.scheduler_ext.reservations.view import PodView, ReservationView

SWAP_LINGER_SECONDS: Final = 0.5
"""Time for which the node stays guarded after its new pod was bound: until then another scheduler may not know of the
pod."""

LONGEST_SECONDS: Final = 30.0
"""The controller runs again after this time at the latest."""


@dataclass(frozen=True, slots=True)
class ReservationWrites:
    """The writes of one run of the controller, and when and with which inputs it has to run again.

    The controller runs again after `wake_seconds` even if nothing changes, and first lists the pods of the nodes
    `asks`. `outcomes` are pairs: the name of a Reservation, and how its hand-over to an owner pod ended.
    """

    intents: tuple[Intent, ...] = ()
    wake_seconds: float = LONGEST_SECONDS
    asks: frozenset[str] = frozenset()
    outcomes: tuple[tuple[str, str], ...] = ()
    assignment: Assignment = field(default_factory=Assignment)


def decide(view: ReservationView, settings: ReservationSettings) -> ReservationWrites:
    """Advance and start hand-overs, maintain every Reservation, and remove the gates of pods that match none.

    Reservations are ordered by their deadlines: if not all writes can be sent in time, the capacity that expired first
    is released first. Placeholders whose Reservation is gone are deleted. An object gets at most one write.
    """
    steps = [(swap, advance(swap, view, settings)) for swap in view.guard.swaps]
    assignment = assign_waiting_pods(view, settings)
    cares = [maintain_reservation(r, view, settings) for r in sorted(view.reservations.values(), key=_end_seconds)]
    intents: list[Intent] = [*_guard_updates(view, steps, assignment, settings)]
    intents += [intent for _, step in steps for intent in step.intents]
    intents += [intent for care in cares for intent in care.intents]
    intents += [release_patch(pod) for pod in assignment.unmatched]
    # placeholders of Reservations that are gone; one that cannot be read keeps its own
    known_uids = {r.uid for r in view.reservations.values()} | {s.reservation_uid for s in view.guard.swaps}
    for placeholder in (p for uid, pods in view.placeholders.items() if uid not in known_uids for p in pods):
        owners = {owner.name for owner in placeholder.identity.controllers if owner.kind == "Reservation"}
        if not placeholder.deleting and owners.isdisjoint(view.unreadable):
            intents.append(placeholder_deletion(placeholder.as_placeholder(), "the placeholder's Reservation is gone"))
    # only the first write to each object and subresource; the next round makes the others
    first: dict[tuple[object, str], Intent] = {}
    for intent in intents:
        first.setdefault((intent.address, getattr(intent, "subresource", "")), intent)
    return ReservationWrites(
        tuple(first.values()),
        _wake(view, settings, assignment),
        frozenset(care.asks for care in cares if care.asks),
        tuple((swap.reservation, step.outcome) for swap, step in steps if step.outcome),
        assignment,
    )


def withdraw_reservation_promise(guard: Guard, pending: Iterable[PodView], now_seconds: float) -> tuple[Intent, ...]:
    """Return the writes that stop gating: new pods get no gate any more, and the gates of waiting pods are removed.

    Used when the manager ends, and when another scheduler handles Reservations. Hand-overs under way stay recorded: the
    next manager finishes them, or the webhook frees their nodes. Members of gangs that are not placed yet keep their
    gate: there is no capacity for them, and the controller of queues removes it.
    """
    waiting = [pod for pod in pending if pod.gated and pod.alive and not pod.node and GANG_GATE not in pod.gates]
    ended: list[Intent] = []
    if guard.served_until_seconds > now_seconds:
        why = "no manager hands over reserved capacity any more"
        ended.append(replace(guard, served_until_seconds=now_seconds).intent(why))
    return (*ended, *map(release_patch, waiting))


def _guard_updates(
    view: ReservationView,
    steps: Iterable[tuple[ReservationSwap, SwapStep]],
    assignment: Assignment,
    settings: ReservationSettings,
) -> list[Intent]:
    """Return the write of the SwapGuard object, or nothing if it does not change.

    The object lists the hand-overs under way: those of `steps` that continue and those that `assignment` starts. It
    also has the time until which the webhook gates pods. That time is renewed to `served_seconds` from now once a third
    of it is over, while pods are to be gated or a hand-over is under way.
    """
    guard = view.guard
    swaps = (*(step.swap for _, step in steps if step.swap is not None), *assignment.begun)
    served = guard.served_until_seconds
    default = Mode(settings.mode)  # pods are gated for standby capacity, and for pinned Reservations
    gating = any(r.open_to_owners for r, _ in view.standby) or any(
        r.open_to_owners and r.mode(default) is Mode.PINNED for r in view.reservations.values()
    )
    if gating or swaps:
        remaining = served - view.now_seconds
        if remaining < settings.served_seconds * 2 / 3 or remaining > 2 * settings.served_seconds:
            served = view.now_seconds + settings.served_seconds
    if swaps == guard.swaps and served == guard.served_until_seconds:
        return []
    why = f"{len(swaps)} hand-overs of reserved capacity are under way"
    return [replace(guard, swaps=swaps, served_until_seconds=served).intent(why)]


def _wake(view: ReservationView, settings: ReservationSettings, assignment: Assignment) -> float:
    """Return the seconds until the next deadline, at which the decision can differ although no object changed."""
    now = view.now_seconds
    ends = (_end_seconds(r) for r in view.reservations.values() if not r.status.phase.ended)
    moments = [end for end in ends if end < math.inf]
    moments += [swap.expires_seconds for swap in view.guard.swaps if swap.expires_seconds > now]
    moments += [now + settings.swap_settle_seconds for s in view.guard.swaps if s.owner and s.id not in view.settled]
    landed = [s for s in view.guard.swaps if s.owner and (o := view.pods.get(s.owner.uid)) is not None and o.node]
    moments += [now + SWAP_LINGER_SECONDS for s in landed if s.id not in view.lingered]
    moments += [pod.created_seconds + settings.gate_seconds for pod in assignment.waiting]
    if view.guard.served_until_seconds > now:
        moments.append(view.guard.served_until_seconds - settings.served_seconds * 2 / 3)
    return max(0.0, min((m - now for m in moments), default=LONGEST_SECONDS))


def _end_seconds(reservation: Reservation) -> float:
    """Return the Unix time at which a Reservation expires; infinity if it never does."""
    return math.inf if reservation.deadline_seconds is None else reservation.deadline_seconds
