"""What a decision about PodMigrationJobs rests on: jobs, pods, Reservations, budgets, the configuration. Pure."""

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
    """An eviction that was not done: until when (Unix time) it is not tried again, why, and whether it never will be.

    why: the API server's own words. final: trying again cannot help (a right, a rule or an object is in the way).
    """

    until_seconds: float
    why: str
    final: bool = False


@dataclass(frozen=True)
class MigrationView:
    """All inputs of a decision.

    pods: by (namespace, name), those that have not ended. evictions_refused: by pod, evictions that were refused and
    are not tried again yet. evictions_now: how many the rate permits at this moment.
    served_until_seconds: until when capacity is handed over, as far as is promised.
    most_per_hour: evictions of any hour. pause_seconds: for how long a pod stays on a node that it came to.
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
        """Pods of each workload, without those that are replaced already."""
        return replicas_of(self.pods.values())[0]

    @cached_property
    def unready(self) -> Counter[str]:
        """The pods of each workload that do not serve, without those that jobs under way move."""
        moving = {job.pod.uid for job in self.jobs if job.runs}
        return replicas_of(pod for pod in self.pods.values() if pod.facts.identity.uid not in moving)[1]

    @property
    def default_ttl_seconds(self) -> float:
        """The time that a job without its own ttl may take, seconds."""
        return seconds_of(self.arguments.default_job_ttl, "defaultJobTTL")

    def refusal_of(self, job: MigrationJob) -> EvictionRefusal | None:
        """The refusal of the job's eviction, while it is not tried again."""
        refusal = self.evictions_refused.get(job.pod_key)
        return refusal if refusal is not None and refusal.until_seconds > self.now_seconds else None

    def mode_of(self, job: MigrationJob) -> JobMode:
        """Return the mode in which a job moves its pod."""
        return job.mode or JobMode(self.arguments.default_job_mode)

    def pod_of(self, job: MigrationJob) -> RebalancePod | None:
        """The very pod of a job (without a uid: one older than it); None when it is gone or another has its name."""
        pod = self.pods.get(job.pod_key)
        if pod is None or (job.pod.uid and pod.facts.identity.uid != job.pod.uid):
            return None
        return pod if job.pod.uid or pod.created_seconds < job.created_seconds else None
