"""Turns planned moves into PodMigrationJobs, and limits the next round by the moves under way. Pure.

A round starts only after the previous round's moves have ended and NodeMetrics can show their effect: a plan from older
metrics would move the same load twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from cotenant.base.kubernetes.intent import Create, Delete
from cotenant.base.kubernetes.moments import seconds_of
from cotenant.scheduler_ext.rebalance.arguments import MigrationArgs, RoundArgs
from cotenant.scheduler_ext.rebalance.load import RebalanceInputs
from cotenant.scheduler_ext.rebalance.migration.arbitration import HOUR_SECONDS, resting_workloads
from cotenant.scheduler_ext.rebalance.migration.churn import Churn
from cotenant.scheduler_ext.rebalance.migration.failed_moves import FailedMove, free_name, resting_pods
from cotenant.scheduler_ext.rebalance.migration.job import (
    EVICTION,
    KIND,
    SOURCE_ANNOTATION,
    TARGET_ANNOTATION,
    MigrationJob,
    address_of,
)
from cotenant.scheduler_ext.rebalance.migration.view import MigrationView
from cotenant.scheduler_ext.rebalance.plan import RebalancePlan
from cotenant.scheduler_ext.reservations.guard import MANAGED

LONGEST_HOLD_UP_SECONDS: Final = 600.0
"""A planned job without progress for this time no longer delays the next round; its own deadline may be a day."""
DESCHEDULER_LABEL: Final = {"cotenant.dev/created-by": "descheduler"}
"""Label of planned jobs, which only the descheduler creates."""
REASON_ANNOTATION: Final = "cotenant.dev/move-reason"
_NAME_LENGTH: Final = 200
PluginArgs = TypeVar("PluginArgs", bound=RoundArgs)


@dataclass(frozen=True, slots=True)
class JobMove:
    """A move that becomes a job: NAMESPACE/NAME and UID of the pod, the names of both nodes, and why."""

    pod: str
    uid: str
    source: str
    target: str
    reason: str


@dataclass(frozen=True, slots=True)
class JobsUnderWay:
    """The effect of earlier moves on the next round, which begins once no job of earlier rounds is `open`.

    `open` counts those that wait or run, without paused ones and those without progress for LONGEST_HOLD_UP_SECONDS.
    `last_seconds` is the Unix time of the last move's end, or 0; `hour` counts pods evicted in the last hour or soon.
    """

    open: int = 0
    last_seconds: float = 0.0
    hour: int = 0

    @classmethod
    def of(cls, jobs: Sequence[MigrationJob], now_seconds: float) -> JobsUnderWay:
        """Return `open` of the jobs that the descheduler created, the other fields of the jobs of all creators."""
        ours = [job for job in jobs if DESCHEDULER_LABEL.items() <= dict(job.labels).items()]
        moments = [job.status.changed_seconds for job in jobs if job.status.phase.ended]
        evicted = [job.status.evicted_seconds for job in jobs]
        hour = sum(
            job.runs or (at is not None and now_seconds - at < HOUR_SECONDS)
            for job, at in zip(jobs, evicted, strict=True)
        )
        waiting = sum(
            not job.status.phase.ended
            and not job.paused
            and not job.deleting
            and now_seconds - max(job.status.changed_seconds, job.created_seconds) < LONGEST_HOLD_UP_SECONDS
            for job in ours
        )
        return cls(waiting, max(moments, default=0.0), hour)


@dataclass(frozen=True, slots=True)
class RoundCaps:
    """Limits of a round by earlier moves: how many pods may move, and workloads (NAMESPACE/KIND/NAME) not moved now.

    Pods are being moved from or to the `busy` nodes. `failed` has the failed moves of pods, by UID, and of workloads,
    none of which is moved now.
    """

    most_moves: int
    resting: frozenset[str]
    busy: frozenset[str]
    failed: Mapping[str, FailedMove]

    @classmethod
    def of(
        cls, inputs: RebalanceInputs, jobs: Sequence[MigrationJob], arguments: MigrationArgs, churn: Churn
    ) -> RoundCaps:
        """Return the limits that follow from the jobs of all creators."""
        pods = {(p.facts.identity.namespace, p.facts.identity.name): p for load in inputs.loads for p in load.pods}
        view = MigrationView(jobs, pods, arguments=arguments, now_seconds=inputs.now_seconds)
        hour = JobsUnderWay.of(jobs, inputs.now_seconds).hour
        failed = resting_pods(jobs, inputs.now_seconds, view.default_ttl_seconds)
        return cls(max(churn.most(len(pods)) - hour, 0), resting_workloads(view), busy_nodes(jobs), failed)

    def restrict(self, arguments: PluginArgs) -> PluginArgs:
        """Return a plugin's arguments with these limits."""
        resting, failed = self.resting, frozenset(self.failed)
        return replace(arguments, most_moves=self.most_moves, resting=resting, busy=self.busy, failed=failed)


