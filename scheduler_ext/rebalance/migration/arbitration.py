"""Decides which waiting jobs may begin now, as Koordinator's arbitrator does. Pure.

Jobs are sorted by how many pods of their workload are being moved (fewest first), by the order in which pods are moved,
and by age. A job that can never begin fails; a job that a limit stops waits and is checked again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cotenant.base.kubernetes.moments import seconds_of
from cotenant.base.reasons import Reason
from cotenant.scheduler_ext.rebalance.arguments import LowNodeLoadArgs
from cotenant.scheduler_ext.rebalance.eligibility import Eligibility, sort_by_move_order
from cotenant.scheduler_ext.rebalance.limits import MoveLimits
from cotenant.scheduler_ext.rebalance.load import RebalanceInputs, RebalancePod
from cotenant.scheduler_ext.rebalance.migration.churn import limit_of
from cotenant.scheduler_ext.rebalance.migration.job import MigrationJob
from cotenant.scheduler_ext.rebalance.migration.view import MigrationView

HOUR_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Arbitration:
    """Jobs by name: those that may begin, those that never can (and why), and those that must wait (and why)."""

    passed: frozenset[str] = frozenset()
    refused: Mapping[str, Reason] = field(default_factory=dict)
    waiting: Mapping[str, Reason] = field(default_factory=dict)


def arbitrate(view: MigrationView, jobs: Sequence[MigrationJob]) -> Arbitration:
    """Arbitrate the waiting jobs that are not past their deadline; those whose pod is missing are left out."""
    eligibility = Eligibility.of(LowNodeLoadArgs(), view.arguments, view.now_seconds, view.pause_seconds)
    candidates = [(job, pod) for job in jobs if (pod := view.pod_of(job)) is not None]
    if not candidates:
        return Arbitration()
    limits = _JobLimits.of(view)
    verdicts = {job.name: limits.never(pod, eligibility) for job, pod in candidates}
    passed: set[str] = set()
    waiting: dict[str, Reason] = {}
    none, under_way = np.zeros(2), limits.moves.workloads
    by_pod = sort_by_move_order([(pod, none) for _, pod in candidates], none)
    places = {pod.key: index for index, (pod, _) in enumerate(by_pod)}

    def rank(entry: tuple[MigrationJob, RebalancePod]) -> tuple[int, int, float, str]:
        job, pod = entry
        return under_way.get(pod.owner, 0), places[pod.key], job.created_seconds, job.name

    for job, pod in sorted(candidates, key=rank):
        if verdicts[job.name] is not Reason.OK:
            continue
        reason = limits.refusal(pod)
        if reason is Reason.OK:
            limits.count(pod)
            passed.add(job.name)
        else:
            waiting[job.name] = reason
    return Arbitration(frozenset(passed), {n: r for n, r in verdicts.items() if r is not Reason.OK}, waiting)


def evictions_since(view: MigrationView, seconds: float) -> Iterator[MigrationJob]:
    """Yield the jobs that evicted their pod, or started to, within the last `seconds`."""
    for job in view.jobs:
        at_seconds = job.status.evicted_seconds
        if at_seconds is not None and view.now_seconds - at_seconds < seconds:
            yield job


def resting_workloads(view: MigrationView) -> frozenset[str]:
    """Return the workloads whose limit of evictions (objectLimiters) is reached, so that no pod may be moved now."""
    lately = _lately(view)
    return frozenset(owner for owner in lately if _is_resting(view, owner, lately[owner]))


def _lately(view: MigrationView) -> Counter[str]:
    """Count each workload's evictions within the object limiter's duration; empty if 0 s switches it off."""
    seconds = seconds_of(view.arguments.object_limiters.workload.duration, "objectLimiters")
    return Counter(job.status.source[0] for job in evictions_since(view, seconds)) if seconds > 0 else Counter()


def _is_resting(view: MigrationView, owner: str, lately: int) -> bool:
    limiter, limit = view.arguments.object_limiters.workload, view.arguments.max_migrating_per_workload
    limit = limit if limiter.max_migrating is None else limiter.max_migrating
    return lately >= (limit_of(limit, view.replicas[owner]) or 0)


@dataclass(slots=True)
class _JobLimits:
    """The limits of moves, in which the moves under way already count."""

    view: MigrationView
    moves: MoveLimits
    lately: Counter[str]
    hour: int
    pods: set[str]
    limited: bool

    @classmethod
    def of(cls, view: MigrationView) -> _JobLimits:
        """Return the limits with the running jobs counted."""
        inputs = RebalanceInputs((), view.budgets, view.now_seconds, view.replicas, view.unready)
        globally = view.arguments.max_migrating_globally
        moves = MoveLimits.of(view.arguments, inputs, len(view.jobs) + 1 if globally is None else globally)
        running = [job for job in view.jobs if job.runs]
        for job in running:
            workload, node = job.status.source
            moves.count_one(workload, node, job.pod.namespace)
        hour = len({job.name for job in (*evictions_since(view, HOUR_SECONDS), *running)})
        uids = {pod.facts.identity.uid for job in running if (pod := view.pod_of(job)) is not None} - {""}
        limited = seconds_of(view.arguments.object_limiters.workload.duration, "objectLimiters") > 0
        return cls(view, moves, _lately(view), hour, uids, limited)

    def never(self, pod: RebalancePod, eligibility: Eligibility) -> Reason:
        """Return why the pod can never be moved in its present state, or OK."""
        reason = eligibility.refusal(pod)
        is_evictable = reason is not Reason.OK or not self.moves.is_under_two_budgets(pod)
        return reason if is_evictable else Reason.TWO_BUDGETS

    def refusal(self, pod: RebalancePod) -> Reason:
        """Return why a move of the pod may not begin now, or OK."""
        if pod.facts.identity.uid in self.pods:
            return Reason.MOVE_UNDER_WAY
        if self.hour >= self.view.most_per_hour:
            return Reason.CHURN_LIMIT
        if self.limited and _is_resting(self.view, pod.owner, self.lately[pod.owner]):
            return Reason.WORKLOAD_MOVED_LATELY
        reason = self.moves.node_refusal(pod.facts.node)
        return self.moves.refusal(pod) if reason is Reason.OK else reason

    def count(self, pod: RebalancePod) -> None:
        """Count a pod whose move begins."""
        self.moves.count(pod, pod.facts.node)
        self.hour += 1
        self.lately[pod.owner] += 1
        self.pods.add(pod.facts.identity.uid)
