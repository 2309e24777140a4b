"""Computes the writes of all PodMigrationJobs: arbitration, next steps, released capacity, deleted old jobs. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

from cotenant.base.kubernetes.intent import Delete, Intent
from cotenant.base.reasons import SENTENCES, Reason
from cotenant.scheduler_ext.rebalance.migration.arbitration import Arbitration, arbitrate
from cotenant.scheduler_ext.rebalance.migration.job import (
    JobMode,
    JobPhase,
    JobReason,
    JobStatus,
    MigrationJob,
    address_of,
    arbitrated_condition,
    status_intent,
    status_with_changes,
)
from cotenant.scheduler_ext.rebalance.migration.room import release_reservations
from cotenant.scheduler_ext.rebalance.migration.step import JobAdvance, advance_job, fail_job, missing_pod, timed_out
from cotenant.scheduler_ext.rebalance.migration.view import MigrationView
from cotenant.scheduler_ext.reservations.guard import MANAGED

LONGEST_SECONDS = 5.0  # between two looks when nothing happens: times run out by then


@dataclass(frozen=True, slots=True)
class MigrationWrites:
    """The writes of one run of the controller, evictions last.

    `ended` has (job, last status) of jobs that end now; `evictions_due` is the number of evictions that the rate limit
    does not permit yet.
    """

    intents: tuple[Intent, ...] = ()
    ended: tuple[tuple[MigrationJob, JobStatus], ...] = ()
    evictions_due: int = 0


def decide(view: MigrationView, keep_ended_seconds: float) -> MigrationWrites:
    """Return the writes that are due; jobs that cotenant created are deleted `keep_ended_seconds` after their end."""
    waiting = [job for job in view.jobs if job.waits]
    late = {j.name for j in waiting if view.now_seconds >= j.deadline_seconds(view.default_ttl_seconds)}
    verdict = arbitrate(view, [job for job in waiting if job.name not in late])
    advances = [
        (job, timed_out(view, job) if job.name in late else _apply_arbitration(view, job, verdict)) for job in waiting
    ]
    active = (job for job in view.jobs if job.runs and not job.paused and not job.deleting)
    advances += [(job, advance_job(view, job)) for job in active]
    statuses = [intent for job, advance in advances if (intent := status_intent(job, advance.status))]
    evictions = [advance.eviction for _, advance in advances if advance.eviction is not None]
    ended = [(job, a.status) for job, a in advances if a.status.phase.ended]
    expired = []
    for job in view.jobs:
        if job.status.phase.ended and not job.deleting and MANAGED.items() <= dict(job.labels).items():
            ended_seconds = job.status.changed_seconds if job.status.conditions else job.created_seconds
            if view.now_seconds - ended_seconds >= keep_ended_seconds:
                expired.append(Delete(address_of(job.name), job.uid, "the PodMigrationJob ended long ago"))
    intents = chain(
        release_reservations(view.reservations.values(), view.jobs),
        expired,
        statuses,
        *(advance.intents for _, advance in advances),
        evictions[: view.evictions_now],
    )
    return MigrationWrites(tuple(intents), tuple(ended), max(len(evictions) - view.evictions_now, 0))


def _apply_arbitration(view: MigrationView, job: MigrationJob, verdict: Arbitration) -> JobAdvance:
    pod = view.pod_of(job)
    if pod is None:
        return missing_pod(view, job)
    refused = verdict.refused.get(job.name)
    if refused is not None:
        return fail_job(view, job, JobReason.FORBIDDEN, f"{refused}: {SENTENCES[refused]}")
    if view.mode_of(job) is JobMode.RESERVATION_FIRST and not any(pod.facts.requests.values()):
        text = "the pod requests nothing, so no capacity can be reserved for it; use mode EvictDirectly"
        return fail_job(view, job, JobReason.FAILED_CREATE_RESERVATION, text)
    if job.name not in verdict.passed:
        reason = verdict.waiting.get(job.name, Reason.MOVE_LIMIT)
        status = status_with_changes(
            job, view.now_seconds, step="WaitForArbitration", message=f"{reason}: {SENTENCES[reason]}"
        )
        return JobAdvance(status)
    conditions = (arbitrated_condition(pod.owner, pod.facts.node),)
    status = status_with_changes(job, view.now_seconds, conditions, phase=JobPhase.RUNNING, step="Passed", message="")
    return JobAdvance(status)
