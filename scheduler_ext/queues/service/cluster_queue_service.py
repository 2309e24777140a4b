"""EDGE: reads the cluster's quotas and gangs, and a quota's last day from Prometheus, for the page Queues and REST.

One reading with the program's own rights serves all users for some seconds; people see what their roles cover.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Final

from cotenant.base.errors import NoData
from cotenant.base.people import Person, Right
from cotenant.base.resource import MILLICORES_PER_CORE
from cotenant.profiler.settings import ProfilerSettings
from cotenant.scheduler_ext.queues.model.queue_service import (
    HISTORY_SECONDS,
    HISTORY_STEP_SECONDS,
    QuotaHistory,
    quota_for,
    visible_to,
)

if TYPE_CHECKING:
    from cotenant.base.process.clock import Clock
    from cotenant.base.settings.base import SettingSections
    from cotenant.changes.audited_acts import ClusterAccess
    from cotenant.profiler.prometheus.client import Client
    from cotenant.scheduler_ext.queues.model.report import QueueReport

METRICS: Final = {
    "runtime": "cotenant_quota_runtime",
    "used": "cotenant_quota_used",
    "request": "cotenant_quota_request",
    "waiting": "cotenant_quota_waiting_pods",
}


class ClusterQueueService:
    """Reads the queues of one cluster; `metrics` is None if no Prometheus is configured. Thread-safe."""

    def __init__(
        self,
        access: ClusterAccess,
        settings: SettingSections,
        clock: Clock,
        metrics: Callable[[], Client] | None = None,
    ) -> None:
        """Store the arguments; nothing is read yet."""
        from cotenant.changes.shared_reading import SharedReading

        self._access, self._settings, self._clock, self._metrics = access, settings, clock, metrics
        self._reading = SharedReading(clock, self._read)

    def report(self, who: Person) -> QueueReport:
        """Return the queues that the person may see, read at most a minute ago."""
        who.require(Right.READ)
        return visible_to(self._reading.answer(), who)

    def _read(self, now_seconds: float) -> QueueReport:
        from cotenant.scheduler_ext.queues.commands.live_queues import read_report

        with self._access(Person("")) as client:
            return read_report(client, self._settings, now_seconds)[1]

    def history(self, who: Person, quota: str, resource: str) -> QuotaHistory:
        """Return a quota's use of a resource in the last day; raise NoData if the person may not see the quota."""
        who.require(Right.READ)
        if who.reads is not None:
            quota_for(self._reading.answer(), who, quota)
        if self._metrics is None:
            raise NoData("no Prometheus is configured", fix="Set profiler.prometheus.url; it must scrape the manager.")
        from cotenant.profiler.prometheus.checks.one_cluster import require_one_cluster
        from cotenant.profiler.prometheus.decode import decode_single_series
        from cotenant.profiler.prometheus.promql import equal, metric_name_matcher, quote

        end = int(self._clock.now_seconds()) // HISTORY_STEP_SECONDS * HISTORY_STEP_SECONDS
        start = end - HISTORY_SECONDS
        own_labels = self._settings.section(ProfilerSettings).prometheus.labels
        labels, series = own_labels | {"quota": quota}, {}
        with closing(self._metrics()) as client:
            of_quota = metric_name_matcher(*METRICS.values()), equal("quota", quota)
            require_one_cluster(client, own_labels, start, end, *of_quota)
            for name, metric in METRICS.items():
                all_labels = labels if name == "waiting" else labels | {"resource": resource}
                matchers = ",".join(f"{label}={quote(value)}" for label, value in all_labels.items())
                scale = 1 if name == "waiting" or resource != "cpu" else MILLICORES_PER_CORE  # the metric is in cores
                samples = client.range(f"{scale} * max({metric}{{{matchers}}})", start, end, HISTORY_STEP_SECONDS)
                series[name] = decode_single_series(samples, start, end, HISTORY_STEP_SECONDS)
        if all(value is None for values in series.values() for value in values):
            raise NoData(
                f"Prometheus has no sample of quota {quota} and {resource}",
                fix="Prometheus must scrape the manager's /metrics, and the feature queues must run (docs/queues.md).",
            )
        return QuotaHistory(quota, resource, start, series=series)


def queue_service_of(settings: SettingSections, clock: Clock | None = None) -> ClusterQueueService:
    """Return a service that uses the cluster and the Prometheus of the settings. It sends no request yet."""
    from cotenant.base.process.clock import SystemClock
    from cotenant.changes.access.kubeconfig_access import door_of
    from cotenant.profiler.prometheus.client import Client

    prometheus = settings.section(ProfilerSettings).prometheus
    metrics = (lambda: Client(prometheus)) if prometheus.url else None
    return ClusterQueueService(door_of(settings), settings, clock or SystemClock(), metrics)
