"""Decides which waiting pod gets which Reservation's capacity, and which pods match no Reservation. Pure.

A pod with cotenant's scheduling gate gets capacity at once; a pod that the webhook missed gets it once the scheduler
found no node for it. Reservations with an order come first, the lowest first; then those that the pod would fill most,
as in Koordinator: mean over the reserved resources of 100 x (request + allocated) / allocatable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from cotenant.base.kubernetes.pod_identity import Reference
from cotenant.base.kubernetes.pod_request import fits, rest, sum_amounts
from cotenant.base.kubernetes.protocol import GANG_LABEL, PLACEHOLDER_NAMESPACE, RESERVATION_GATE
from cotenant.scheduler_ext.reservations.guard import ReservationSwap, SwapPlaceholder
from cotenant.scheduler_ext.reservations.model.reservation import AllocatePolicy, Mode, Reservation, affinity_of
from cotenant.scheduler_ext.reservations.model.settings import ReservationSettings
from cotenant.scheduler_ext.reservations.placeholder import fresh_name
from cotenant.scheduler_ext.reservations.swap import SWAP_TIMEOUT_SECONDS
from cotenant.scheduler_ext.reservations.view import MISSED_ANNOTATION, PodView, ReservationView

SWAPS_AT_ONCE: Final = 64
"""Most hand-overs at the same time, each on a node of its own; limits writes to the API server. A hand-over takes about
a second."""

LAST: Final = 1 << 62
STANDBY_SECONDS: Final = 60.0
"""Time that a user's running pod gets to end."""


@dataclass(frozen=True, slots=True)
class ReservationCapacity:
    """A Reservation's remaining capacity (`left`) and bound placeholders, smallest first; `busy` during a hand-over."""

    reservation: Reservation
    node: str
    placeholders: tuple[PodView, ...]
    left: Mapping[str, int]
    allocated: Mapping[str, int]
    busy: bool = False

    def takes(self, pod: PodView) -> bool:
        """Return whether the pod may use this capacity; with policy Restricted its request must fit what is left."""
        if self.reservation.allocate_policy is AllocatePolicy.RESTRICTED:
            return fits(pod.requests, self.left, self.reservation.size)
        return True

    def score(self, pod: PodView) -> float:
        """Return how full the pod would make the Reservation, in percent; above 100 if the pod does not fit."""
        size = self.reservation.size
        used = [(pod.requests.get(n, 0) + self.allocated.get(n, 0)) / amount for n, amount in size.items()]
        return 100.0 * sum(used) / len(used)


@dataclass(slots=True)
class Assignment:
    """Hand-overs to start (`begun`), gated pods that wait for capacity, and `unmatched` pods, which lose their gate."""

    begun: list[ReservationSwap] = field(default_factory=list)
    waiting: list[PodView] = field(default_factory=list)
    unmatched: list[PodView] = field(default_factory=list)


def rooms(view: ReservationView, default: Mode) -> list[ReservationCapacity]:
    """Return what is left of each pinned Reservation that is open to owners, and of each with a placed standby pod."""
    capacities = []
    for reservation in view.reservations.values():
        is_pinned = reservation.open_to_owners and reservation.mode(default) is Mode.PINNED
        if not is_pinned or reservation.expired(view.now_seconds):
            continue
        standing = [p for p in view.placeholders.get(reservation.uid, ()) if p.alive and p.node]
        placeholders = tuple(sorted(standing, key=lambda p: (sorted(p.requests.items()), p.identity.name)))
        swap = view.swaps.get(reservation.uid)
        busy = swap is not None and (not reservation.allocate_once or swap.owner is None)
        if swap is not None and not busy:
            placeholders = ()
        if placeholders or busy:
            node = placeholders[0].node if placeholders else reservation.status.node
            left_amounts = sum_amounts(p.requests for p in placeholders)
            allocated = sum_amounts(owner.requests for owner in view.allocated.get(reservation.uid, ()))
            capacities.append(ReservationCapacity(reservation, node, placeholders, left_amounts, allocated, busy))
    for reservation, pod in view.standby:
        if reservation.open_to_owners and pod.alive and pod.node:
            busy = reservation.uid in view.swaps
            places, amounts = () if busy else (pod,), {} if busy else pod.requests
            capacities.append(ReservationCapacity(reservation, pod.node, places, amounts, {}, busy))
    return capacities


def assign_waiting_pods(view: ReservationView, settings: ReservationSettings) -> Assignment:
    """Assign capacity to waiting pods; at most SWAPS_AT_ONCE hand-overs run at a time, each on another node."""
    served = {swap.owner.uid for swap in view.guard.swaps if swap.owner}
    waiting = [pod for pod in view.pods.values() if pod.uid not in served and _waits(pod)]
    work = _Assigner(view, settings, rooms(view, Mode(settings.mode)) if waiting else ())
    for pod in sorted(waiting, key=lambda p: (-p.priority, p.created_seconds, p.place)):
        work.serve(pod)
    return work.found


