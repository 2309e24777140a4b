"""EDGE: the pipeline as a process: pull history, analyse, store the results, and return what will be published.

A whole cluster's history takes gigabytes for a minute; these are free again when the process ends, and the manager
survives if it is killed. It reads a `PipelineJob` as JSON from stdin and writes `RunResults` (exit code 0) or a
`PipelineFailure` (1) to stdout.
"""

from __future__ import annotations

import os
import sys
from typing import IO

import msgspec

from cotenant.base.errors import ClusterError, CotenantError
from cotenant.base.kube import connect
from cotenant.base.kube.live import observe
from cotenant.base.kube.overlay import overlay
from cotenant.base.logs.telemetry import configure_logging
from cotenant.base.process.clock import SystemClock
from cotenant.base.process.endings import PARENT_GONE, follow_parent, job_from
from cotenant.base.process.in_hand import keep_notes
from cotenant.base.progress import Silent
from cotenant.base.settings.sections import store_url
from cotenant.base.store import Store
from cotenant.manager.decisions.results import PipelineFailure, PipelineJob, RunResults, collect
from cotenant.pipeline import daily_analysis
from cotenant.pipeline.shards.executors import STILL_SECONDS
from cotenant.profiler.history import pull
from cotenant.profiler.prometheus import PrometheusSource


def run(job: PipelineJob) -> RunResults:
    """Run the pipeline once; raise CotenantError if the history cannot be read."""
    settings, clock = job.settings, SystemClock()
    store = Store(store_url(settings.store, os.environ), job.cluster)
    if settings.profiler.prometheus.url:
        # The running state of the cluster; None when pods may not be listed, as for a scan.
        try:
            live = observe(connect(settings.kube))
        except ClusterError:
            live = None
        marks = {(p.namespace, p.name): (p.qos, p.priority) for p in live.pods} if live else None
        pull(
            PrometheusSource(settings.profiler.prometheus, job.cluster, marks),
            store,
            settings.profiler,
            clock,
            Silent(),
        )
        inventory = store.read_inventory()
        if live is not None and inventory is not None:
            store.write_inventory(overlay(inventory, live))
    analysis = daily_analysis.analyse(store, settings, clock, Silent())
    if job.keep:
        daily_analysis.publish(analysis, store, settings)
    return collect(analysis, with_medians=settings.descheduler.enabled and settings.descheduler.mode == "forecast")


def history_end_seconds(job: PipelineJob) -> int | None:
    """Return the end of the job's stored usage, Unix seconds; None if there is none or it cannot be read."""
    try:
        span = Store(store_url(job.settings.store, os.environ), job.cluster).usage_span()
    except CotenantError:
        return None
    return span[1] if span else None


def answer_alone() -> IO[bytes]:
    """Return stdout for the result alone, and redirect everything else that the process prints to stderr."""
    own = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return own


def main() -> int:
    """Run the PipelineJob on stdin, write its result to stdout, and return the exit code."""
    follow_parent()
    out = answer_alone()
    job = job_from(sys.stdin.buffer, PipelineJob)
    configure_logging(job.settings.telemetry)
    keep_notes("pipeline", STILL_SECONDS)
    try:
        outcome: RunResults | PipelineFailure = run(job)
    except CotenantError as error:
        outcome = PipelineFailure(type(error).__name__, error.message, error.fix, history_end_seconds(job))
    try:
        with out:
            out.write(msgspec.json.encode(outcome))
    except BrokenPipeError:
        return PARENT_GONE
    return int(isinstance(outcome, PipelineFailure))


if __name__ == "__main__":
    sys.exit(main())
