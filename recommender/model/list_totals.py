"""Totals over the rows of a list: the number of each kind, and what recommendations free. Pure.

Pages and commands compute totals only with these functions. Snoozed and dismissed rows are in no total.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from cotenant.base.identity import WorkloadRef
from cotenant.base.severity import Severity
from cotenant.base.tables import queries
from cotenant.base.tables.filters import FilterCondition, Query
from cotenant.base.tables.queries import Relation, RowCondition
from cotenant.base.text import counted
from cotenant.recommender.model.recommendation import Action
from cotenant.recommender.model.savings import COLUMNS, PlannedSavings, Savings, When, summed_savings
from cotenant.recommender.model.steps import Ready
from cotenant.recommender.model.todo import TodoList

WORKLOAD: Final = ("namespace", "kind", "workload")
POSTPONED: Final = "postponed"
READY: Final = tuple(ready.value for ready in Ready if ready.now)
"""Values of `ready` that something can be applied of now."""
CAN_BE_APPLIED: Final = FilterCondition("ready", READY)
_IS_READY: Final = " OR ".join(f"ready = '{word}'" for word in READY)


def savings_of_rows(advice: Relation, where: RowCondition, when: When) -> Savings:
    """Return the total savings of the recommendations that match a condition, for now or for all steps."""
    return summed_savings(advice.read(*COLUMNS[when].names, where=where).columns, when)


def planned_savings(advice: Relation, query: Query) -> PlannedSavings:
    """Return the savings of the next step and of all steps, over the rows of a query that are not hidden."""
    where = queries.condition(advice, query) & in_sight(advice)
    return PlannedSavings(*(savings_of_rows(advice, where, when) for when in When))


def in_sight(advice: Relation) -> RowCondition:
    """Return the condition for the recommendations that the list shows by default: neither snoozed nor dismissed."""
    if any(column.name == POSTPONED for column in advice.schema.columns):
        return RowCondition(f"{POSTPONED} = ''")
    return RowCondition()


@dataclass(frozen=True, slots=True)
class FullestNode:
    """The node whose requests are the largest share of its allocatable: name and share; "" and NaN if unknown."""

    name: str
    requested_ratio: float


def fullest_node(nodes: Relation) -> FullestNode:
    """Return the node with the highest requested share, from the NODES table; older results lack that share."""
    most = queries.page(nodes, Query(sort=(("requested_ratio", True),)), slice(0, 1), ("node", "requested_ratio"))
    row = next(most.rows(), {})
    ratio = row.get("requested_ratio")
    return FullestNode("", math.nan) if ratio is None else FullestNode(str(row["node"]), float(ratio))


KILLED_FIRST: Final = FilterCondition("killed_first", ("yes",))
"""Containers that the kubelet evicts first when a node runs out of memory."""


def above_request_count(advice: Relation, query: Query) -> int:
    """Return the number of a query's containers, without hidden rows, that used more memory than they request."""
    query_asked = replace(query, conditions=tuple(sorted((*query.conditions, KILLED_FIRST))))
    return advice.count(queries.condition(advice, query_asked) & in_sight(advice))


@dataclass(frozen=True, slots=True)
class Unassessed:
    """Three counts of containers: without a severity, without a known memory usage or request, and all."""

    severity: int
    """Number of containers with too little evidence for a severity."""
    memory: int
    """Number of containers whose memory usage or request is not known."""
    containers: int
    """Number of all containers of the query."""

    @property
    def knows_nothing(self) -> bool:
        """True if there are containers and none of them has a severity."""
        return 0 < self.severity == self.containers

    @property
    def none_above_request(self) -> str:
        """Sentence for a list in which no container is known to have used more memory than it requests."""
        if not self.memory:
            return "No container used more memory than it requests."
        if self.memory == self.containers:
            return "Memory usage cannot be compared with requests: for no container are usage and request both known."
        unknown = counted(self.memory, "container")
        return f"No container is known to have used more memory than it requests; {unknown} could not be checked."


