"""Limits the pods that one round may move: Koordinator's limits, disruption budgets, and 1 % of all pods. Pure.

Disruption budgets apply as in the Eviction API: a pod that has not started has none, a budget may ignore pods that are
not ready, and a pod under two budgets can never be evicted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from cotenant.base.reasons import Reason
from cotenant.scheduler_ext.rebalance.arguments import MigrationArgs
from cotenant.scheduler_ext.rebalance.load import BudgetIndex, RebalanceInputs, RebalancePod
from cotenant.scheduler_ext.rebalance.migration.churn import DEFAULT_CHURN, limit_of


@dataclass(slots=True)
class MoveLimits:
    """Limits of one round and the moves so far; `allowed` are the disruptions that each budget has left."""

    arguments: MigrationArgs
    inputs: RebalanceInputs
    budgets: BudgetIndex
    allowed: list[int]
    most: int
    moved: int = 0
    nodes: Counter[str] = field(default_factory=Counter)
    namespaces: Counter[str] = field(default_factory=Counter)
    workloads: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, arguments: MigrationArgs, inputs: RebalanceInputs, most_moves: int | None = None) -> MoveLimits:
        """Return the limits before any move; `most_moves` replaces the share of all pods that may move in a round."""
        churn = DEFAULT_CHURN.most(sum(len(load.pods) for load in inputs.loads)) if most_moves is None else most_moves
        globally = arguments.max_migrating_globally
        most = churn if globally is None else min(churn, globally)
        return cls(arguments, inputs, BudgetIndex(inputs.budgets), [budget.allowed for budget in inputs.budgets], most)

    def node_refusal(self, node: str) -> Reason:
        """Return why no further pod may leave the node in this round, or OK."""
        if self.moved >= self.most:
            return Reason.MOVE_LIMIT
        most = self.arguments.max_migrating_per_node
        return Reason.OK if most is None or self.nodes[node] < most else Reason.NODE_MOVE_LIMIT

    def refusal(self, pod: RebalancePod) -> Reason:
        """Return why this pod may not leave in this round, or OK."""
        most = self.arguments.max_migrating_per_namespace
        if most is not None and self.namespaces[pod.facts.identity.namespace] >= most:
            return Reason.NAMESPACE_MOVE_LIMIT
        if pod.owner and self._workload_is_at_limit(pod):
            return Reason.WORKLOAD_MOVE_LIMIT
        if self.is_under_two_budgets(pod):
            return Reason.TWO_BUDGETS
        if any(self.allowed[number] <= 0 for number in self._affected_budgets(pod)):
            return Reason.DISRUPTION_BUDGET
        return Reason.OK

    def is_under_two_budgets(self, pod: RebalancePod) -> bool:
        """Return whether two budgets make the Eviction API refuse the pod; False for Pending pods and SoftEviction."""
        return self.arguments.eviction_policy != "SoftEviction" and not pod.pending and len(self._budgets_of(pod)) > 1

    def count(self, pod: RebalancePod, node: str) -> None:
        """Count a move against node, namespace, workload and disruption budgets."""
        self.count_one(pod.owner, node, pod.facts.identity.namespace)
        for number in self._affected_budgets(pod):
            self.allowed[number] -= 1

    def count_one(self, owner: str, node: str, namespace: str) -> None:
        """Count a move that is under way, but not against disruption budgets, which already count its pod."""
        self.moved += 1
        self.nodes[node] += 1
        self.namespaces[namespace] += 1
        self.workloads[owner] += 1

    def _workload_is_at_limit(self, pod: RebalancePod) -> bool:
        """Return whether maxMigrating or maxUnavailable is reached, or a limit would let all replicas leave.

        A pod that is not ready is unavailable already, so that its own move does not count against it.
        """
        owner, own = pod.owner, int(pod.ready_seconds is None)
        replicas, moving = self.inputs.replicas.get(owner, 1), self.workloads[owner]
        migrating = limit_of(self.arguments.max_migrating_per_workload, replicas) or 0
        unavailable = limit_of(self.arguments.max_unavailable_per_workload, replicas) or 0
        if not self.arguments.skip_check_expected_replicas and replicas in (migrating, unavailable):
            return True
        others_unready = max(self.inputs.unready.get(owner, 0) - own, 0)
        return moving >= migrating or moving + others_unready >= unavailable

    def _budgets_of(self, pod: RebalancePod) -> Sequence[int]:
        """Return the numbers of the PodDisruptionBudgets that select the pod."""
        identity = pod.facts.identity
        return self.budgets.of(identity.namespace, identity.labels)

    def _affected_budgets(self, pod: RebalancePod) -> Sequence[int]:
        """Return the numbers of the pod's budgets that count the pod when it leaves."""
        if pod.pending:
            return ()
        unready = pod.ready_seconds is None
        return [n for n in self._budgets_of(pod) if not (unready and self.inputs.budgets[n].unready_may_leave)]
