"""The whole decision of the queue controller: computes its writes and report from the observed state. Pure.

It also renews the manager's promise to remove gates, a time in the SwapGuard object, or withdraws it at the end.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from cotenant.base.kubernetes.intent import Create, Intent, Patch
from cotenant.base.kubernetes.moments import micro_moment
from cotenant.base.kubernetes.protocol import QUOTA_GATE
from cotenant.scheduler_ext.queues.gangs.report import gang_problems, pod_group_intents, with_gangs
from cotenant.scheduler_ext.queues.gangs.state import gangs_decided
from cotenant.scheduler_ext.queues.model.gang import native_group
from cotenant.scheduler_ext.queues.model.queue_pod import QueuePod
from cotenant.scheduler_ext.queues.model.report import QueueReport
from cotenant.scheduler_ext.queues.model.settings import QueueSettings
from cotenant.scheduler_ext.queues.quota_admission import quota_admission
from cotenant.scheduler_ext.queues.quota_queue import queue_order
from cotenant.scheduler_ext.queues.quota_report import quota_problems, report_of
from cotenant.scheduler_ext.queues.quota_status import root_quota_intents, status_intents
from cotenant.scheduler_ext.queues.revoke import borrows_since, over_since, preemptions, revocation
from cotenant.scheduler_ext.queues.view import QueueView
from cotenant.scheduler_ext.reservations.guard import ADDRESS, MANAGED, Guard
from cotenant.scheduler_ext.reservations.pod_gate import OUR_GATES

LONGEST_SECONDS: Final = 30.0
"""The controller runs again after this time at the latest."""


@dataclass(frozen=True, slots=True)
class QueueWrites:
    """The result of one run: what to write and to report, and the values with which the next run's view starts.

    `notes` are (object, message). `released` are UIDs of pods whose quota gate one of the writes removes: once it has
    succeeded, the next view's `released` has them until the watched pods show it. After `wake_seconds` the result may
    change although no object does.
    """

    intents: tuple[Intent, ...] = ()
    notes: tuple[tuple[str, str], ...] = ()
    report: QueueReport = field(default_factory=lambda: QueueReport(0.0))
    over_since: Mapping[str, float] = field(default_factory=dict)
    borrows_since: Mapping[str, float] = field(default_factory=dict)
    attempts: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    released: frozenset[str] = frozenset()
    wake_seconds: float = LONGEST_SECONDS


def decide(view: QueueView, settings: QueueSettings) -> QueueWrites:
    """Return writes that admit what fits its quota and evict from quotas above runtime for too long; and a report."""
    admission = quota_admission(view, settings)
    since, borrows = over_since(view, admission), borrows_since(view, admission)
    revoked, revocation_notes = revocation(view, settings, admission, since)
    gangs = gangs_decided(view, settings)
    # members of gangs first, for a gang goes as a whole; the others as queues go, whatever their quotas
    let_go = sorted(admission.admitted_pods, key=lambda admitted: (not admitted.pod.gang, *queue_order(admitted.pod)))
    # when a quota has to give pods back, or a refused eviction is tried again
    moments = [moment + settings.delay_evict_seconds for moment in since.values()] if settings.revoke else []
    moments += view.evictions_refused.values() if moments or settings.preempt else ()
    later = [moment - view.now_seconds for moment in moments if moment >= view.now_seconds]
    return QueueWrites(
        intents=(
            *(admitted.pod.gate_removal(admitted.why, QUOTA_GATE) for admitted in let_go),
            *revoked,
            *preemptions(view, settings, admission),
            *gangs.intents,
            *root_quota_intents(view),
            *status_intents(view, admission, since, borrows),
            *pod_group_intents(gangs.statuses, view.now_seconds),
        ),
        notes=(*quota_problems(admission), *gang_problems(gangs.statuses), *revocation_notes),
        report=with_gangs(report_of(view, admission, since, borrows), gangs.statuses, view, settings),
        over_since=since,
        borrows_since=borrows,
        attempts=gangs.attempts,
        released=frozenset(admitted.pod.uid for admitted in admission.admitted_pods),
        wake_seconds=min(gangs.wake_seconds, max(0.1, min(later, default=LONGEST_SECONDS)), LONGEST_SECONDS),
    )


def renew_promise(guard: Guard, served_seconds: float, now_seconds: float) -> tuple[Intent, ...]:
    """Return the write that extends the manager's promise to remove gates; nothing if it lasts long enough."""
    remaining = guard.queues_served_until_seconds - now_seconds
    if served_seconds * 2 / 3 <= remaining <= 2 * served_seconds:
        return ()
    promise = _promise(guard, now_seconds + served_seconds, "the manager handles waiting pods")
    # The first one, and one after a pause, changes what the webhook does; the others only go on.
    return (replace(promise, routine=0 < remaining <= served_seconds) if isinstance(promise, Patch) else promise,)


def renewal_seconds(guard: Guard, served_seconds: float, now_seconds: float) -> float:
    """Return the seconds until the manager's promise to remove gates has to be renewed."""
    return max(0.0, guard.queues_served_until_seconds - served_seconds * 2 / 3 - now_seconds)


def withdraw_queue_promise(
    guard: Guard, pods: Iterable[QueuePod], now_seconds: float, native_groups: Container[tuple[str, str]] = ()
) -> tuple[Intent, ...]:
    """Return the writes that end gating: new pods get no gate any more, and the gates of waiting pods are removed.

    Used when the manager ends, and when another scheduler handles quotas and gangs. Members of gangs also lose the gate
    of their Reservation, because no manager hands capacity to them. A PodGroup of Kubernetes that a waiting member
    names and that is not in `native_groups`, (namespace, name), is created: the pod is not scheduled without it.
    """
    waiting = [p for p in pods if (p.waits_for_quota or p.waits_for_gang) and not p.node and not p.deleting]
    scheduling_groups = {(p.namespace, p.scheduling_group) for p in waiting if p.scheduling_group and p.waits_for_gang}
    absent = sorted(place for place in scheduling_groups if place not in native_groups)
    groups = (native_group(*place, why="no manager handles this gang") for place in absent)
    revoked = guard.queues_served_until_seconds > now_seconds
    ended = (_promise(guard, now_seconds, "no manager handles queues any more"),) if revoked else ()
    gates = ((pod, OUR_GATES if pod.waits_for_gang else (QUOTA_GATE,)) for pod in waiting)
    return (*ended, *groups, *(pod.gate_removal("no manager handles queues", *ours) for pod, ours in gates))


def _promise(guard: Guard, until_seconds: float, why: str) -> Intent:
    """Return the write of the promise, which creates the object if it is missing."""
    until = micro_moment(until_seconds)
    if guard.version:
        return Patch(ADDRESS, ({"op": "add", "path": "/spec/queuesServedUntil", "value": until},), why=why)
    body = ADDRESS.manifest("SwapGuard", {"labels": MANAGED}, spec={"queuesServedUntil": until})
    return Create(ADDRESS, body, why=why)
