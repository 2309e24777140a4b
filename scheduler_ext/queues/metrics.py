"""Metrics of queues: what quotas may use, use and ask for; which pods wait. Bounded: see `MOST_ROWS`."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Gauge

from cotenant.scheduler_ext.queues.model.report import GangState, QueueReport
from cotenant.scheduler_ext.queues.view import QueueView

MOST_ROWS: Final = 4000
"""Pairs of a quota and a resource that have series, the first by name: 1,000 quotas of four resources."""
LABELS: Final = ["quota", "resource"]


class QueueMetrics:
    """Gauges that show a round's report."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register on the process's registry."""
        unit = "CPU in cores, others in their own unit (bytes, pieces)."
        self._runtime = Gauge("cotenant_quota_runtime", f"What a quota may use now. {unit}", LABELS, registry=registry)
        self._used = Gauge(
            "cotenant_quota_used", f"Requests of a quota's pods that were admitted. {unit}", LABELS, registry=registry
        )
        self._request = Gauge(
            "cotenant_quota_request",
            f"Requests of a quota's pods, waiting ones included. {unit}",
            LABELS,
            registry=registry,
        )
        self._waiting_of = Gauge(
            "cotenant_quota_waiting_pods",
            "Pods that wait for the quota that they count against.",
            ["quota"],
            registry=registry,
        )
        self._waiting = Gauge(
            "cotenant_queue_waiting_pods", "Waiting pods, by reason: quota, gang.", ["queue"], registry=registry
        )
        self._missed = Gauge(
            "cotenant_queue_missed_pods",
            "Pods of a quota that the webhook did not gate; they count as used and are never evicted for it.",
            registry=registry,
        )
        self._gangs = Gauge("cotenant_queue_gangs", "Gangs by state.", ["state"], registry=registry)
        self._rows: set[tuple[str, str]] = set()

    def show(self, report: QueueReport, view: QueueView) -> None:
        """Set the metrics to the last decision."""
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
