"""Decides the state of each gang: all of it gets capacity and starts, or no capacity is reserved. Pure.

    Incomplete -> WaitsForQuota -> Queued | NoRoom -> Placing -> Opening -> Running
                                      ^------------------'   all capacity is released; the gang backs off

Every state follows from objects (pods and their gates, Reservations of members), so a crash may come between any two
writes. Only the number of failed attempts is kept in memory, and may be lost. The gates of members are removed after
the last one's capacity is reserved; from then on all reserved capacity is handed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from cotenant.base.kubernetes.intent import Delete, Intent
from cotenant.base.kubernetes.pod_request import sum_amounts
from cotenant.base.kubernetes.protocol import GANG_GATE
from cotenant.base.reasons import Reason
from cotenant.base.text import agree, in_time
from cotenant.scheduler_ext.queues.gangs.group import GangGroup, gang_groups, group_intents, left_to_scheduler
from cotenant.scheduler_ext.queues.gangs.reservations import (
    asker_of,
    has_bound_placeholder,
    member_reservation_creation,
    placeholder_stems,
    refusal,
)
from cotenant.scheduler_ext.queues.model.queue_pod import Placement, QueuePod
from cotenant.scheduler_ext.queues.model.report import GangState
from cotenant.scheduler_ext.queues.model.settings import QueueSettings
from cotenant.scheduler_ext.queues.packing import FreeCapacity, MemberGroup, member_groups, shortage_text
from cotenant.scheduler_ext.queues.view import QueueView
from cotenant.scheduler_ext.reservations.model.life_cycle import Phase
from cotenant.scheduler_ext.reservations.model.reservation import Reservation
from cotenant.scheduler_ext.reservations.status import address_of

LONGEST_SECONDS: Final = 30.0
WAITING: Final = frozenset({GangState.INCOMPLETE, GangState.QUEUED, GangState.NO_CAPACITY, GangState.SCHEDULING})
"""States in which the gang's waiting time counts."""
LEFT: Final = "placed by Kubernetes' gang scheduling"


@dataclass(frozen=True, slots=True)
class GangStatus:
    """The state of a gang group and its reason; `position` is in the queue of gangs, from 1, or 0 outside of it."""

    group: GangGroup
    state: GangState
    code: Reason = Reason.OK
    reason: str = ""
    position: int = 0


@dataclass(frozen=True, slots=True)
class GangDecision:
    """The result of one run for gangs: writes, states, and the `attempts` that the next run's `QueueView` needs."""

    intents: tuple[Intent, ...] = ()
    statuses: tuple[GangStatus, ...] = ()
    attempts: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    wake_seconds: float = LONGEST_SECONDS


def gangs_decided(view: QueueView, settings: QueueSettings) -> GangDecision:
    """Decide on gangs: reserve for complete ones, admit one once all is reserved, release all if it takes too long."""
    groups, needless = gang_groups(view)
    work = _GangRound(view, settings)
    work.release(needless, "the gang member that needed this reservation is gone")
    for group in groups:
        work.judge(group)
    work.place()
    statuses = tuple(work.timed(status) for status in work.statuses)
    work.intents += group_intents(view, groups, settings)
    # pods that name no gang of ours (any more): none is placed with them
    stray = (pod for pod in view.pods if pod.waits_for_gang and not (pod.gang or pod.node or pod.deleting))
    work.let_go((pod for pod in stray if not pod.placeholder), "the pod belongs to no gang")
    keys = {group.key for group in groups}
    attempts = {key: value for key, value in work.attempts.items() if key in keys}
    return GangDecision(tuple(work.intents), statuses, attempts, work.wake())