_UNASSESSED: Final = f"severity = '{Severity.UNKNOWN.value}'"
_NONE_PROPOSED: Final = f"memory_action = '{Action.WITHHELD.value}'"
_MEMORY_UNKNOWN: Final = (
    f"memory_observed_max IS NULL OR (coalesce(memory_request_now, memory_limit_now) IS NULL AND {_NONE_PROPOSED})"
)
"""Where `todo.killed_first` cannot tell: a container with a first request proposed is known to request nothing."""


def unassessed_counts(advice: Relation, query: Query) -> Unassessed:
    """Count the containers without an assessment over the rows of a query that are not hidden."""
    where = queries.condition(advice, query) & in_sight(advice)
    return Unassessed(*advice.sums([f"count_if({c})" for c in (_UNASSESSED, _MEMORY_UNKNOWN, "true")], where))


@dataclass(frozen=True, slots=True)
class ReadyCounts:
    """Number of recommendations that pass the guardrails, and number that need only a second person to confirm."""

    ready: int
    second_person: int


def ready_counts(advice: Relation, query: Query) -> ReadyCounts:
    """Count the recommendations that can be applied now, over the rows of a query that are not hidden."""
    where = queries.condition(advice, query) & in_sight(advice)
    second = f"ready = '{Ready.SECOND_PERSON.value}'"
    return ReadyCounts(*advice.sums([f"count_if({_IS_READY})", f"count_if({second})"], where))


@dataclass(frozen=True, slots=True)
class TodoCounts:
    """The number of containers in each of the two to-do lists: `raises` are at risk, `cuts` are waste."""

    raises: int
    cuts: int


def todo_counts(advice: Relation, query: Query) -> TodoCounts:
    """Count the rows of a query in each to-do list, without hidden rows; older results without to-do lists give 0."""
    where = queries.condition(advice, query) & in_sight(advice)
    return TodoCounts(*advice.sums([f"count_if(todo = '{todo}')" for todo in (TodoList.RAISE, TodoList.CUT)], where))


def severity_counts(advice: Relation, query: Query) -> Counter[str]:
    """Return the number of rows of a query that are not hidden, by severity."""
    where = queries.condition(advice, query) & in_sight(advice)
    return Counter({severity: count for (severity,), count in advice.groups([("severity",)], where)[0].items()})


def reason_counts(advice: Relation, query: Query) -> Counter[str]:
    """Return the number of rows of a query that are not hidden, by each reason code of their CPU or memory."""
    where = queries.condition(advice, query) & in_sight(advice)
    counts = Counter[str]()
    for reasons, count in advice.groups([("cpu_reason", "memory_reason")], where)[0].items():
        counts.update(dict.fromkeys(reasons, count))
    return counts


@dataclass(frozen=True, slots=True)
class NextReview:
    """An estimate, from the last scan and the ledger, of what a review of some workloads would change.

    `left` counts the workloads that the review would leave out, by reason.
    """

    workloads: int
    savings: Savings
    left: dict[str, int]

    @property
    def left_count(self) -> int:
        """Number of workloads that are left out for any reason."""
        return sum(self.left.values())


def next_review(advice: Relation, refs: Sequence[WorkloadRef]) -> NextReview:
    """Estimate a review of these workloads with all their containers; a review never includes part of a workload."""
    which, numbers = advice.located(WORKLOAD, [(ref.namespace, ref.kind, ref.name) for ref in refs])
    columns = advice.take(numbers, ["ready", "stopped_by", *COLUMNS[When.NOW].names]).columns
    states = dict.fromkeys(range(len(refs)), (Ready.NOTHING.value, ""))
    for place, ready, why in zip(which, columns["ready"], columns["stopped_by"], strict=True):
        if ready != Ready.NOTHING:
            states[int(place)] = (str(ready), str(why))
    left_by_reason: dict[str, int] = {}
    for ready, why in states.values():
        if ready not in READY:
            texts = {Ready.SECOND_PERSON.value: "needs a second person's confirmation", Ready.WAITING.value: why}
            reason_text = (texts | {Ready.BLOCKED.value: f"stopped by {why}"}).get(ready, "nothing changes")
            left_by_reason[reason_text] = left_by_reason.get(reason_text, 0) + 1
    return NextReview(len(refs) - sum(left_by_reason.values()), summed_savings(columns, When.NOW), left_by_reason)
