"""EDGE: stores the actions of node agents in a child process, so that the manager need not load a Parquet library.

Reads `CollectorJob` as JSON from stdin. Exit code 0 if it is stored; 1 with the reason on stderr.
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
    """A job for the collector's child process: the collected actions, and the store to write them to."""

    store: StoreSettings
    prometheus: PrometheusSettings
    telemetry: TelemetrySettings
    kept_days: float
    cluster: str
    gathering: Gathering
    acts: tuple[AgentAction, ...] = ()


def with_lanes(history: EnforcementHistory, prometheus: PrometheusSettings, bounds: Retention) -> EnforcementHistory:
    """Return the history with the CPU usage of its nodes over LANE_HOURS, from Prometheus if one is configured.

    Only the `bounds.nodes` nodes that acted last are queried; a note says so, and another why Prometheus failed.
    """
    acts = sorted(history.acts, key=lambda act: (-act.time_seconds, act.node))
    nodes = list(dict.fromkeys(act.node for act in acts if act.node))
    if not nodes or not prometheus.url:
        return history
    from cotenant.profiler.enforcement.reading import lanes

    now, notes = bounds.now_seconds, history.gathering.notes
    if len(nodes) > bounds.nodes:
        notes += (f"CPU usage over time covers {bounds.nodes} of {len(nodes)} nodes: those whose agents acted last",)
    try:
        history = replace(history, lanes=tuple(lanes(prometheus, nodes[: bounds.nodes], now - 3600 * LANE_HOURS, now)))
    except SourceError as error:
        notes += (f"CPU usage over time is not available: {error.message}",)
    return replace(history, gathering=replace(history.gathering, notes=notes))


def run(job: CollectorJob) -> Gathering:
    """Store the job's actions and return the summary; raise CotenantError if the store cannot be written."""
    bounds = Retention(job.gathering.gathered_seconds, job.kept_days)
    history = with_lanes(EnforcementHistory(job.acts, gathering=job.gathering), job.prometheus, bounds)
    return keep(Store(store_url(job.store, os.environ), job.cluster), history, bounds)


def main() -> int:
    """Run the job that is read from standard input; return the exit code."""
    follow_parent()
    job = job_from(sys.stdin.buffer, CollectorJob)
    configure_logging(job.telemetry)
    try:
        run(job)
    except CotenantError as error:
        log.warning("reports of node agents were not stored", error=error.message, fix=error.fix)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
