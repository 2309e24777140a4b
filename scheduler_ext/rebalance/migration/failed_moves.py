"""Pods whose moves failed: for how long each is left alone, so that others of its node are moved in its place. Pure.

A pod rests FIRST_REST_SECONDS after its first failed move, twice as long after each further one. Where a pod was
evicted and its successor did not take the capacity, the workload rests, because the successor is another pod: its
volume or a rule keeps it where it was, and each further move would be a restart for nothing. What failed is read from
the jobs, whoever made them, as long as they are kept; without jobs nothing is remembered.
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
"""The first rest of a workload of which a pod was evicted in vain; longer than `descheduler.pause_seconds`."""


@dataclass(frozen=True, slots=True)
class FailedMove:
    """The last failed move of a pod (NAMESPACE/NAME) or workload: how many failed, its rest's Unix time, and why."""

    pod: str
    times: int
    until_seconds: float
    why: str


def resting_pods(
    jobs: Iterable[MigrationJob], now_seconds: float, default_ttl_seconds: float
) -> Mapping[str, FailedMove]:
    """Pods by uid, and workloads by NAMESPACE/KIND/NAME, that are not moved now because moves of them failed."""
    failed: dict[str, list[tuple[float, MigrationJob]]] = defaultdict(list)
    for job in jobs:
        if job.status.phase is not JobPhase.FAILED:
            continue
        if job.pod.uid:
            failed[job.pod.uid].append((failed_seconds(job, default_ttl_seconds), job))
        if job.status.source[0] and job.status.holds(EVICTION) and not job.status.holds(POD_BOUND):
            failed[job.status.source[0]].append((failed_seconds(job, default_ttl_seconds), job))
    found = {}
    for key, those in failed.items():
        at_seconds, job = max(those, key=lambda failure: (failure[0], failure[1].name))
        is_pod = key == job.pod.uid
        first = FIRST_REST_SECONDS if is_pod else IN_VAIN_SECONDS
        until_seconds = at_seconds + min(first * 2 ** min(len(those) - 1, 10), LONGEST_REST_SECONDS)
        if now_seconds < until_seconds:
            why = ": ".join(part for part in (job.status.reason, job.status.message) if part)
            found[key] = FailedMove("/".join(job.pod_key) if is_pod else key, len(those), until_seconds, why)
    return found


def failed_seconds(job: MigrationJob, default_ttl_seconds: float) -> float:
    """Return when a failed job ended, Unix time: at its deadline, or else with the last of its conditions."""
    if job.status.reason == JobReason.TIMEOUT:
        return job.deadline_seconds(default_ttl_seconds)
    return max(job.created_seconds, job.status.changed_seconds)


def sentences(failed: Iterable[FailedMove], now_seconds: float) -> Sequence[str]:
    """A sentence for each: why its last move failed, and when it is tried again; the next ones first."""
    return [
        f"{move.pod} stays: its last move failed ({move.why}); it is tried again "
        f"{in_time(move.until_seconds - now_seconds)}"
        for move in sorted(failed, key=lambda move: (move.until_seconds, move.pod))
    ]


def free_name(name: str, taken: Collection[str]) -> str:
    """`name`, or the first of name-2, name-3 ... that no job has: the next try of the same pod."""
    names = (name if number == 1 else f"{name}-{number}" for number in range(1, len(taken) + 2))
    return next(name for name in names if name not in taken)