class _GangRound:
    def __init__(self, view: QueueView, settings: QueueSettings) -> None:
        self.view, self.settings, self.now = view, settings, view.now_seconds
        self.attempts = dict(view.attempts)
        self.intents: list[Intent] = []
        self.statuses: list[GangStatus] = []
        self.queue: list[GangGroup] = []
        self.placing: list[GangGroup] = []
        self.moments: list[float] = []

    def judge(self, group: GangGroup) -> None:
        """Decide everything about a group except its place in the queue, for which all groups must be known."""
        self.tidy(group)
        if group.begun and group.awaiting:
            self.open(group)
        elif group.problem:
            self.release_all(group, GangState.INVALID, Reason.GANG_INVALID, group.problem)
        elif missing := _incomplete_group_reason(group):
            self.release_all(group, GangState.INCOMPLETE, Reason.GANG_INCOMPLETE, missing)
        elif group.needed == 0:
            self.run(group)
        elif len(group.chosen) < group.needed:
            self.release_all(group, *_blocked_state(group))
        elif len(group.gangs) == 1 and left_to_scheduler(group.gangs[0], self.view, self.settings):
            self.entrust(group)
        elif group.awaiting or all(group.has_capacity(pod) for pod in group.chosen):
            self.advance(group)
        else:
            self.queue.append(group)

    def tidy(self, group: GangGroup) -> None:
        """Delete Reservations that were used, and those whose hand-over failed: the pod may take the capacity."""
        stems = placeholder_stems(self.view.pods) if any(m.landing for m in group.gangs) else frozenset()
        for members in group.gangs:
            for pod in members.begun:
                reservation = members.reservations[pod.uid]
                if pod.node and not group.awaiting:
                    self.release([reservation], f"{pod.place} runs")
                elif not pod.node and not pod.gates and has_bound_placeholder(reservation, stems):
                    self.release([reservation], f"the hand-over took too long; {pod.place} may take the capacity")

    def open(self, group: GangGroup) -> None:
        """Admit the members whose capacity is reserved; the Reservation controller hands it over."""
        self.let_go(group.awaiting, f"capacity for all pods of gang {group.key} is reserved")
        self.stand(group, GangState.OPENING, Reason.GANG_OPENING)

    def run(self, group: GangGroup) -> None:
        """Admit all ready members one by one, because those that must start together have started."""
        self.attempts.pop(group.key, None)
        self.let_go((pod for members in group.gangs for pod in members.ready), f"gang {group.key} has started")
        # the scheduler has it and has not placed its minimum
        entrusted = (m for m in group.gangs if m.entrusted and len(m.bound) < m.gang.min_available)
        if (waiting := next(entrusted, None)) is not None:
            text = (waiting.native and waiting.native.message) or LEFT
            return self.stand(group, GangState.SCHEDULING, Reason.GANG_LEFT_TO_SCHEDULER, text)
        landing = any(members.landing for members in group.gangs)
        state = GangState.OPENING if landing else GangState.RUNNING
        return self.stand(group, state, Reason.GANG_OPENING if landing else Reason.OK)

    def entrust(self, group: GangGroup) -> None:
        """Admit a complete gang that Kubernetes' scheduler places, once its PodGroup exists."""
        (members,) = group.gangs
        least, native = members.gang.min_available, members.native
        if native is not None and native.min_count != least:
            text = f"its Kubernetes PodGroup needs {native.min_count} pods, the gang {least}; delete the gang's pods"
            return self.release_all(group, GangState.INVALID, Reason.GANG_INVALID, text)
        if native is not None:
            self.let_go(members.ready, f"Kubernetes' scheduler places gang {group.key}")
        text = LEFT if native is not None else self.with_refusals(LEFT, group, members.ready)
        return self.release_all(group, GangState.SCHEDULING, Reason.GANG_LEFT_TO_SCHEDULER, text)

    def advance(self, group: GangGroup) -> None:
        """Advance a group that is being placed: admit it if all capacity is reserved, else continue or release all."""
        failures, not_before = self.attempts.get(group.key, (0, 0.0))
        if self.now < not_before:
            return self.release_all(group, GangState.QUEUED, Reason.GANG_BACKS_OFF, self.pause(not_before))
        if all(group.has_capacity(pod) for pod in group.chosen):
            self.let_go(group.chosen, f"capacity for all pods of gang {group.key} is reserved")
            return self.stand(group, GangState.OPENING, Reason.GANG_OPENING)
        limit = min(self.settings.gang_place_seconds, group.wait_seconds())
        deadline = min(reservation.created_seconds for reservation in group.reservations.values()) + limit
        if why := self.failure(group, deadline, limit):
            until = self.now + back_off_seconds(failures + 1, self.settings)
            self.attempts[group.key] = (failures + 1, until)
            return self.release_all(group, GangState.QUEUED, Reason.GANG_BACKS_OFF, f"{why}; {self.pause(until)}")
        self.moments.append(deadline)
        return self.begin(group)

    def failure(self, group: GangGroup, deadline_seconds: float, limit_seconds: float) -> str:
        """Return why the attempt to place the group has failed, or ""."""
        ours = [group.reservations[pod.uid] for pod in group.chosen if pod.uid in group.reservations]
        refused = [
            reservation
            for reservation in ours
            if refusal(reservation) and (group.strict or reservation.status.phase is Phase.FAILED)
        ]
        if refused:
            return f"no node fits {len(refused)} of {len(group.chosen)} members: {refusal(refused[0])}"
        if self.now >= deadline_seconds:
            lacking = sum(not group.has_capacity(pod) for pod in group.chosen)
            return f"{lacking} of {len(group.chosen)} members had no capacity after {limit_seconds:g} s"
        return ""

    def begin(self, group: GangGroup) -> None:
        """Reserve capacity for every member that has none, the largest first, so that small ones fit between them."""
        lacking = [p for p in group.chosen if p.uid not in group.reservations and any(p.requests.values())]
        gangs = {members.gang.key: members.gang for members in group.gangs}
        for pod in sorted(lacking, key=lambda p: [amount for _, amount in sorted(p.requests.items())], reverse=True):
            self.intents.append(member_reservation_creation(pod, gangs[pod.gang], self.settings))
        placed = sum(group.has_capacity(pod) for pod in group.chosen)
        text = f"capacity is reserved for {placed} of {len(group.chosen)} members"
        self.placing.append(group)
        self.stand(group, GangState.PLACING, Reason.GANG_PLACING, self.with_refusals(text, group, lacking))

    def with_refusals(self, text: str, group: GangGroup, pods: Iterable[QueuePod]) -> str:
        """Return the text with the reasons for which objects of these pods could not be created."""
        gangs = {members.gang.key: members.gang for members in group.gangs}
        refused = (self.view.unmade.get(asker_of(pod, gangs[pod.gang])) for pod in pods)
        return "; ".join([text, *dict.fromkeys(filter(None, refused))])

    def place(self) -> None:
        """Start to place queued groups that fit beside those that are being placed."""
        if not self.queue:
            return
        capacity = _Capacity(self.view, [*self.queue, *self.placing], [s.group for s in self.statuses])
        for group in self.placing:
            capacity.take(member_groups(pod for pod in group.chosen if not group.has_capacity(pod)))
        for position, group in enumerate(sorted(self.queue, key=self.rank), 1):
            _, not_before = self.attempts.get(group.key, (0, 0.0))
            if self.now < not_before:
                self.moments.append(not_before)
                self.stand(group, GangState.QUEUED, Reason.GANG_BACKS_OFF, self.pause(not_before), position)
            elif refused := capacity.refusal(member_groups(group.chosen)):
                state, code, text = refused
                self.stand(group, state, code, text, position)
            else:
                self.begin(group)
                capacity.take(member_groups(group.chosen))

    def rank(self, group: GangGroup) -> tuple[bool, int, float, str]:
        """Return a sort key: groups that have waited too long come last, the others by priority and age."""
        late = self.now - group.since_seconds >= group.wait_seconds()
        return late, -group.priority, group.since_seconds, group.key

    def release_all(self, group: GangGroup, state: GangState, code: Reason, text: str) -> None:
        """Release all capacity that is reserved for members with the gang's gate."""
        self.release((group.reservations[pod.uid] for pod in group.awaiting), text)
        self.stand(group, state, code, text)

    def let_go(self, pods: Iterable[QueuePod], why: str) -> None:
        """Remove the gang's gate from pods."""
        self.intents += [pod.gate_removal(why, GANG_GATE) for pod in pods]

    def release(self, reservations: Iterable[Reservation], why: str) -> None:
        """Delete Reservations; their placeholders are deleted with them."""
        self.intents += [Delete(address_of(each), each.uid, why) for each in reservations if not each.deleting]

    def stand(self, group: GangGroup, state: GangState, code: Reason, text: str = "", position: int = 0) -> None:
        """Record the state of a group."""
        self.statuses.append(GangStatus(group, state, code, text, position))

    def timed(self, status: GangStatus) -> GangStatus:
        """Return TimedOut for a group that has waited too long; it stays in the queue, behind the others."""
        group = status.group
        wait = group.wait_seconds()
        if status.state not in WAITING or not group.pods:
            return status
        if self.now - group.since_seconds < wait:
            self.moments.append(group.since_seconds + wait)
            return status
        return replace(status, state=GangState.TIMED_OUT, reason=f"the gang waited {wait:g} s in vain: {status.reason}")

    def pause(self, until_seconds: float) -> str:
        """Return a phrase with the time until the next attempt."""
        return f"next attempt {in_time(until_seconds - self.now)}"

    def wake(self) -> float:
        """Return the seconds until the next deadline, at which the result can change although no object does."""
        return max(0.0, min((m - self.now for m in self.moments if m > self.now), default=LONGEST_SECONDS))


