"""The state of one cluster in one document, computed by the functions of the dashboard's page Home. Pure.

Amounts are millicores and bytes, times Unix seconds. None means unknown; a text field beside it says why.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cotenant.base import measures
from cotenant.base.json_documents.inherited import inherited_fields
from cotenant.base.resource import Resource
from cotenant.base.severity import Severity
from cotenant.base.tables import queries
from cotenant.base.tables.filters import FilterCondition, Query
from cotenant.changes.model.change import ChangeState, ChangeStatus, change_savings, count_of_states
from cotenant.recommender.colocation.model.batch_totals import usage_of_batch_pods, why_unknown
from cotenant.recommender.model import list_totals
from cotenant.recommender.model.savings import PlannedSavings, Savings
from cotenant.recommender.model.todo import TodoList
from cotenant.recommender.model.views import FINDINGS, PODS, RECLAIMABLE, RECOMMENDATIONS, ClusterFigures, Overview

if TYPE_CHECKING:
    from cotenant.base.tables.queries import Relation
    from cotenant.scheduler_ext.reservations.model.plan_states import PlanCounts

TABLES: Final = (RECOMMENDATIONS, RECLAIMABLE, PODS, FINDINGS)
"""Result tables from which the status of a cluster is computed."""
CUTS: Final = Query(conditions=(FilterCondition("todo", (TodoList.CUT.value,)),))


@dataclass(frozen=True, slots=True)
class Component:
    """An installed part of cotenant, with the numbers of ready and of wanted pods."""

    name: str
    kind: str
    ready: int
    wanted: int


@dataclass(frozen=True, slots=True)
class InCluster:
    """Cotenant's state in the cluster, from the API server; `unknown` says why it is not known, else "".

    `plans` is None if plans are not known; `plans_unknown` says why if only the plans could not be read.
    """

    components: tuple[Component, ...] = ()
    plans: PlanCounts | None = None
    plans_unknown: str = ""
    unknown: str = ""
    plans_left_out: str = ""
    """The plans that `plans` does not count because they cannot be read, and why; else ""."""
    failed: bool = False
    """True if the API server was queried and did not answer, so that the other fields are incomplete."""


@dataclass(frozen=True, slots=True)
class ClusterAmounts:
    """An amount of CPU and of memory in the cluster; None if not known."""

    cpu_millicores: float | None = None
    memory_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class Lent:
    """The usage of batch pods, and the capacity free for batch now and for a whole day; the last two overlap."""

    batch_pods: int
    batch_use: ClusterAmounts
    free_for_batch_now: ClusterAmounts
    free_for_a_day: ClusterAmounts
    why_unknown: str = ""


@dataclass(frozen=True, slots=True)
class AtRisk:
    """The numbers of containers with requests to raise or memory use above the request, and of critical findings."""

    containers: int
    above_memory_request: int
    critical_findings: int
    unassessed: int
    """Number of containers with too little evidence for a severity; `containers` does not include them."""
    memory_unknown: int
    """Number of containers whose memory usage or request is unknown; they do not count as above their request."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """The numbers of recommendations, changes and plans that wait for a person or for a verdict."""

    ready_to_apply: int
    second_person: int
    changes_for_second_person: int
    changes_for_verdict: int
    outcome_unknown: int
    plans_for_approval: int | None


@dataclass(frozen=True, slots=True)
class Saved:
    """The requests that were freed by verified changes of the audit log (ledger)."""

    changes: int
    verified: Savings


@dataclass(frozen=True, slots=True)
class ClusterStatus(ClusterFigures):
    """The state of one cluster at one time."""

    newest_sample_seconds: int
    age_seconds: float
    running: tuple[Component, ...]
    lent: Lent
    at_risk: AtRisk
    waste_containers: int
    waste: PlannedSavings
    waiting: Waiting
    saved: Saved
    cluster_unknown: str = ""
    """Why components and plans are not known; "" if the API server returned them."""
    plans_unknown: str = ""
    """Why plans are not known although components are; else ""."""
    plans_left_out: str = ""
    """The plans that are not counted because they cannot be read, and why."""
    notes: tuple[str, ...] = ()


def cluster_status(
    overview: Overview,
    tables: Mapping[str, Relation],
    statuses: Sequence[ChangeStatus],
    live: InCluster,
    now_seconds: float,
) -> ClusterStatus:
    """Return a cluster's status; `tables` (TABLES) have states from the audit log, `statuses` are the log's changes."""
    advice, every = tables[RECOMMENDATIONS.name], Query()
    todo: list_totals.TodoCounts = list_totals.todo_counts(advice, every)
    unassessed = list_totals.unassessed_counts(advice, every)
    critical = dict(queries.facet(tables[FINDINGS.name], every, "severity")).get(Severity.CRITICAL.value, 0)
    ready = list_totals.ready_counts(advice, every)
    (batch_cpu, batch_memory), batch_pods = usage_of_batch_pods(tables[PODS.name])
    from cotenant.scheduler_ext.reservations.model.life_cycle import PlanGroup

    waiting_things = Waiting(
        ready_to_apply=ready.ready,
        second_person=ready.second_person,
        changes_for_second_person=count_of_states(statuses, ChangeState.AWAITING),
        changes_for_verdict=count_of_states(statuses, ChangeState.APPLIED),
        outcome_unknown=count_of_states(statuses, ChangeState.UNKNOWN, ChangeState.ROLLBACK_UNKNOWN),
        plans_for_approval=None if live.plans is None else live.plans.of(PlanGroup.WAITING),
    )
    return ClusterStatus(
        **inherited_fields(overview, ClusterFigures),
        newest_sample_seconds=overview.time_seconds,
        age_seconds=measures.age_seconds(now_seconds, overview.time_seconds),
        running=live.components,
        lent=Lent(
            batch_pods=batch_pods,
            batch_use=ClusterAmounts(batch_cpu, batch_memory),
            free_for_batch_now=_amounts(overview.cpu.batch_now, overview.memory.batch_now),
            free_for_a_day=_amounts(overview.cpu.mid_now, overview.memory.mid_now),
            why_unknown=why_unknown(tables[RECLAIMABLE.name]),
        ),
        at_risk=AtRisk(
            todo.raises,
            list_totals.above_request_count(advice, every),
            critical,
            unassessed.severity,
            unassessed.memory,
        ),
        waste_containers=todo.cuts,
        waste=list_totals.planned_savings(advice, CUTS),
        waiting=waiting_things,
        saved=Saved(count_of_states(statuses, ChangeState.VERIFIED), change_savings(statuses).verified),
        cluster_unknown=live.unknown,
        plans_unknown=live.plans_unknown,
        plans_left_out=live.plans_left_out,
        notes=tuple(overview.notes),
    )


def _amounts(millicores: float, bytes_: float) -> ClusterAmounts:
    finite = [value if math.isfinite(value) else None for value in (millicores, bytes_)]
    return ClusterAmounts(*finite)


def resource_amounts(amounts: ClusterAmounts) -> Mapping[Resource, float | None]:
    """Return the cluster's amounts of CPU and memory, by resource."""
    return {Resource.CPU: amounts.cpu_millicores, Resource.MEMORY: amounts.memory_bytes}
