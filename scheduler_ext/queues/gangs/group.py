"""Gangs at present: their running members, members with capacity, and groups to place together. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from cotenant.base.kubernetes.protocol import GANG_GATE, RESERVATION_GATE
from cotenant.scheduler_ext.queues.gangs.reservations import (
    GANG_ANNOTATION,
    gang_reservations,
    has_reserved_capacity,
    member_uid,
)
from cotenant.scheduler_ext.queues.model.gang import Gang, GangMode, MatchPolicy
from cotenant.scheduler_ext.queues.model.native_group import NativeGroup
from cotenant.scheduler_ext.queues.model.queue_pod import QueuePod
from cotenant.scheduler_ext.queues.view import QueueView
from cotenant.scheduler_ext.reservations.model.life_cycle import Phase
from cotenant.scheduler_ext.reservations.model.reservation import Reservation

GANG_WAIT_SECONDS: Final = 600.0
"""A gang that is incomplete or has no capacity after this time gets TimedOut and backs off; a gang's own waiting
time beats it. Default of Koordinator's gangs (600 s); a gang's own annotation still says another."""

LAST_GATES: Final = frozenset({GANG_GATE, RESERVATION_GATE})
"""Gates of a member that waits for nothing but its gang's capacity."""


@dataclass(frozen=True)
class GangMembers:
    """One gang, its pods that have not ended, their Reservations by the pod's uid, its PodGroup of Kubernetes.

    succeeded, failed: how many of its pods ended so and still stand in the API server; only of a PodGroup. done: of
    these, those that succeeded in the present run.
    """

    gang: Gang
    pods: tuple[QueuePod, ...] = ()
    reservations: Mapping[str, Reservation] = field(default_factory=dict)
    native: NativeGroup | None = None
    succeeded: int = 0
    failed: int = 0
    done: int = 0

    @cached_property
    def bound(self) -> tuple[QueuePod, ...]:
        """Members with a node."""
        return tuple(pod for pod in self.pods if pod.node)

    @cached_property
    def gated(self) -> tuple[QueuePod, ...]:
        """Members that the gang's gate holds."""
        return tuple(pod for pod in self.pods if not pod.node and pod.waits_for_gang)

    @cached_property
    def ready(self) -> tuple[QueuePod, ...]:
        """The members behind the gate that no other gate keeps waiting."""
        return tuple(pod for pod in self.gated if LAST_GATES.issuperset(pod.gates))

    @cached_property
    def awaiting(self) -> tuple[QueuePod, ...]:
        """Members behind the gate that have a Reservation."""
        return tuple(pod for pod in self.gated if pod.uid in self.reservations)

    @cached_property
    def begun(self) -> tuple[QueuePod, ...]:
        """Members with a Reservation whose gate is gone: they are handed their capacity, or have it."""
        return tuple(pod for pod in self.pods if pod.uid in self.reservations and not pod.waits_for_gang)

    @cached_property
    def landing(self) -> tuple[QueuePod, ...]:
        """The members that were let go and have no node yet."""
        return tuple(pod for pod in self.begun if not pod.node)

    @cached_property
    def entrusted(self) -> tuple[QueuePod, ...]:
        """Members without a node that the scheduler places together by their PodGroup."""
        if self.native is None or not self.native.min_count:
            return ()
        free = (pod for pod in self.pods if not pod.node and not pod.waits_for_gang and pod.scheduling_group)
        return tuple(pod for pod in free if pod.uid not in self.reservations)

    @cached_property
    def satisfied(self) -> bool:
        """True if the minimum was placed once, so that further members need not wait for each other.

        Only under the match policy once-satisfied.
        """
        if self.gang.match_policy is not MatchPolicy.ONCE_SATISFIED or not self.bound:
            return False
        placed = len(self.bound) >= self.gang.min_available or any(pod.handed_over for pod in self.bound)
        return placed or self.gang.started or (self.native is not None and self.native.scheduled)

    @cached_property
    def needed(self) -> int:
        """Members behind the gate that must be placed together now."""
        if self.satisfied:
            return 0
        if self.gang.match_policy is MatchPolicy.ONLY_WAITING:
            return max(0, self.gang.min_available - len(self.begun)) if self.gated or not self.pods else 0
        placed = len(self.bound) + len(self.landing) + len(self.entrusted)
        return max(0, self.gang.min_available - self.done - placed)

    @cached_property
    def chosen(self) -> tuple[QueuePod, ...]:
        """These members: those that have a Reservation already, then by priority, age and name; fewer if too few."""
        ranked = sorted(
            self.ready, key=lambda p: (p.uid not in self.reservations, -p.priority, p.created_seconds, p.place)
        )
        return tuple(ranked[: self.needed])