class _Capacity:
    """Free capacity of the nodes in this run: without bound pods and without gangs that are being placed."""

    def __init__(self, view: QueueView, waiting: Sequence[GangGroup], others: Sequence[GangGroup]) -> None:
        names = {name for group in waiting for pod in group.chosen for name in pod.requests}
        self.empty = FreeCapacity.of(view.nodes, names)
        # handed over right now, by node: the placeholder is gone, and the member is not bound yet
        landing = [(pod, m.reservations[pod.uid]) for g in others for m in g.gangs for pod in m.landing]
        stems = placeholder_stems(view.pods) if landing else frozenset()
        taken: dict[str, dict[str, int]] = {}
        for pod, reservation in landing:
            if reservation.status.node and not has_bound_placeholder(reservation, stems):
                needs = MemberGroup(pod.requests, Placement(), 1).needs
                taken[reservation.status.node] = sum_amounts((taken.get(reservation.status.node, {}), needs))
        self.free = FreeCapacity.of(view.nodes, names, view.pods).without(taken)
        self.busy = self.crowded = False

    def take(self, members: Sequence[MemberGroup]) -> None:
        """Subtract members that are being placed; if it is not certain that they fit, no other gang starts."""
        after = self.free.placed(members)
        self.busy, self.crowded = True, self.crowded or after is None
        self.free = after or self.free

    def refusal(self, members: Sequence[MemberGroup]) -> tuple[GangState, Reason, str] | None:
        """Return why placing a group cannot start now, or None if it can."""
        if short := self.empty.shortages(members):
            return GangState.NO_CAPACITY, Reason.GANG_NEVER_FITS, f"even empty nodes fall short: {shortage_text(short)}"
        if self.crowded or (self.busy and self.free.placed(members) is None):
            return GangState.QUEUED, Reason.GANG_BEHIND_ANOTHER, "another gang is being placed"
        if short := self.free.shortages(members):
            return GangState.NO_CAPACITY, Reason.GANG_NO_CAPACITY_NOW, shortage_text(short)
        return None


