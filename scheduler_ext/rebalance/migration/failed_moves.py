"""Pods whose moves failed, and how long each is not moved, so that other pods of its node are moved instead. Pure.

A pod pauses (is not moved) FIRST_REST_SECONDS after its first failed move, and twice as long after each further one. If
a pod was evicted and its successor did not take the capacity, the whole workload pauses, because the successor is
another pod: a volume or a rule keeps it on its node, so each further move would be a useless restart. Failures are read
from the jobs of all creators while they exist; nothing else is remembered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cotenant.base.text import in_time
from cotenant.scheduler_ext.rebalance.migration.job import EVICTION, POD_BOUND, JobPhase, JobReason, MigrationJob

FIRST_REST_SECONDS: Final = 600.0
LONGEST_REST_SECONDS: Final = 6 * 3600.0
IN_VAIN_SECONDS: Final = 3600.0
"""First pause of a workload whose pod was evicted without effect; longer than `descheduler.pause_seconds`."""


@dataclass(frozen=True, slots=True)
class FailedMove:
    """The failed moves of a pod (NAMESPACE/NAME) or workload: their number, the last error, the end of the pause."""

    pod: str
    times: int
    until_seconds: float
    why: str


def resting_pods(
    jobs: Iterable[MigrationJob], now_seconds: float, default_ttl_seconds: float
) -> Mapping[str, FailedMove]:
    """Return the pods, by UID, and workloads, by NAMESPACE/KIND/NAME, that pause now because of failed moves."""
    failed: dict[str, list[tuple[float, MigrationJob]]] = defaultdict(list)
    for job in jobs:
        if job.status.phase is not JobPhase.FAILED:
            continue
        if job.pod.uid:
            failed[job.pod.uid].append((failed_seconds(job, default_ttl_seconds), job))
        if job.status.source[0] and job.status.holds(EVICTION) and not job.status.holds(POD_BOUND):
            failed[job.status.source[0]].append((failed_seconds(job, default_ttl_seconds), job))
    failed_moves = {}
    for key, those in failed.items():
        at_seconds, job = max(those, key=lambda failure: (failure[0], failure[1].name))
        is_pod = key == job.pod.uid
        first = FIRST_REST_SECONDS if is_pod else IN_VAIN_SECONDS
        until_seconds = at_seconds + min(first * 2 ** min(len(those) - 1, 10), LONGEST_REST_SECONDS)
        if now_seconds < until_seconds:
            why = ": ".join(part for part in (job.status.reason, job.status.message) if part)
            failed_moves[key] = FailedMove("/".join(job.pod_key) if is_pod else key, len(those), until_seconds, why)
    return failed_moves


def failed_seconds(job: MigrationJob, default_ttl_seconds: float) -> float:
    """Return the Unix time at which a job failed: its deadline if it timed out, else that of its last condition."""
    if job.status.reason == JobReason.TIMEOUT:
        return job.deadline_seconds(default_ttl_seconds)
    return max(job.created_seconds, job.status.changed_seconds)


def sentences(failed: Iterable[FailedMove], now_seconds: float) -> Sequence[str]:
    """Return a sentence for each failed move: why it failed and when the next attempt is; the soonest first."""
    return [
        f"{move.pod} stays on its node: its last move failed ({move.why}); the next attempt is "
        f"{in_time(move.until_seconds - now_seconds)}"
        for move in sorted(failed, key=lambda move: (move.until_seconds, move.pod))
    ]


def free_name(name: str, taken: Collection[str]) -> str:
    """Return `name`, or the first unused of name-2, name-3 ..., for a further attempt with the same pod."""
    names = (name if number == 1 else f"{name}-{number}" for number in range(1, len(taken) + 2))
    return next(name for name in names if name not in taken)
