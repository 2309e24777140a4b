"""Data types of the guardrails: the result of a rule, and the rules' input beside the recommendation. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from cotenant.base.identity import WorkloadRef
from cotenant.base.kubernetes.qos import QosClass
from cotenant.base.kubernetes.quota_tree import QuotaTree
from cotenant.base.resource import Resource
from cotenant.changes.model.service import Method
from cotenant.changes.model.trial import Trial
from cotenant.recommender.model.recommendation import Recommendation, Value

Json = Mapping[str, Any]
STEP_RULES: Final = {resource: f"{resource}-step" for resource in Resource}
"""The rule by resource that limits a request's cut in one step."""
Moved = Sequence[tuple[Recommendation, Value]]
"""Changing values, each with its container's recommendation."""


class GuardrailOutcome(StrEnum):
    """The outcome of a guardrail."""

    PASS = "pass"  # noqa: S105 - no password
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Guardrail:
    """The result of one rule on one workload: the rule's name, by which it can be overridden, the outcome, and why."""

    rule: str
    outcome: GuardrailOutcome
    why: str

    def words(self, overridden: bool = False) -> str:
        """Return the result as text for the ledger: the outcome (or "overridden") and why."""
        if self.outcome is GuardrailOutcome.PASS:
            return "pass"
        return f"{'overridden' if overridden else self.outcome}: {self.why}"


@dataclass(frozen=True, slots=True)
class QuotaClaim:
    """The amounts that a workload's change needs of its namespace's quotas over all pods; negative if it frees some.

    `more` is by resource and side ("requests" or "limits"), in millicores or bytes; `labels` are those of its new pods.
    """

    workload: WorkloadRef
    more: Mapping[tuple[Resource, str], int]
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClusterLimits:
    """The limits set by the namespace and the nodes; None if they may not be read or were not requested.

    `limit_ranges` and `quotas` are objects of the namespace, `scalers` the workload's autoscalers. `nodes` are the
    allocatable millicores and bytes of nodes that take pods; `daemon_nodes` are those of a DaemonSet's nodes by name,
    None for other kinds. `devices` are Device objects of nodes without ResourceClaims, read if a GPU share changes.
    `claims` are those of other workloads that the quotas' `used` does not count yet. `tree` has the ElasticQuotas.
    `vertical` says why a VerticalPodAutoscaler writes the requests, "" if none does. `absent` are the resources
    (such as "limitranges") that the API server does not serve in the version that cotenant reads.
    """

    limit_ranges: Sequence[Json] | None = None
    quotas: Sequence[Json] | None = None
    scalers: Sequence[Json] | None = None
    nodes: Sequence[Mapping[Resource, int]] | None = None
    daemon_nodes: Mapping[str, Mapping[Resource, int]] | None = None
    devices: Sequence[Json] | None = None
    claims: Sequence[QuotaClaim] = ()
    tree: QuotaTree | None = None
    vertical: str = ""
    absent: Collection[str] = ()

    def unread(self, rule: str, objects: str) -> Guardrail:
        """Return the result of a rule that could not be checked, because the API server did not show its objects."""
        absent = f"the API server does not serve {objects} in the version that cotenant reads"
        why = absent if objects.lower() in self.absent else f"the right to list {objects} is missing"
        return Guardrail(rule, GuardrailOutcome.WARN, f"not checked: {why}")


@dataclass(frozen=True, slots=True)
class GuardrailContext:
    """The input of the rules beside the recommendation.

    `live` is the workload object, `pods` its running pods; its PodDisruptionBudgets allow `disruptions` evictions now
    (infinitely many without a budget, None if budgets were not read). cotenant's last change was at `changed_seconds`
    by `changed_by`; `seconds` is now. If people log in (`logs_in`), a second person can be asked. `windows` say when
    changes may be made; `webhook` says why new pods would not get annotated values, "" if they would.
    """

    live: Json
    seconds: float
    qos: QosClass = QosClass.NONE
    autoscaled: bool = False
    disruptions: float | None = float("inf")
    changed_seconds: float | None = None
    changed_by: str = ""
    second_person: str = ""
    logs_in: bool = False
    method: Method = Method.TEMPLATE
    windows: Sequence[str] = ()
    windows_spare_memory: bool = True
    webhook: str = ""
    cluster_limits: ClusterLimits = field(default_factory=ClusterLimits)
    trials: Sequence[Trial] = ()
    """The workload's earlier changes that did harm or were rolled back."""
    kills: Mapping[str, float] = field(default_factory=dict)
    """Unix time of each container's last OOM kill, by its name, from the pods' status."""
    put_off: str = ""
    """Until when, why and by whom the recommendation was hidden, as text; "" if it is not hidden."""
    pods: Sequence[Json] = ()


def made(rule: str, passed: bool, why: str, otherwise: GuardrailOutcome = GuardrailOutcome.FAIL) -> Guardrail:
    """Return a rule's result: PASS if `passed`, else the outcome `otherwise`."""
    return Guardrail(rule, GuardrailOutcome.PASS if passed else otherwise, why)
