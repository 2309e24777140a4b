"""Gangs at present: their members, gangs to be placed together, and which ones Kubernetes' scheduler places. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from cotenant.base.kubernetes.intent import Create
from cotenant.base.kubernetes.protocol import GANG_GATE, GANG_LABEL, RESERVATION_GATE
from cotenant.scheduler_ext.queues.gangs.reservations import (
    GANG_ANNOTATION,
    asker_of,
    has_reserved_capacity,
    member_uid,
)
from cotenant.scheduler_ext.queues.model.gang import (
    Gang,
    GangMode,
    MatchPolicy,
    NativeGroup,
    inexpressible_fields,
    native_group,
)
from cotenant.scheduler_ext.queues.model.queue_pod import QueuePod
from cotenant.scheduler_ext.queues.model.settings import QueueSettings
from cotenant.scheduler_ext.queues.view import QueueView
from cotenant.scheduler_ext.reservations.model.life_cycle import Phase
from cotenant.scheduler_ext.reservations.model.reservation import Reservation

GANG_WAIT_SECONDS: Final = 600.0
"""A gang that is incomplete or has no capacity after this time becomes TimedOut and backs off. Default of Koordinator's
gangs; a gang's own annotation overrides it."""

LAST_GATES: Final = frozenset({GANG_GATE, RESERVATION_GATE})
"""Gates of a member that waits for nothing but its gang's capacity."""


@dataclass(frozen=True)
class GangMembers:
    """A gang with its pods that have not ended, their Reservations by pod UID, and its PodGroup of Kubernetes.

    `succeeded` and `failed` count ended pods with the PodGroup label that the API server still has. `done` counts
    those that succeeded and need no capacity again (`QueueView.done_members`).
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
        """Members that still have the gang's gate."""
        return tuple(pod for pod in self.pods if not pod.node and pod.waits_for_gang)

    @cached_property
    def ready(self) -> tuple[QueuePod, ...]:
        """Members that wait for the gang's gate and for no other gate."""
        return tuple(pod for pod in self.gated if LAST_GATES.issuperset(pod.gates))

    @cached_property
    def awaiting(self) -> tuple[QueuePod, ...]:
        """Members with the gang's gate that have a Reservation."""
        return tuple(pod for pod in self.gated if pod.uid in self.reservations)

    @cached_property
    def begun(self) -> tuple[QueuePod, ...]:
        """Members with a Reservation but without the gang's gate: they have their capacity, or are getting it."""
        return tuple(pod for pod in self.pods if pod.uid in self.reservations and not pod.waits_for_gang)

    @cached_property
    def landing(self) -> tuple[QueuePod, ...]:
        """Members of `begun` that have no node yet."""
        return tuple(pod for pod in self.begun if not pod.node)

    @cached_property
    def entrusted(self) -> tuple[QueuePod, ...]:
        """Ungated members without node or Reservation that Kubernetes' scheduler places together by their PodGroup."""
        if self.native is None or not self.native.min_count:
            return ()
        free = (pod for pod in self.pods if not pod.node and not pod.waits_for_gang and pod.scheduling_group)
        return tuple(pod for pod in free if pod.uid not in self.reservations)

    @cached_property
    def satisfied(self) -> bool:
        """True if the match policy is once-satisfied and the minimum was placed once: no member waits for others."""
        if self.gang.match_policy is not MatchPolicy.ONCE_SATISFIED or not self.bound:
            return False
        placed = len(self.bound) >= self.gang.min_available or any(pod.handed_over for pod in self.bound)
        return placed or self.gang.started or (self.native is not None and self.native.scheduled)

    @cached_property
    def needed(self) -> int:
        """Number of members with the gang's gate that must be placed together now."""
        if self.satisfied:
            return 0
        if self.gang.match_policy is MatchPolicy.ONLY_WAITING:
            return max(0, self.gang.min_available - len(self.begun)) if self.gated or not self.pods else 0
        placed = len(self.bound) + len(self.landing) + len(self.entrusted)
        return max(0, self.gang.min_available - self.done - placed)

    @cached_property
    def chosen(self) -> tuple[QueuePod, ...]:
        """Up to `needed` members that are ready: those with a Reservation first, then by priority, age and name."""
        ranked = sorted(
            self.ready, key=lambda p: (p.uid not in self.reservations, -p.priority, p.created_seconds, p.place)
        )
        return tuple(ranked[: self.needed])


