"""Status of a PodGroup: phase and counts, as Koordinator's and scheduler-plugins' controllers write them. Pure.

Finished: as many members succeeded as must start together; Failed: a member failed, and so many have ended or run. The
object has no status subresource in either project's definition, so the status is applied to the object itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from cotenant.base.kubernetes.intent import Address, Apply
from cotenant.base.kubernetes.moments import moment
from cotenant.base.kubernetes.protocol import QUOTA_GROUP
from cotenant.scheduler_ext.queues.gangs.group import GangMembers
from cotenant.scheduler_ext.queues.gangs.state import GangStatus
from cotenant.scheduler_ext.queues.model.report import GangState

ENDED: Final = frozenset({"Finished", "Failed"})
BEGUN: Final = frozenset({"Scheduled", "Running"})
_OPENING_STATES: Final = frozenset({GangState.PLACING, GangState.OPENING})


def pod_group_intents(statuses: Iterable[GangStatus], now_seconds: float) -> Iterator[Apply]:
    """Writes for the PodGroups whose status says something else."""
    for status in statuses:
        for members in status.group.gangs:
            if members.gang.from_pod_group and (changed := changed_status(members, status.state, now_seconds)):
                gang = members.gang
                address = Address(QUOTA_GROUP, "podgroups", gang.name, gang.namespace)
                body = address.manifest("PodGroup", {"uid": gang.uid} if gang.uid else {}, status=changed)
                yield Apply(address, body, why=f"it is {changed['phase']}")


def changed_status(members: GangMembers, state: GangState, now_seconds: float) -> dict[str, Any]:
    """The status that the PodGroup should have; {} when it has it."""
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
    """Pending, PreScheduling (complete, waits for capacity), Scheduling, Scheduled, Running, Finished or Failed.

    A started one stays so until it has ended, and one that ended when its pods are deleted.
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
