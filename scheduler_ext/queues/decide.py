"""The queue controller's whole decision: from what is seen to what is written and shown. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from cotenant.base.kubernetes.intent import Address, Intent, Patch
from cotenant.base.kubernetes.protocol import QUOTA_GATE
from cotenant.scheduler_ext.queues.gangs.report import gang_problems, pod_group_intents, with_gangs
from cotenant.scheduler_ext.queues.gangs.state import gangs_decided
from cotenant.scheduler_ext.queues.model.report import QueueReport
from cotenant.scheduler_ext.queues.model.settings import QueueSettings
from cotenant.scheduler_ext.queues.quota_admission import LetGoPod, quota_admission
from cotenant.scheduler_ext.queues.quota_queue import queue_order
from cotenant.scheduler_ext.queues.quota_report import quota_problems, report_of
from cotenant.scheduler_ext.queues.quota_status import root_quota_intents, status_intents
from cotenant.scheduler_ext.queues.revoke import borrows_since, over_since, preemptions, revocation
from cotenant.scheduler_ext.queues.view import QueueView
from cotenant.scheduler_ext.reservations.model.scheduling_gate import without_gate

LONGEST_SECONDS: Final = 30.0
"""Everything is looked at again after this time at the latest."""


@dataclass(frozen=True, slots=True)
class QueueWrites:
    """The result of a round: what to write, what to show, and what the next round's view starts from.

    notes: (object, what people should read at it). released: uids of pods whose quota gate an intent takes away;
    those whose intent succeeded belong in the next view's `released` until the mirror shows the pod without the gate.
    wake_seconds: until time alone changes something.
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
    """Let pods and gangs go whose quota admits them, take back what is used too long beyond runtime, and explain."""
    admission = quota_admission(view, settings)
    since, borrows = over_since(view, admission), borrows_since(view, admission)
    revoked = revocation(view, settings, admission, since)
    gangs = gangs_decided(view, settings)
    return QueueWrites(
        intents=(
            *(_quota_gate_removal(admitted) for admitted in _in_order(admission.admitted_pods)),
            *revoked.evictions,
            *preemptions(view, settings, admission),
            *gangs.intents,
            *root_quota_intents(view),
            *status_intents(view, admission, since, borrows),
            *pod_group_intents(gangs.statuses, view.now_seconds),
        ),
        notes=(*quota_problems(admission), *gang_problems(gangs.statuses), *revoked.notes),
        report=with_gangs(report_of(view, admission, since, borrows), gangs.statuses, view, settings),
        over_since=since,
        borrows_since=borrows,
        attempts=gangs.attempts,
        released=frozenset(admitted.pod.uid for admitted in admission.admitted_pods),
        wake_seconds=min(gangs.wake_seconds, _wake(view, settings, since)),
    )


def _in_order(admitted_pods: Sequence[LetGoPod]) -> list[LetGoPod]:
    """Members of gangs first, for a gang goes as a whole; the others as queues go, whatever their quotas."""
    return sorted(admitted_pods, key=lambda admitted: (not admitted.pod.gang, *queue_order(admitted.pod)))


def _quota_gate_removal(admitted_pods: LetGoPod) -> Patch:
    """Ends the quota's gate of a pod; refused when the pod changed meanwhile."""
    pod = admitted_pods.pod
    operations = tuple(without_gate(pod.gates, pod.version, QUOTA_GATE))
    return Patch(Address("v1", "pods", pod.name, pod.namespace), operations, why=admitted_pods.why)


def _wake(view: QueueView, settings: QueueSettings, since: Mapping[str, float]) -> float:
    """Seconds until a quota has to give pods back, or a refused eviction is tried again."""
    moments = [moment + settings.delay_evict_seconds for moment in since.values()] if settings.revoke else []
    moments += view.evictions_refused.values() if moments or settings.preempt else ()
    later = [moment - view.now_seconds for moment in moments if moment >= view.now_seconds]
    return min(max(0.1, min(later, default=LONGEST_SECONDS)), LONGEST_SECONDS)
