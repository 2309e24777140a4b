"""Sums over the rows of a list: the number of each kind, and what recommendations free. Pure.

Pages and commands count and add up here alone. Rows that somebody has put off are in no total.
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
    """Sums over some recommendations."""
    return summed_savings(advice.read(*COLUMNS[when].names, where=where).columns, when)


def planned_savings(advice: Relation, query: Query) -> PlannedSavings:
    """Return the savings of the next step and of all steps, over the rows of a query that are not postponed."""
    where = queries.condition(advice, query) & in_sight(advice)
    return PlannedSavings(*(savings_of_rows(advice, where, when) for when in When))


def in_sight(advice: Relation) -> RowCondition:
    """Rows that the list shows unless somebody asks for more."""
    if any(column.name == POSTPONED for column in advice.schema.columns):
        return RowCondition(f"{POSTPONED} = ''")
    return RowCondition()


@dataclass(frozen=True, slots=True)
class FullestNode:
    """The node with the highest requested share: its name, and that share; "" and NaN if none is known."""

    name: str
    requested_ratio: float


def fullest_node(nodes: Relation) -> FullestNode:
    """Over all nodes; results of a version without the share have none."""
    most = queries.page(nodes, Query(sort=(("requested_ratio", True),)), slice(0, 1), ("node", "requested_ratio"))
    row = next(most.rows(), {})
    known = row.get("requested_ratio")
    return FullestNode("", math.nan) if known is None else FullestNode(str(row["node"]), float(known))


KILLED_FIRST: Final = FilterCondition("killed_first", ("yes",))
"""Containers that the kubelet evicts first when a node runs out of memory."""


def above_request_count(advice: Relation, query: Query) -> int:
    """Containers of a query that used more memory than they request, as the list shows them."""
    asked = replace(query, conditions=tuple(sorted((*query.conditions, KILLED_FIRST))))
    return advice.count(queries.condition(advice, asked) & in_sight(advice))


@dataclass(frozen=True, slots=True)
class Unassessed:
    """Containers that the counts of risk and waste leave out because too little is known of them."""

    severity: int
    """Number of those with too little evidence for a severity."""
    memory: int
    """Number of those whose memory use, or request, is not known."""
    containers: int
    """Number of all containers of the query."""

    @property
    def knows_nothing(self) -> bool:
        """Return whether no container has a severity; false without any container."""
        return 0 < self.severity == self.containers

    @property
    def none_above_request(self) -> str:
        """Say that no container used more memory than it requests, as far as that is known."""
        if not self.memory:
            return "None used more memory than it requests."
        if self.memory == self.containers:
            return "It is not known which would be killed first: no container's memory use and request are."
        unknown = counted(self.memory, "container")
        return f"None is known to have used more memory than it requests; of {unknown} that is not known."


_UNASSESSED: Final = f"severity = '{Severity.UNKNOWN.value}'"
_MEMORY_UNKNOWN: Final = (
    f"memory_observed_max IS NULL OR (coalesce(memory_request_now, memory_limit_now) IS NULL AND {_UNASSESSED})"
)
"""A container that is known to request nothing has a severity for that."""


def unassessed_counts(advice: Relation, query: Query) -> Unassessed:
    """Over the rows of a query that are not hidden."""
    conditions = (_UNASSESSED, _MEMORY_UNKNOWN, "true")
    where = queries.condition(advice, query) & in_sight(advice)
    return Unassessed(*advice.sums([f"count_if({condition})" for condition in conditions], where))


@dataclass(frozen=True, slots=True)
class ReadyCounts:
    """The number of recommendations that pass the guardrails, and of others that only lack a second person."""

    ready: int
    second_person: int


def ready_counts(advice: Relation, query: Query) -> ReadyCounts:
    """Over the rows of a query that are not hidden."""
    where = queries.condition(advice, query) & in_sight(advice)
    second = f"ready = '{Ready.SECOND_PERSON.value}'"
    return ReadyCounts(*advice.sums([f"count_if({_IS_READY})", f"count_if({second})"], where))


@dataclass(frozen=True, slots=True)
class TodoCounts:
    """The number of containers in each of the two lists of what there is to do: at risk, and waste."""

    raises: int
    cuts: int


def todo_counts(advice: Relation, query: Query) -> TodoCounts:
    """Over the rows of a query that are not hidden; results of a version without the lists count as none."""
    where = queries.condition(advice, query) & in_sight(advice)
    return TodoCounts(*advice.sums([f"count_if(todo = '{todo}')" for todo in (TodoList.RAISE, TodoList.CUT)], where))


def severity_counts(advice: Relation, query: Query) -> Counter[str]:
    """The number of rows of a query that are not hidden, by severity."""
    where = queries.condition(advice, query) & in_sight(advice)
    return Counter({severity: count for (severity,), count in advice.groups([("severity",)], where)[0].items()})


def reason_counts(advice: Relation, query: Query) -> Counter[str]:
    """The number of rows of a query that are not hidden, by each reason that its CPU or memory carries."""
    where = queries.condition(advice, query) & in_sight(advice)
    counts = Counter[str]()
    for reasons, count in advice.groups([("cpu_reason", "memory_reason")], where)[0].items():
        counts.update(dict.fromkeys(reasons, count))
    return counts


@dataclass(frozen=True, slots=True)
class NextReview:
    """The changes that a review of some workloads would write, by the last scan and the ledger.

    left: reason for leaving workloads out -> their number.
    """

    workloads: int
    savings: Savings
    left: dict[str, int]

    @property
    def left_count(self) -> int:
        """Number of workloads that are left out, for whatever reason."""
        return sum(self.left.values())


def next_review(advice: Relation, refs: Sequence[WorkloadRef]) -> NextReview:
    """Estimate a review of the workloads with all their containers; a review never takes a workload partly."""
    which, numbers = advice.located(WORKLOAD, [(ref.namespace, ref.kind, ref.name) for ref in refs])
    columns = advice.take(numbers, ["ready", "stopped_by", *COLUMNS[When.NOW].names]).columns
    states = dict.fromkeys(range(len(refs)), (Ready.NOTHING.value, ""))
    for place, ready, why in zip(which, columns["ready"], columns["stopped_by"], strict=True):
        if ready != Ready.NOTHING:
            states[int(place)] = (str(ready), str(why))
    left: dict[str, int] = {}
    for ready, why in states.values():
        if ready not in READY:
            if ready == Ready.SECOND_PERSON:
                words = "needs a second person"
            elif ready == Ready.WAITING:
                words = why
            else:
                words = f"stopped by {why}" if ready == Ready.BLOCKED else "nothing changes"
            left[words] = left.get(words, 0) + 1
    return NextReview(len(refs) - sum(left.values()), summed_savings(columns, When.NOW), left)
