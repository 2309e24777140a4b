"""Report rows of gangs, and the status of PodGroups in Koordinator's and scheduler-plugins' form. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from cotenant.base.kubernetes.intent import Address, Apply
from cotenant.base.kubernetes.moments import moment
from cotenant.base.kubernetes.protocol import QUOTA_GROUP
from cotenant.scheduler_ext.queues.gangs.group import GangMembers, placed_by
from cotenant.scheduler_ext.queues.gangs.state import GangStatus
from cotenant.scheduler_ext.queues.model.report import GangRow, GangState, QueueReport, WaitingPodRow
from cotenant.scheduler_ext.queues.model.settings import QueueSettings
from cotenant.scheduler_ext.queues.view import QueueView

ENDED: Final = frozenset({"Finished", "Failed"})
BEGUN: Final = frozenset({"Scheduled", "Running"})
_OPENING_STATES: Final = frozenset({GangState.PLACING, GangState.OPENING})


def with_gangs(
    report: QueueReport, statuses: Sequence[GangStatus], view: QueueView, settings: QueueSettings
) -> QueueReport:
    """Return the report of quotas with the rows and problems of gangs added."""
    waiting = (*report.waiting, *gang_waiting_rows(statuses))
    problems = (*report.problems, *gang_problems(statuses))
    return replace(report, waiting=waiting, gangs=tuple(gang_rows(statuses, view, settings)), problems=problems)


def gang_problems(statuses: Iterable[GangStatus]) -> Iterator[tuple[str, str]]:
    """Yield (object, problem) for gangs that cannot be used, and for invalid values that were replaced by a default."""
    for status in statuses:
        for members in status.group.gangs:
            source = members.gang.source or f"podgroups/{members.gang.key}"
            invalid = [members.gang.problem] if status.state is GangState.INVALID and members.gang.problem else []
            for note in (*members.gang.notes, *invalid):
                yield source, note.removeprefix(f"{source}: ")


def gang_rows(statuses: Iterable[GangStatus], view: QueueView, settings: QueueSettings) -> Iterator[GangRow]:
    """Yield a row per gang, with the state of its group."""
    for status in statuses:
        group = status.group
        for members in group.gangs:
            yield GangRow(
                namespace=members.gang.namespace,
                gang=members.gang.name,
                quota=next((pod.quota for pod in members.pods if pod.quota), ""),
                state=status.state,
                members=len(members.pods),
                placed=group.placed(members),
                min_available=members.gang.min_available,
                total=members.gang.total,
                since_seconds=group.since_seconds,
                reason=status.reason,
                placed_by=placed_by(members, view, settings),
            )


def gang_waiting_rows(statuses: Iterable[GangStatus]) -> Iterator[WaitingPodRow]:
    """Yield a row per member with the gang's gate, except members that wait for a quota, which already have a row."""
    for status in statuses:
        for members in status.group.gangs:
            for pod in members.gated:
                if not pod.waits_for_quota:
                    yield WaitingPodRow(
                        namespace=pod.namespace,
                        pod=pod.name,
                        quota=pod.quota,
                        gang=members.gang.key,
                        since_seconds=pod.created_seconds,
                        position=status.position,
                        code=status.code.value,
                        reason=status.reason,
                    )


def pod_group_intents(statuses: Iterable[GangStatus], now_seconds: float) -> Iterator[Apply]:
    """Yield the writes of PodGroups whose status has changed."""
    for status in statuses:
        for members in status.group.gangs:
            if members.gang.from_pod_group and (changed := changed_status(members, status.state, now_seconds)):
                gang = members.gang
                address = Address(QUOTA_GROUP, "podgroups", gang.name, gang.namespace)
                body = address.manifest("PodGroup", {"uid": gang.uid} if gang.uid else {}, status=changed)
                yield Apply(address, body, why=f"it is {changed['phase']}")


def changed_status(members: GangMembers, state: GangState, now_seconds: float) -> dict[str, Any]:
    """Return the status that the PodGroup should have; {} if it already has it."""
    before = members.gang.status
    status: dict[str, Any] = {
        "phase": phase_of(members, state),
        "scheduled": len(members.bound),
        "running": sum(pod.phase == "Running" for pod in members.pods),
        "succeeded": members.succeeded,
        "failed": members.failed,
    }
    started = before.get("scheduleStartTime")
    if not started and (state in _OPENING_STATES or members.bound):
        started = moment(now_seconds)
    status |= {"scheduleStartTime": started} if started else {}
    if before.get("phase") in ENDED and not (members.pods or members.succeeded or members.failed):
        return {}
    unchanged = all(before.get(name, 0 if isinstance(value, int) else None) == value for name, value in status.items())
    return {} if unchanged and before.get("phase") else status


def phase_of(members: GangMembers, state: GangState) -> str:
    """Return a gang's phase: what at least `min_available` members have reached, Pending if fewer exist.

    They exist (PreScheduling), get nodes (Scheduling), have nodes (Scheduled), run (Running), ended (Finished, Failed).
    A once-satisfied gang with a bound member stays Scheduled or Running; a gang without pods keeps its last phase.
    """
    before, least = str(members.gang.status.get("phase") or ""), members.gang.min_available
    bound, running = len(members.bound), sum(pod.phase == "Running" for pod in members.pods)
    over = members.succeeded + members.failed + running
    if members.succeeded >= least > 0 or (members.failed and over >= least > 0):
        return "Finished" if members.succeeded >= least else "Failed"
    if not members.pods:
        return before or "Pending"
    if bound >= least > 0:
        return "Running" if running >= least else "Scheduled"
    if members.satisfied and before in BEGUN:
        return before
    if bound or state in _OPENING_STATES:
        return "Scheduling"
    return "PreScheduling" if len(members.pods) >= least > 0 else "Pending"