@dataclass(frozen=True)
class GangGroup:
    """Gangs that are placed together; most groups have one gang.

    `absent` are gangs that the group names but that do not exist. `succeeded` is True if a member used its Reservation
    and is gone.
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
        """The Reservations of the group by the member's UID."""
        return {uid: reservation for members in self.gangs for uid, reservation in members.reservations.items()}

    @cached_property
    def pods(self) -> tuple[QueuePod, ...]:
        """All members of the gangs that have not ended."""
        return tuple(pod for members in self.gangs for pod in members.pods)

    @cached_property
    def awaiting(self) -> tuple[QueuePod, ...]:
        """Members with the gang's gate that have a Reservation."""
        return tuple(pod for members in self.gangs for pod in members.awaiting)

    @property
    def problem(self) -> str:
        """The reason for which the group cannot be placed, or ""."""
        return next((m.gang.problem for m in self.gangs if m.gang.problem), "")

    @property
    def begun(self) -> bool:
        """True if some members were admitted to their reserved capacity; then the others must be admitted as well."""
        return self.succeeded or any(members.begun for members in self.gangs)

    @property
    def strict(self) -> bool:
        """True if a single member without a node causes all reserved capacity to be released."""
        return any(members.gang.mode is GangMode.STRICT for members in self.gangs)

    @property
    def priority(self) -> int:
        """The highest priority of the members."""
        return max((pod.priority for pod in self.pods), default=0)

    @property
    def since_seconds(self) -> float:
        """Unix time since which the group waits: creation of its last needed member, or its first until all exist."""
        complete = len(self.chosen) == self.needed > 0
        moments = [pod.created_seconds for pod in (self.chosen if complete else self.pods)]
        if not moments:
            return max((members.gang.created_seconds for members in self.gangs), default=0.0)
        return max(moments) if complete else min(moments)

    def wait_seconds(self) -> float:
        """Return how many seconds the group may wait: the shortest waiting time of its gangs."""
        return min(members.gang.wait_seconds or GANG_WAIT_SECONDS for members in self.gangs)

    def placed(self, members: GangMembers) -> int:
        """Return how many members of one gang are bound or have reserved capacity."""
        placeable = [pod for pod in members.pods if not pod.node and self.has_capacity(pod)]
        return len(members.bound) + len(placeable)

    def has_capacity(self, pod: QueuePod) -> bool:
        """Return whether the member's capacity is reserved, or it requests nothing that could be reserved."""
        reservation = self.reservations.get(pod.uid)
        return (reservation is not None and has_reserved_capacity(reservation)) or not any(pod.requests.values())


