"""What people read of gangs: one row per gang, one row per member that waits for its gang. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from cotenant.scheduler_ext.queues.gangs.native import placed_by
from cotenant.scheduler_ext.queues.gangs.state import GangStatus
from cotenant.scheduler_ext.queues.model.report import GangRow, GangState, QueueReport, WaitingPodRow
from cotenant.scheduler_ext.queues.model.settings import QueueSettings
from cotenant.scheduler_ext.queues.view import QueueView


def with_gangs(
    report: QueueReport, statuses: Sequence[GangStatus], view: QueueView, settings: QueueSettings
) -> QueueReport:
    """The report of quotas, and what gangs add to it."""
    waiting = (*report.waiting, *gang_waiting_rows(statuses))
    problems = (*report.problems, *gang_problems(statuses))
    return replace(report, waiting=waiting, gangs=tuple(gang_rows(statuses, view, settings)), problems=problems)


def gang_problems(statuses: Iterable[GangStatus]) -> Iterator[tuple[str, str]]:
    """(Object, what is wrong with it) of gangs that cannot be used, and of values for which a default is taken."""
    for status in statuses:
        for members in status.group.gangs:
            source = members.gang.source or f"podgroups/{members.gang.key}"
            invalid = [members.gang.problem] if status.state is GangState.INVALID and members.gang.problem else []
            for words in (*members.gang.notes, *invalid):
                yield source, words.removeprefix(f"{source}: ")


def gang_rows(statuses: Iterable[GangStatus], view: QueueView, settings: QueueSettings) -> Iterator[GangRow]:
    """One row per gang, with its group's state."""
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
    """One row per member behind the gang's gate; those that wait for their quota besides have a row as such."""
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