class _Assigner:
    """Reservations grouped by equal properties, so that a pod is compared once with each group."""

    def __init__(
        self, view: ReservationView, settings: ReservationSettings, rooms: Iterable[ReservationCapacity]
    ) -> None:
        self.view, self.settings = view, settings
        self.found = Assignment()
        self.nodes = {swap.node for swap in view.guard.swaps}
        self.groups: dict[object, list[ReservationCapacity]] = {}
        self.places: dict[tuple[str, str] | None, list[object]] = {}
        for capacity in rooms:
            match_key = _match_key(capacity)
            if match_key not in self.groups:
                for label in capacity.reservation.owner_labels:
                    self.places.setdefault(label, []).append(match_key)
            self.groups.setdefault(match_key, []).append(capacity)

    def serve(self, pod: PodView) -> None:
        """Start the pod's hand-over, or add the pod to `waiting` or `unmatched`; gang members wait without timeout."""
        places = (None, ("", pod.uid), *pod.identity.labels.items())
        likely = [like for place in places for like in self.places.get(place, ())]
        groups = [usable for like in dict.fromkeys(likely) if (usable := self._usable(self.groups[like], pod))]
        # the first free one stands for all of a group, which are alike
        firsts = (next((c for c in g if not c.busy and c.node not in self.nodes), None) for g in groups)
        free = [capacity for capacity in firsts if capacity is not None]
        if free and len(self.found.begun) + len(self.view.guard.swaps) < SWAPS_AT_ONCE:
            capacity = min(free, key=lambda r: (r.reservation.order or LAST, -r.score(pod), r.reservation.name))
            self.found.begun.append(begun(capacity, pod, self.view))
            self.nodes.add(capacity.node)
            self.groups[_match_key(capacity)].remove(capacity)
        elif pod.gated:
            young = self.view.now_seconds - pod.created_seconds < self.settings.gate_seconds
            patient = young or any(GANG_LABEL in group[0].reservation.labels for group in groups)
            (self.found.waiting if groups and patient else self.found.unmatched).append(pod)

    def _usable(self, group: list[ReservationCapacity], pod: PodView) -> list[ReservationCapacity]:
        if not group or not group[0].reservation.owned_by(pod.identity):
            return []
        if not affinity_of(pod.identity).required:  # then all of the group are alike to the pod
            first = group[0]
            good = first.reservation.usable_by(pod.identity, pod.tolerations) and first.takes(pod)
            return group if good else []
        return [r for r in group if r.reservation.usable_by(pod.identity, pod.tolerations) and r.takes(pod)]


def begun(capacity: ReservationCapacity, pod: PodView, view: ReservationView) -> ReservationSwap:
    """Return the record of a new hand-over, which uses the smallest placeholder that suffices, or else all of them."""
    reservation = capacity.reservation
    request = {name: pod.requests.get(name, 0) for name in reservation.size}
    used = next(([p] for p in capacity.placeholders if fits(request, p.requests)), list(capacity.placeholders))
    over = rest({n: a for n, a in sum_amounts(p.requests for p in used).items() if n in reservation.size}, request)
    remains = None
    if not reservation.allocate_once and any(over.values()):
        names = [p.identity.name for p in view.placeholders.get(reservation.uid, ())]
        remains = SwapPlaceholder(
            PLACEHOLDER_NAMESPACE, fresh_name(reservation, names), "", {n: a for n, a in over.items() if a}
        )
    owner = Reference("Pod", pod.identity.name, pod.identity.namespace, pod.uid)
    return ReservationSwap(
        used[0].uid,
        reservation.name,
        reservation.uid,
        capacity.node,
        owner,
        tuple(p.as_placeholder() for p in used),
        remains,
        view.now_seconds,
        view.now_seconds + SWAP_TIMEOUT_SECONDS + (STANDBY_SECONDS if used[0].as_placeholder().standby else 0.0),
    )


def _waits(pod: PodView) -> bool:
    """Return whether a pod can get capacity now: it has only cotenant's gate, or the scheduler found no node for it."""
    if pod.node or not pod.alive or pod.is_placeholder or pod.identity.namespace == PLACEHOLDER_NAMESPACE:
        return False
    if pod.gates:
        return pod.gates == (RESERVATION_GATE,)
    return bool(pod.unschedulable) and MISSED_ANNOTATION not in pod.identity.annotations


def _match_key(capacity: ReservationCapacity) -> object:
    r = capacity.reservation
    sums = tuple(tuple(sorted(amounts.items())) for amounts in (r.size, capacity.allocated, capacity.left))
    return (r.owners, r.taints, r.allocate_policy, r.order, sums)