def gang_groups(view: QueueView) -> tuple[tuple[GangGroup, ...], tuple[Reservation, ...]]:
    """Return all gang groups, and the Reservations of deleted members, which are not needed any more."""
    pods: dict[str, list[QueuePod]] = {}
    for pod in view.pods:
        if pod.gang and not pod.deleting and not pod.placeholder:
            pods.setdefault(pod.gang, []).append(pod)
    reservations = [r for r in view.reservations if GANG_LABEL in r.labels and GANG_ANNOTATION in r.annotations]
    by_uid = {member_uid(reservation): reservation for reservation in reservations}
    living = {pod.uid for group in pods.values() for pod in group}
    memberless = tuple(reservation for reservation in reservations if member_uid(reservation) not in living)
    used = {
        reservation.annotations[GANG_ANNOTATION]
        for reservation in memberless
        if reservation.status.phase is Phase.SUCCEEDED
    }
    gangs = dict(view.gangs)
    for key in pods.keys() - gangs.keys():
        namespace, _, name = key.partition("/")
        problem = f"gang {key}: no PodGroup or pod defines it"
        gangs[key] = Gang(namespace, name, 0, 0, group=(key,), problem=problem)
    natives = view.native_groups or {}
    ended: Counter[tuple[str, str]] = Counter()
    for (key, phase, _), count in view.ended_members.items():
        ended[key, phase] += count
    by_key = {
        key: GangMembers(
            gang,
            own := tuple(sorted(pods.get(key, ()), key=lambda pod: pod.place)),
            {pod.uid: by_uid[pod.uid] for pod in own if pod.uid in by_uid},
            natives.get(key),
            succeeded=ended[key, "Succeeded"],
            failed=ended[key, "Failed"],
            done=view.done_members.get(key, 0),
        )
        for key, gang in gangs.items()
    }
    alike: dict[tuple[str, ...], list[str]] = {}
    for key in sorted(by_key):  # every gang once, with those that it names, as far as they exist and name it, too
        alike.setdefault(by_key[key].gang.group or (key,), []).append(key)
    groups = []
    for names, present in alike.items():
        absent = tuple(name for name in names if name not in by_key)
        members_of_all = tuple(by_key[key] for key in present)
        groups.append(GangGroup(present[0], members_of_all, absent, not used.isdisjoint(present)))
    awaiting = {members.gang.key for group in groups if group.awaiting for members in group.gangs}
    needless = tuple(
        reservation
        for reservation in memberless
        if reservation.status.phase is not Phase.SUCCEEDED or reservation.annotations[GANG_ANNOTATION] not in awaiting
    )
    return tuple(groups), needless


def left_to_scheduler(members: GangMembers, view: QueueView, settings: QueueSettings) -> bool:
    """Return whether Kubernetes' scheduler places the gang; settings, API server and the gang must all allow it."""
    if settings.gangs_by == "own" or view.native_groups is None or inexpressible_fields(members.gang):
        return False
    placed_by_us = members.native is not None and not members.native.min_count
    waiting = [pod for pod in members.pods if not pod.node]
    return not placed_by_us and not members.satisfied and all(pod.scheduling_group for pod in waiting)


def group_intents(view: QueueView, groups: Iterable[GangGroup], settings: QueueSettings) -> Iterator[Create]:
    """Yield creations of missing PodGroups that pods name; if kube-scheduler places the gang, once it is complete."""
    if view.native_groups is None:
        return
    for members in (members for group in groups for members in group.gangs):
        native_pods = [pod for pod in members.pods if pod.scheduling_group and not pod.node]
        if not native_pods or members.native is not None or members.gang.problem:
            continue
        owners = [(pod.name, pod.uid) for pod in native_pods]
        gang, asker = members.gang, asker_of(native_pods[0], members.gang)
        if not left_to_scheduler(members, view, settings):
            yield native_group(gang.namespace, gang.name, 0, owners, f"cotenant places gang {gang.key} itself", asker)
        elif not all(pod.waits_for_gang for pod in native_pods):
            yield native_group(
                gang.namespace, gang.name, 0, owners, f"pods of gang {gang.key} name this PodGroup", asker
            )
        elif len(members.gated) >= members.needed:
            why = f"Kubernetes' scheduler places gang {gang.key}"
            yield native_group(gang.namespace, gang.name, gang.min_available, owners, why, asker)


def placed_by(members: GangMembers, view: QueueView, settings: QueueSettings) -> str:
    """Return "kubernetes" or "cotenant": who places the gang; "cotenant: REASON" if it is known why not Kubernetes."""
    if members.native is not None and members.native.min_count:
        return "kubernetes"
    if settings.gangs_by == "own" or view.native_groups is None:
        return "cotenant"
    if left_to_scheduler(members, view, settings):
        return "kubernetes"
    unstamped = "some pods of the gang name no Kubernetes PodGroup" if members.pods and not members.satisfied else ""
    because = inexpressible_fields(members.gang) or unstamped
    return f"cotenant: {because}" if because else "cotenant"