def jobs_of(
    plan: RebalancePlan, inputs: RebalanceInputs, arguments: MigrationArgs, jobs: Sequence[MigrationJob]
) -> Iterator[Create]:
    """Yield a job for each planned move, unless its pod has an open job or pauses after a failed move."""
    uids = {pod.key: pod.facts.identity.uid for load in inputs.loads for pod in load.pods}
    names = {job.name for job in jobs}
    busy = {f"{job.pod.namespace}/{job.pod.name}" for job in jobs if not job.status.phase.ended}
    resting = resting_pods(jobs, inputs.now_seconds, seconds_of(arguments.default_job_ttl, "defaultJobTTL"))
    for move in plan.moves:
        if move.pod in uids and move.pod not in busy and uids[move.pod] not in resting:
            overload = "will be" if move.by_forecast else "is"
            pods = " by its prod pods alone" if move.prod_pass else ""
            price = f"gains {move.price.gain:.0f} node-seconds and costs {move.price.cost:.0f}"
            why = f"node {move.source} {overload} overloaded{pods}; the move {price}"
            if plan.emptying:
                why = f"node {move.source} is emptied; the move costs {move.price.cost:.0f} node-seconds"
            job_move = JobMove(move.pod, uids[move.pod], move.source, move.target, why)
            yield job_of(job_move, arguments, {"labels": DESCHEDULER_LABEL}, names)


def withdrawn_from(nodes: Collection[str], jobs: Sequence[MigrationJob]) -> Iterator[Delete]:
    """Yield deletions of a round's jobs that move pods off these nodes, unless the pod may already be evicted."""
    for job in jobs:
        is_ours = DESCHEDULER_LABEL.items() <= dict(job.labels).items()
        has_begun = job.status.phase.ended or job.deleting or job.status.condition(EVICTION) is not None
        if is_ours and not has_begun and job.source_node in nodes:
            why = f"node {job.source_node} is no longer emptied"
            yield Delete(address_of(job.name), job.uid, why, version=job.version)


def busy_nodes(jobs: Sequence[MigrationJob]) -> frozenset[str]:
    """Return source and target nodes of all jobs that have not ended, whoever created them."""
    under_way = [job for job in jobs if not job.status.phase.ended]
    return frozenset(name for job in under_way for name in (job.source_node, job.target, job.status.node) if name)


def name_of(namespace: str, name: str, uid: str) -> str:
    """Return the name of a pod's job, which is always the same, so that a repeated write creates no second job."""
    digest = hashlib.sha256(uid.encode()).hexdigest()[:12]
    return f"{namespace}-{name}"[:_NAME_LENGTH].rstrip(".-") + f"-{digest}"


def job_of(
    move: JobMove, arguments: MigrationArgs, marks: Mapping[str, Mapping[str, str]], taken: Collection[str] = ()
) -> Create:
    """Return the job that moves exactly this pod, in the configured mode or else with reserved capacity.

    `marks` are further "labels" and "annotations" that name the creator. `taken` are names of existing jobs.
    """
    namespace, _, name = move.pod.partition("/")
    annotations = {
        TARGET_ANNOTATION: move.target,
        SOURCE_ANNOTATION: move.source,
        REASON_ANNOTATION: move.reason,
        **marks.get("annotations", {}),
    }
    spec = {
        "paused": False,
        "ttl": arguments.default_job_ttl,
        "mode": arguments.default_job_mode,
        "podRef": {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name, "uid": move.uid},
    }
    metadata = {"labels": {**MANAGED, **marks.get("labels", {})}, "annotations": annotations}
    address = address_of(free_name(name_of(namespace, name, move.uid), taken))
    return Create(
        address, address.manifest(KIND, metadata, spec=spec), why=f"from {move.source} to {move.target}: {move.reason}"
    )
