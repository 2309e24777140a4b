"""EDGE: the history that cotenant's recorder stores, for a scan without a configured Prometheus."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cotenant.base.commands.output import message
from cotenant.base.commands.results import url_of
from cotenant.base.errors import ClusterError, CotenantError, NoData
from cotenant.base.usage.usage import DAY_SECONDS
from cotenant.cli.analysis.metric_source import ScanTarget, has_kubeconfig, metric_source

if TYPE_CHECKING:
    from cotenant.base.store import Store
    from cotenant.profiler.recorder.status import RecorderStatus
    from cotenant.settings import Settings


@dataclass(frozen=True, slots=True)
class RecordedHistory:
    """A store into which a recorder writes now, and the recorder's status at `now_seconds`."""

    store: Store
    status: RecorderStatus
    now_seconds: float

    def require_usage(self) -> Store:
        """Return the store; raise NoData, with the recorder's status, if no usage is stored yet."""
        if self.store.usage_span() is None:
            recording = "; ".join(self.status.lines(self.now_seconds))
            fix = "Wait until the recorder has run for five minutes, or name a Prometheus: --prometheus URL."
            raise NoData(f"the recorder of cluster {self.store.cluster} has no usage yet: {recording}", fix=fix)
        return self.store

    def describe(self) -> str:
        """Return a text with the source and the start of the recorded history."""
        return f"{self.status.source}: {self.status.sentence(self.now_seconds)}"


def recorded_history(settings: Settings, cluster: str | None, *, reaches_cluster: bool) -> RecordedHistory | None:
    """Return the history that a recorder stores of a cluster; None without one, or if the settings name a Prometheus.

    If `cluster` is None, it is the kubeconfig's cluster (with `reaches_cluster`), else the only stored one. A recorder
    that has written nothing for a quarter of an hour is ignored, with a note.
    """
    from cotenant.base.process.clock import SystemClock
    from cotenant.base.store import Store
    from cotenant.profiler.recorder.status import STATUS_DOCUMENT, RecorderStatus

    url = url_of(settings)
    if settings.profiler.prometheus.url or not (stored := Store.clusters(url)):
        return None
    name = cluster or kubeconfig_cluster(settings, reaches_cluster) or (stored[0] if len(stored) == 1 else None)
    if name not in stored:
        return None
    store, now = Store(url, name), SystemClock().now_seconds()
    status = store.read_document(STATUS_DOCUMENT, RecorderStatus)
    if status is None:
        return None
    if status.is_silent(now):
        message(f"note: the recorder of cluster {name} is ignored: {status.sentence(now)}. --offline reads its usage.")
        return None
    return RecordedHistory(store, status, now)


def older_source(settings: Settings, recorded: RecordedHistory, *, reaches_cluster: bool) -> ScanTarget | None:
    """Return the cluster's Prometheus, for older data, if the recorded history does not fill the window; else None.

    It is only searched for if the kubeconfig is known to be of this cluster; None also if it is not found.
    """
    window_seconds = settings.profiler.window_days * DAY_SECONDS
    if recorded.now_seconds - recorded.status.begun_seconds >= window_seconds:
        return None
    name = recorded.store.cluster
    is_inside = bool(os.environ.get("KUBERNETES_SERVICE_HOST"))
    if not (reaches_cluster and is_inside) and kubeconfig_cluster(settings, reaches_cluster) != name:
        return None
    try:
        return metric_source(settings, name, reaches_cluster=reaches_cluster)
    except CotenantError:
        return None


def kubeconfig_cluster(settings: Settings, reaches_cluster: bool) -> str | None:
    """Return the name of the kubeconfig's cluster; None without a readable kubeconfig, or if not `reaches_cluster`."""
    from cotenant.base.kube.auth import load_access

    if not (reaches_cluster and has_kubeconfig(settings, os.environ)):
        return None
    try:
        return load_access(settings.kube).cluster
    except ClusterError:
        return None