@dataclass(frozen=True)
class GangGroup:
    """Gangs that are placed together; mostly one.

    absent: keys of gangs that the group names and nobody defines. succeeded: whether a Reservation of it was used by
    a member that is gone.
    """

    key: str
    gangs: tuple[GangMembers, ...]
    absent: tuple[str, ...] = ()
    succeeded: bool = False

    @cached_property
    def chosen(self) -> tuple[QueuePod, ...]:
        """All members that must be placed together."""
        return tuple(pod for members in self.gangs for pod in members.chosen)

    @cached_property
    def needed(self) -> int:
        """The number of members that must be placed together."""
        return sum(members.needed for members in self.gangs)

    @cached_property
    def reservations(self) -> dict[str, Reservation]:
        """The Reservations of the group by uid of the member."""
        return {uid: reservation for members in self.gangs for uid, reservation in members.reservations.items()}

    @cached_property
    def pods(self) -> tuple[QueuePod, ...]:
        """Return all living members of its gangs."""
        return tuple(pod for members in self.gangs for pod in members.pods)

    @cached_property
    def awaiting(self) -> tuple[QueuePod, ...]:
        """Members behind the gate that have a Reservation."""
        return tuple(pod for members in self.gangs for pod in members.awaiting)

    @property
    def problem(self) -> str:
        """Why it cannot be used, or ""."""
        return next((m.gang.problem for m in self.gangs if m.gang.problem), "")

    @property
    def begun(self) -> bool:
        """True if members were let go on reserved capacity: what is reserved for the others is handed over, too."""
        return self.succeeded or any(members.begun for members in self.gangs)

    @property
    def strict(self) -> bool:
        """True if a single member without a node means that all capacity is released at once."""
        return any(members.gang.mode is GangMode.STRICT for members in self.gangs)

    @property
    def priority(self) -> int:
        """The highest of its members."""
        return max((pod.priority for pod in self.pods), default=0)

    @property
    def since_seconds(self) -> float:
        """Unix time since which it waits: when the last member came that it needs, else the first one of all."""
        complete = len(self.chosen) == self.needed > 0
        moments = [pod.created_seconds for pod in (self.chosen if complete else self.pods)]
        if not moments:
            return max((members.gang.created_seconds for members in self.gangs), default=0.0)
        return max(moments) if complete else min(moments)

    def wait_seconds(self) -> float:
        """Return how long the group may wait, seconds: the shortest time of its gangs."""
        return min(members.gang.wait_seconds or GANG_WAIT_SECONDS for members in self.gangs)

    def placed(self, members: GangMembers) -> int:
        """Members of one of its gangs that are bound or whose capacity is reserved."""
        placeable = [pod for pod in members.pods if not pod.node and self.has_capacity(pod)]
        return len(members.bound) + len(placeable)

    def has_capacity(self, pod: QueuePod) -> bool:
        """Return whether the member's capacity is reserved, or it requests nothing that could be reserved."""
        reservation = self.reservations.get(pod.uid)
        return (reservation is not None and has_reserved_capacity(reservation)) or not any(pod.requests.values())


def gang_groups(view: QueueView) -> tuple[tuple[GangGroup, ...], tuple[Reservation, ...]]:
    """All gang groups by key; and Reservations of deleted members, which are no longer needed."""
    pods: dict[str, list[QueuePod]] = {}
    for pod in view.pods:
        if pod.gang and not pod.deleting and not pod.placeholder:
            pods.setdefault(pod.gang, []).append(pod)
    reservations = gang_reservations(view.reservations)
    by_uid = {member_uid(reservation): reservation for reservation in reservations}
    living = {pod.uid for group in pods.values() for pod in group}
    memberless = tuple(reservation for reservation in reservations if member_uid(reservation) not in living)
    used = {
        reservation.annotations[GANG_ANNOTATION]
        for reservation in memberless
        if reservation.status.phase is Phase.SUCCEEDED
    }
    gangs = {**{key: _undefined_gang(key) for key in pods}, **view.gangs}
    natives = view.native_groups or {}
    ended: Counter[tuple[str, str]] = Counter()
    for (key, phase, _), count in view.ended_members.items():
        ended[key, phase] += count
    by_key = {
        key: replace(
            _members(gang, pods.get(key, ()), by_uid),
            native=natives.get(key),
            succeeded=ended[key, "Succeeded"],
            failed=ended[key, "Failed"],
            done=view.done_members.get(key, 0),
        )
        for key, gang in gangs.items()
    }
    groups = tuple(_group_gangs(by_key, used))
    awaiting = {members.gang.key for group in groups if group.awaiting for members in group.gangs}
    needless = tuple(
        reservation
        for reservation in memberless
        if reservation.status.phase is not Phase.SUCCEEDED or reservation.annotations[GANG_ANNOTATION] not in awaiting
    )
    return groups, needless


def _undefined_gang(key: str) -> Gang:
    namespace, _, name = key.partition("/")
    return Gang(namespace, name, 0, 0, group=(key,), problem=f"gang {key}: no PodGroup or pod defines it")


def _members(gang: Gang, pods: Iterable[QueuePod], by_uid: Mapping[str, Reservation]) -> GangMembers:
    own = tuple(sorted(pods, key=lambda pod: pod.place))
    return GangMembers(gang, own, {pod.uid: by_uid[pod.uid] for pod in own if pod.uid in by_uid})


def _group_gangs(by_key: Mapping[str, GangMembers], used: set[str]) -> Iterator[GangGroup]:
    """Every gang once, with those that it names, as far as they exist and name it, too."""
    for key in sorted(by_key):
        names = by_key[key].gang.group or (key,)
        present = tuple(name for name in names if name in by_key and (by_key[name].gang.group or (name,)) == names)
        if present and present[0] == key:
            absent = tuple(name for name in names if name not in by_key)
            yield GangGroup(key, tuple(by_key[name] for name in present), absent, not used.isdisjoint(present))
