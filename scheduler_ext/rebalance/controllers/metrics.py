"""Metrics of the descheduler: jobs and their outcomes, evictions, and the latest round's decisions."""

from __future__ import annotations

from collections import Counter as Count
from collections.abc import Sequence
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge

from cotenant.scheduler_ext.rebalance.classification import NodeClass
from cotenant.scheduler_ext.rebalance.migration.job import JobPhase, JobReason, JobStatus, MigrationJob
from cotenant.scheduler_ext.rebalance.plan import MarkChange, RebalancePlan

SUCCEEDED = "Succeeded"
OUTCOMES = (
    SUCCEEDED,
    JobReason.TIMEOUT,
    JobReason.FAILED_CREATE_RESERVATION,
    JobReason.RESERVATION_EXPIRED,
    JobReason.UNSCHEDULABLE,
    JobReason.FORBIDDEN,
    JobReason.MISSING_POD,
    JobReason.MISSING_RESERVATION,
)


class MigrationMetrics:
    """Metrics of PodMigrationJobs: their phases, their outcomes, and evictions."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register on the process's registry."""
        word = "cotenant_migration"
        gauge, counter = partial(Gauge, registry=registry), partial(Counter, registry=registry)
        self._jobs = gauge(f"{word}_jobs", "PodMigrationJobs by phase.", ["phase"])
        self._ended = counter(f"{word}s_total", "PodMigrationJobs that have ended, by outcome.", ["outcome"])
        self._evictions = counter(
            f"{word}_evictions_total", "Requested evictions, by the API server's answer.", ["answer"]
        )
        for outcome in OUTCOMES:
            self._ended.labels(outcome)
        for answer in ("accepted", "refused"):
            self._evictions.labels(answer)

    def show(self, jobs: Sequence[MigrationJob], ended: Sequence[tuple[MigrationJob, JobStatus]]) -> None:
        """Set the metrics to the latest decision."""
        phases = Count(job.status.phase for job in jobs)
        for phase in JobPhase:
            self._jobs.labels(phase.value).set(phases[phase])
        for _, status in ended:
            self._ended.labels(SUCCEEDED if status.phase is JobPhase.SUCCEEDED else status.reason).inc()

    def evicted(self, accepted: bool) -> None:
        """Count an eviction as accepted or refused by the API server."""
        self._evictions.labels("accepted" if accepted else "refused").inc()


class DeschedulerMetrics:
    """Metrics of the descheduler's latest round."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register on the process's registry."""
        word = "cotenant_descheduler"
        gauge, counter = partial(Gauge, registry=registry), partial(Counter, registry=registry)
        self._nodes = gauge(f"{word}_nodes", "Nodes in the last round, by load class.", ["load"])
        self._marked = gauge(f"{word}_marked_nodes", "Nodes with the emptying taint in the last round.")
        self._leaving = gauge(f"{word}_emptying_pods", "Pods that still had to leave tainted nodes in the last round.")
        self._marks = counter(f"{word}_marks_total", "Emptying taints that were added and removed.", ["change"])
        for change in ("set", "taken"):
            self._marks.labels(change)
        self._moves = gauge(f"{word}_moves", "Moves that the last round planned.")
        self._refusals = gauge(f"{word}_refusals", "Pods that the last round did not move, by reason.", ["reason"])

    def show_marks(self, plan: RebalancePlan) -> None:
        """Set the gauges of nodes that are being emptied and of their pods; planned taints do not count yet."""
        marks = [mark for mark in plan.marks if mark.change is not MarkChange.SET]
        self._marked.set(len(marks))
        self._leaving.set(sum(mark.pods for mark in marks))

    def mark_changed(self, *, away: bool) -> None:
        """Count an emptying taint that the API server has added, or removed if `away`."""
        self._marks.labels("taken" if away else "set").inc()

    def show(self, plan: RebalancePlan) -> None:
        """Set the metrics to the latest round."""
        loads = Count(node.load for node in plan.nodes)
        for load in NodeClass:
            self._nodes.labels(load.value).set(loads[load])
        self._moves.set(len(plan.moves))
        self._refusals.clear()
        for reason, count in Count(refusal.reason for refusal in plan.refusals).items():
            self._refusals.labels(reason.value).set(count)
