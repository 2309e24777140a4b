"""The inputs of the migration controller: jobs, pods, Reservations, budgets, the configuration. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from cotenant.base.kubernetes.moments import seconds_of
from cotenant.scheduler_ext.rebalance.arguments import MigrationArgs
from cotenant.scheduler_ext.rebalance.load import DisruptionBudget, RebalancePod, replicas_of
from cotenant.scheduler_ext.rebalance.migration.churn import DEFAULT_CHURN
from cotenant.scheduler_ext.rebalance.migration.job import JobMode, MigrationJob
from cotenant.scheduler_ext.reservations.model.reservation import Reservation

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class EvictionRefusal:
    """A refused eviction: until which Unix time it is not retried, the API server's message, and whether it is final.

    A final refusal is not retried: it comes from a missing right, a cluster rule, an invalid request, or two budgets.
    """

    until_seconds: float
    why: str
    final: bool = False


@dataclass(frozen=True)
class MigrationView:
    """All inputs of one decision about PodMigrationJobs.

    `pods` are those that have not ended, by (namespace, name). `evictions_refused` has, by pod, refusals until their
    eviction is retried. `evictions_now` is how many evictions the rate limit permits now, `most_per_hour` the limit of
    any hour. A manager promises to hand over capacity until `served_until_seconds`. A pod stays `pause_seconds` on the
    node that it moved to.
    """

    jobs: Sequence[MigrationJob] = ()
    pods: Mapping[Key, RebalancePod] = field(default_factory=dict)
    reservations: Mapping[str, Reservation] = field(default_factory=dict)
    budgets: Sequence[DisruptionBudget] = ()
    arguments: MigrationArgs = field(default_factory=MigrationArgs)
    evictions_refused: Mapping[Key, EvictionRefusal] = field(default_factory=dict)
    evictions_now: int = 1
    served_until_seconds: float = float("inf")
    unmade: Mapping[str, str] = field(default_factory=dict)  # why what a job needs could not be made, by its address
    most_per_hour: int = DEFAULT_CHURN.least
    pause_seconds: float = 0.0
    now_seconds: float = 0.0

    @cached_property
    def replicas(self) -> Counter[str]:
        """Number of pods of each workload, without pods that are already replaced."""
        return replicas_of(self.pods.values())[0]

    @cached_property
    def unready(self) -> Counter[str]:
        """Number of pods of each workload that are not ready, without those that running jobs move."""
        moving = {job.pod.uid for job in self.jobs if job.runs}
        return replicas_of(pod for pod in self.pods.values() if pod.facts.identity.uid not in moving)[1]

    @property
    def default_ttl_seconds(self) -> float:
        """Time limit in seconds of a job that sets no ttl."""
        return seconds_of(self.arguments.default_job_ttl, "defaultJobTTL")

    def refusal_of(self, job: MigrationJob) -> EvictionRefusal | None:
        """Return the refusal of the job's eviction if it is not to be retried yet, or None."""
        refusal = self.evictions_refused.get(job.pod_key)
        return refusal if refusal is not None and refusal.until_seconds > self.now_seconds else None

    def mode_of(self, job: MigrationJob) -> JobMode:
        """Return the mode in which a job moves its pod."""
        return job.mode or JobMode(self.arguments.default_job_mode)

    def pod_of(self, job: MigrationJob) -> RebalancePod | None:
        """Return the job's pod; None if it is gone, replaced, or (if the job has no UID) younger than the job."""
        pod = self.pods.get(job.pod_key)
        if pod is None or (job.pod.uid and pod.facts.identity.uid != job.pod.uid):
            return None
        return pod if job.pod.uid or pod.created_seconds < job.created_seconds else None
