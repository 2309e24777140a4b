"""EDGE: the controller of queues: reads mirrors, calls `queues.decide`, and sets the gauges of its report.

It is the only writer that admits pods, under the manager's Lease. It remembers admitted pods that the mirror does not
show yet, so that no quota is given out twice, and evicted pods, so that no other pod is evicted for the same need.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from prometheus_client import CollectorRegistry, Gauge

from cotenant.base.controllers.contract import ControllerDecision, ObjectNote
from cotenant.base.controllers.loop import Changes, Feature
from cotenant.base.errors import ClusterAbsent, ClusterConflict, ClusterForbidden, ClusterInvalid, NotLeader
from cotenant.base.kube import Mirror
from cotenant.base.kubernetes.intent import Intent, Outcome
from cotenant.base.kubernetes.protocol import NATIVE_GANG_GROUP
from cotenant.scheduler_ext.queues.decide import (
    QueueWrites,
    decide,
    renew_promise,
    renewal_seconds,
    withdraw_queue_promise,
)
from cotenant.scheduler_ext.queues.model.queue_pod import QueuePod
from cotenant.scheduler_ext.queues.model.report import GangState, QueueReport
from cotenant.scheduler_ext.queues.model.settings import QueueSettings
from cotenant.scheduler_ext.queues.queue_objects import QUEUE_MIRRORS, QueueViewBuilder
from cotenant.scheduler_ext.queues.view import QueueView
from cotenant.scheduler_ext.reservations.controller import guard_of
from cotenant.scheduler_ext.reservations.guard import Guard

LONGEST_SECONDS: Final = 5.0
"""Longest time between two runs if nothing happens."""
SHORTEST_SECONDS: Final = 0.02
DOUBTFUL_SECONDS: Final = 10.0
"""A write whose response was lost counts as done for this time; by then a mirror would show it."""
EVICTION_PAUSE_SECONDS: Final = 30.0
"""Time until an eviction that a disruption budget refused is retried."""
REFUSED: Final = (ClusterConflict, ClusterForbidden, ClusterAbsent, ClusterInvalid, NotLeader)
"""Errors after which it is certain that nothing was written."""
UNOFFERED: Final = (
    "settings/queues.gangs_by",
    f"gangs_by is kubernetes, but the API server serves no PodGroups of {NATIVE_GANG_GROUP}, so cotenant places all "
    "gangs; switch on the feature gate GenericWorkload and this API version, or set gangs_by to own",
)
MOST_ROWS: Final = 4000
"""Most pairs of quota and resource with time series, the first by name: 1,000 quotas of four resources."""
LABELS: Final = ["quota", "resource"]
Place = tuple[str, str]


class QueueController(Feature):
    """The manager's feature `queues`: admits pods of quotas and gangs in order."""

    name = "queues"
    by_server_time = True
    needs: tuple[str, ...] = tuple(name for name in QUEUE_MIRRORS if name != "native-gangs")
    optional: tuple[str, ...] = ("native-gangs",)
    coalesce_seconds = 0.02
    send_seconds = 5.0
    """Longest time of a run's writes: the promise to remove gates can only be renewed between runs."""

    def __init__(
        self, mirrors: Mapping[str, Mirror[Any]], settings: QueueSettings, registry: CollectorRegistry | None = None
    ) -> None:
        """Create the controller without any data. Without a registry it exports no metrics."""
        self.interval_seconds = LONGEST_SECONDS
        self.report = QueueReport(0.0)
        """The report of the latest run, for people."""
        self._mirrors, self._settings = mirrors, settings
        self._builder = QueueViewBuilder(mirrors)
        self._last: QueueWrites | None = None
        self._pods: Mapping[Place, QueuePod] = {}
        self._released: dict[str, tuple[str, float]] = {}
        """UID -> (version of the pod whose gate was removed, Unix time until which that is assumed)."""
        self._evicted: dict[str, float] = {}
        """UID -> Unix time until which the pod is assumed to be evicted."""
        self._evictions_refused: dict[str, float] = {}
        self._now_seconds = 0.0
        self._metrics = QueueMetrics(registry) if registry else None

    def decide(self, changes: Changes, now_seconds: float) -> ControllerDecision:  # noqa: ARG002 - it looks at everything
        """Return what to write for all quotas, gangs and waiting pods."""
        if not self._builder.settled():
            self.interval_seconds = SHORTEST_SECONDS
            return ControllerDecision()
        guard = guard_of(self._mirrors["swapguards"])
        view = self._view(now_seconds, guard)
        writes = decide(view, self._settings)
        self._last, self._now_seconds, self.report = writes, now_seconds, writes.report
        served = self._settings.served_seconds
        promise = renew_promise(guard, served, now_seconds)
        due = min(writes.wake_seconds, renewal_seconds(guard, served, now_seconds) if not promise else LONGEST_SECONDS)
        self.interval_seconds = min(LONGEST_SECONDS, max(SHORTEST_SECONDS, due))
        if self._metrics:
            self._metrics.show(writes.report, view)
        unoffered = self._settings.gangs_by == "kubernetes" and view.native_groups is None
        notes_by_subject = (*writes.notes, *((UNOFFERED,) if unoffered else ()))
        notes = tuple(ObjectNote(subject, "Queue", message, warning=True) for subject, message in notes_by_subject)
        return ControllerDecision((*promise, *writes.intents), notes)

    def sent(self, outcomes: Sequence[Outcome]) -> None:
        """Remember admitted and evicted pods until the watched pods show it, and evictions that were refused."""
        for outcome in outcomes:
            address = outcome.intent.address
            pod = self._pods.get((address.namespace, address.name)) if address.resource == "pods" else None
            if pod is None:
                continue
            if getattr(outcome.intent, "subresource", "") == "eviction":
                if not outcome.ok:
                    self._evictions_refused[pod.uid] = self._now_seconds + EVICTION_PAUSE_SECONDS
                if not _is_refused(outcome.error):
                    self._evicted[pod.uid] = self._believed_until_seconds(outcome)
            elif self._last and pod.uid in self._last.released and not _is_refused(outcome.error):
                self._released[pod.uid] = (pod.version, self._believed_until_seconds(outcome))

    def _believed_until_seconds(self, outcome: Outcome) -> float:
        """Return the Unix time until which the write is assumed done; infinity if the API server confirmed it."""
        return float("inf") if outcome.ok else self._now_seconds + DOUBTFUL_SECONDS

    def decide_at_shutdown(self, now_seconds: float) -> ControllerDecision:
        """Return the writes that remove all gates at the manager's end; none if the settings keep the gates."""
        if self._settings.keep_gates_at_end:
            return ControllerDecision()
        return ControllerDecision(withdrawal(self._mirrors, now_seconds))

    def _view(self, now_seconds: float, guard: Guard) -> QueueView:
        view = self._builder.view(now_seconds)
        last = self._last
        if last is None and guard.queues_served_until_seconds < now_seconds:
            last = QueueWrites()  # nobody looked for a while: since when a quota is over its runtime begins anew
        self._pods = {(pod.namespace, pod.name): pod for pod in view.pods}
        versions = {pod.uid: pod.version for pod in view.pods if pod.waits_for_quota}
        self._released = {
            uid: (version, until)
            for uid, (version, until) in self._released.items()
            if versions.get(uid) == version and now_seconds < until
        }
        staying = {pod.uid for pod in view.pods if not pod.deleting} if self._evicted else ()
        self._evicted = {uid: until for uid, until in self._evicted.items() if uid in staying and now_seconds < until}
        self._evictions_refused = {uid: at for uid, at in self._evictions_refused.items() if at > now_seconds}
        return replace(
            view,
            unmade=self.unmade,
            over_since=view.over_since if last is None else last.over_since,
            borrows_since=view.borrows_since if last is None else last.borrows_since,
            attempts={} if last is None else last.attempts,
            released=frozenset(self._released),
            evicted=frozenset(self._evicted),
            evictions_refused=dict(self._evictions_refused),
        )