def back_off_seconds(failures: int, settings: QueueSettings) -> float:
    """Return the pause in seconds after this number of failed attempts: doubled each time, up to a limit."""
    doublings = min(max(failures - 1, 0), 32)
    return min(settings.back_off_seconds * 2.0**doublings, settings.longest_back_off_seconds)


def _incomplete_group_reason(group: GangGroup) -> str:
    """Return a sentence about what an incomplete group lacks, or ""."""
    if group.absent:
        return f"the gang's group names gangs that do not exist: {', '.join(group.absent)}"
    texts = []
    for members in group.gangs:
        if len(members.gated) < members.needed:
            lacking = members.needed - len(members.gated)
            ungated = len(members.pods) - len(members.bound) - len(members.gated)
            beside = f"; {ungated} pods that the webhook missed are scheduled one by one" if ungated else ""
            least = members.gang.min_available
            texts.append(f"gang {members.gang.key} lacks {lacking} of the {least} pods that start together{beside}")
    return "; ".join(texts)


def _blocked_state(group: GangGroup) -> tuple[GangState, Reason, str]:
    """Return the state of a complete group some members of which have other gates, such as their quota's."""
    waiting = [pod for members in group.gangs for pod in members.gated if pod not in members.ready]
    if any(pod.waits_for_quota for pod in waiting):
        count = sum(pod.waits_for_quota for pod in waiting)
        text = agree(count, "member waits for its quota", "members wait for their quota")
        return GangState.WAITS_FOR_QUOTA, Reason.GANG_WAITS_FOR_QUOTA, text
    gates = sorted({gate for pod in waiting for gate in pod.gates if not gate.startswith("cotenant.dev/")})
    members = agree(len(waiting), "member waits", "members wait")
    return GangState.QUEUED, Reason.GANG_INCOMPLETE, f"{members} for other gates: {', '.join(gates)}"
