"""EDGE: the history that a recorder keeps in the store, for a scan that names no Prometheus."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from cotenant.base.commands.output import message
from cotenant.base.commands.results import url_of
from cotenant.base.errors import ClusterError, NoData
from cotenant.cli.analysis.metric_source import has_kubeconfig

if TYPE_CHECKING:
    from cotenant.base.settings.root import Settings
    from cotenant.base.store import Store


def recorded_history(
    settings: Settings, cluster: str | None, *, reaches_cluster: bool, quiet: bool = False
) -> Store | None:
    """Return the store in which a recorder keeps this cluster's history; None where a Prometheus is to be asked.

    A Prometheus that is named is asked. A recorder that has written nothing for a quarter of an hour is passed over,
    with a note. NoData while its first five minutes are not complete.
    """
    from cotenant.base.process.clock import SystemClock
    from cotenant.base.store import Store
    from cotenant.base.usage.usage import Signal
    from cotenant.profiler.recorder.status import STATUS_DOCUMENT, RecorderStatus

    url = url_of(settings)
    if settings.profiler.prometheus.url or not (stored := Store.clusters(url)):
        return None
    name = cluster or _kubeconfig_cluster(settings, reaches_cluster) or (stored[0] if len(stored) == 1 else None)
    if name not in stored:
        return None
    store, now = Store(url, name), SystemClock().now_seconds()
    status = store.read_document(STATUS_DOCUMENT, RecorderStatus)
    if status is None:
        return None
    if status.is_silent(now):
        message(f"note: the recorder of cluster {name} is not read: {status.sentence(now)}. --offline uses its store.")
        return None
    if store.span(Signal.CPU_USAGE_MEAN) is None:
        raise NoData(
            f"the recorder of cluster {name} has no CPU usage yet: {'; '.join(status.lines(now))}",
            fix="Wait for its first five minutes, or name a Prometheus: --prometheus URL.",
        )
    if not quiet:
        message(f"reading {status.source}: {status.sentence(now)}")
    return store


def _kubeconfig_cluster(settings: Settings, reaches_cluster: bool) -> str | None:
    """Return the name of the cluster that the kubeconfig reaches; None without a kubeconfig that can be read."""
    from cotenant.base.kube.auth import load_access

    if not (reaches_cluster and has_kubeconfig(settings, os.environ)):
        return None
    try:
        return load_access(settings.kube).cluster
    except ClusterError:
        return None
