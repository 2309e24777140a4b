"""EDGE: stores the reports of agents, in a process of its own: the manager itself loads no Parquet library.

Reads `CollectorJob` as JSON from stdin. Exit code 0 when it is kept; 1 with the reason on stderr.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import Final

import msgspec
import structlog

from cotenant.base.errors import CotenantError, SourceError
from cotenant.base.logs.telemetry import configure_logging
from cotenant.base.process.endings import follow_parent, job_from
from cotenant.base.settings.sections import StoreSettings, TelemetrySettings, store_url
from cotenant.base.store import Store
from cotenant.enforcer.model.enforcement import AgentAction, EnforcementHistory, Gathering
from cotenant.enforcer.model.enforcement_tables import Retention
from cotenant.profiler.enforcement.collected import keep
from cotenant.profiler.settings import PrometheusSettings

LANE_HOURS: Final = 6.0
log = structlog.get_logger(__name__)


class CollectorJob(msgspec.Struct):
    """A job for the collector's child process: the acts that were collected, and the store to keep them in."""

    store: StoreSettings
    prometheus: PrometheusSettings
    telemetry: TelemetrySettings
    kept_days: float
    cluster: str
    gathering: Gathering
    acts: tuple[AgentAction, ...] = ()


def with_lanes(history: EnforcementHistory, prometheus: PrometheusSettings, bounds: Retention) -> EnforcementHistory:
    """CPU over time of the nodes that did something, where a Prometheus is set; the acts are kept without it too."""
    nodes = sorted({act.node for act in history.acts if act.node})[: bounds.nodes]
    if not nodes or not prometheus.url:
        return history
    from cotenant.profiler.enforcement.reading import lanes

    now = bounds.now_seconds
    try:
        node_lanes = lanes(prometheus, nodes, now - 3600 * LANE_HOURS, now)
    except SourceError as error:
        note = f"no CPU over time: {error.message}"
        return replace(history, gathering=replace(history.gathering, notes=(*history.gathering.notes, note)))
    return replace(history, lanes=tuple(node_lanes))


def run(job: CollectorJob) -> Gathering:
    """Keep it. CotenantError when the store cannot be written."""
    bounds = Retention(job.gathering.gathered_seconds, job.kept_days)
    history = with_lanes(EnforcementHistory(job.acts, gathering=job.gathering), job.prometheus, bounds)
    return keep(Store(store_url(job.store, os.environ), job.cluster), history, bounds)


def main() -> int:
    """Run the job that is read from standard input."""
    follow_parent()
    job = job_from(sys.stdin.buffer, CollectorJob)
    configure_logging(job.telemetry)
    try:
        run(job)
    except CotenantError as error:
        log.warning("reports of agents were not stored", error=error.message, fix=error.fix)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