def _is_refused(error: Exception | None) -> bool:
    """Return whether certainly nothing was written; a busy server and a disruption budget both answer 429."""
    return isinstance(error, REFUSED) or getattr(error, "status", None) == 429


def withdrawal(mirrors: Mapping[str, Mirror[Any]], now_seconds: float) -> tuple[Intent, ...]:
    """Return the writes that end gating and remove the gates of waiting pods; works without the SwapGuard CRD too."""
    pods = (watched.pod for watched in mirrors["queue-pods"].snapshot().values())
    existing = mirrors["native-gangs"].snapshot()
    return withdraw_queue_promise(guard_of(mirrors["swapguards"]), pods, now_seconds, existing)


class QueueMetrics:
    """Gauges of the latest queue report."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register on the process's registry."""
        unit = "CPU in cores, other resources in their unit."
        gauge = partial(Gauge, registry=registry)
        self._runtime = gauge("cotenant_quota_runtime", f"Amount that a quota may use now. {unit}", LABELS)
        self._used = gauge("cotenant_quota_used", f"Requests of a quota's pods that were admitted. {unit}", LABELS)
        self._request = gauge(
            "cotenant_quota_request", f"Requests of a quota's pods, waiting ones included. {unit}", LABELS
        )
        self._waiting_of = gauge(
            "cotenant_quota_waiting_pods", "Pods that wait for the quota that they count against.", ["quota"]
        )
        self._waiting = gauge("cotenant_queue_waiting_pods", "Waiting pods, by reason: quota, gang.", ["queue"])
        self._missed = gauge(
            "cotenant_queue_missed_pods",
            "Pods of a quota that the webhook did not gate; these count as used and are never evicted for the quota.",
        )
        self._gangs = gauge("cotenant_queue_gangs", "Gangs by state.", ["state"])
        self._rows: set[tuple[str, str]] = set()

    def show(self, report: QueueReport, view: QueueView) -> None:
        """Set the gauges to the figures of this report."""
        rows = {(row.quota, row.resource): row for row in report.quotas}
        shown = sorted(rows)[:MOST_ROWS]
        for key in shown:
            row = rows[key]
            scale = 1000 if row.resource == "cpu" else 1
            self._runtime.labels(row.quota, row.resource).set(row.runtime / scale)
            self._used.labels(row.quota, row.resource).set(row.used / scale)
            self._request.labels(row.quota, row.resource).set(row.request / scale)
        for key in self._rows - set(shown):
            for gauge in (self._runtime, self._used, self._request):
                gauge.remove(*key)
        waiting = {quota: rows[quota, resource].waiting_pods for quota, resource in shown}
        for quota in {quota for quota, _ in self._rows} - waiting.keys():
            self._waiting_of.remove(quota)
        for quota, pods in waiting.items():
            self._waiting_of.labels(quota).set(pods)
        self._rows = set(shown)
        self._waiting.labels("quota").set(sum(pod.waits_for_quota for pod in view.pods))
        self._waiting.labels("gang").set(sum(pod.waits_for_gang for pod in view.pods))
        self._missed.set(sum(pod.missed for pod in view.pods))
        for state in GangState:
            self._gangs.labels(state.value).set(sum(gang.state is state for gang in report.gangs))
