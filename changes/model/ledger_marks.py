"""Recommendations marked by what the ledger says: what was put off, and what waits for its next step. Pure.

The ledger's entries are no part of the results: whoever counts recommendations joins the two by `mark_recommendations`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from cotenant.base.identity import WorkloadRef
from cotenant.base.table import Column, Kind, Table
from cotenant.base.tables.filters import EMPTY
from cotenant.base.tables.queries import Index, Relation
from cotenant.base.text import moment, visible
from cotenant.changes.model.service import PostponedRecommendation
from cotenant.recommender.model import savings
from cotenant.recommender.model.list_totals import WORKLOAD
from cotenant.recommender.model.steps import Ready

STATE: Final = "postponed"
WHY: Final = "postponed_why"
COLUMNS: Final = (
    Column(STATE, "Hidden", Kind.TEXT, "snoozed until a day, or dismissed for good; empty: neither.", wide=True),
    Column(WHY, "Hidden because", Kind.TEXT, "Until when, why, and who said so.", wide=True),
)
SNOOZED: Final = "snoozed"
DISMISSED: Final = "dismissed"
HIDDEN: Final = f"{STATE}={EMPTY}"
"""The filter of a list that hides what was put off."""

LOWERING: Final = ("cpu_step_total", "memory_step_total")
STEPS: Final = ("steps", "cpu_step", "memory_step", "saving_step", *savings.COLUMNS[savings.When.NOW].names)
"""Columns about the step that is allowed now."""


@dataclass(frozen=True, slots=True)
class LedgerMarks:
    """The ledger's marks of workloads: those postponed, and the end of others' cool-down (Unix seconds).

    Until the end of its cool-down a workload may not be cut.
    """

    postponed: Mapping[WorkloadRef, PostponedRecommendation] = field(default_factory=dict)
    cool_downs: Mapping[WorkloadRef, float] = field(default_factory=dict)


def mark_recommendations(advice: Relation, marks: LedgerMarks) -> Relation:
    """The recommendations with the two columns, and without steps that have to wait."""
    return _withhold_cooling_steps(_with_columns(advice, marks.postponed), marks.cool_downs)


def without_waiting_steps(advice: Table, marks: LedgerMarks) -> Table:
    """The rows of recommendations without steps that have to wait; what was put off is among them."""
    if not marks.cool_downs:
        return advice
    return _withhold_cooling_steps(Relation.of(advice), marks.cool_downs).read(*advice.columns)


def _with_columns(advice: Relation, postponed: Mapping[WorkloadRef, PostponedRecommendation]) -> Relation:
    ones = list(postponed.values())
    which, numbers = _rows_of(advice, list(postponed))
    cells = {
        STATE: [DISMISSED if ones[place].until_seconds is None else SNOOZED for place in which],
        WHY: [postponement_sentence(ones[place]) for place in which],
    }
    return advice.with_cells(replace(advice.schema, columns=(*advice.schema.columns, *COLUMNS)), numbers, cells)


def _withhold_cooling_steps(advice: Relation, cool_downs: Mapping[WorkloadRef, float]) -> Relation:
    """Rows whose step lowers something, of workloads that were changed lately: no step now, and from when on."""
    until = list(cool_downs.values())
    which, numbers = _rows_of(advice, list(cool_downs))
    columns = advice.take(numbers, [*LOWERING, "ready"]).columns
    lowers = np.any([columns[name] < 0 for name in LOWERING], axis=0)
    lowered = np.isin(which, np.unique(which[lowers]))  # all containers of a workload wait together
    waits = lowered & np.isin(columns["ready"].astype(str), [ready.value for ready in Ready if ready.now])
    if not waits.any():
        return advice
    reasons = [f"cool-down until {moment(until[place])}" for place in which[waits]]
    cells = {"ready": [Ready.WAITING.value] * len(reasons), "stopped_by": reasons}
    missing = {name: [np.nan] * len(reasons) for name in STEPS}
    return advice.with_cells(advice.schema, numbers[waits], {**cells, **missing})


def _rows_of(advice: Relation, refs: Sequence[WorkloadRef]) -> tuple[Index, Index]:
    """(place among the workloads, row number) of each of their rows."""
    return advice.located(WORKLOAD, [(ref.namespace, ref.kind, ref.name) for ref in refs])


def postponement_sentence(entry: PostponedRecommendation) -> str:
    """Until when, why and by whom, in one sentence."""
    until = "for good" if entry.until_seconds is None else f"until {moment(entry.until_seconds)}"
    return visible(f"{until}: {entry.reason} ({entry.actor})")
