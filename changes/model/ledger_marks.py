"""Marks of recommendations by the ledger: hidden ones, and those that wait for their next step. Pure.

Results of a scan do not include the ledger: callers that count recommendations join the two by `mark_recommendations`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from cotenant.base.identity import WorkloadRef
from cotenant.base.resource import Resource
from cotenant.base.table import Column, Kind, Table
from cotenant.base.tables.filters import EMPTY
from cotenant.base.tables.queries import Index, Relation
from cotenant.base.text import moment, visible
from cotenant.changes.model.service import PostponedRecommendation
from cotenant.changes.model.trial import COUNTS_SECONDS, RULE, Amount, TakenStep, Trial, find_repetition
from cotenant.recommender.model import savings
from cotenant.recommender.model.list_totals import WORKLOAD
from cotenant.recommender.model.recommendation import Field
from cotenant.recommender.model.steps import Ready
from cotenant.recommender.model.todo import TodoList

STATE: Final = "postponed"
WHY: Final = "postponed_why"
COLUMNS: Final = (
    Column(STATE, "Hidden", Kind.TEXT, "State: snoozed until a day, dismissed for good, or empty.", wide=True),
    Column(WHY, "Hidden because", Kind.TEXT, "Until when the recommendation is hidden, why, and by whom.", wide=True),
)
SNOOZED: Final = "snoozed"
DISMISSED: Final = "dismissed"
HIDDEN: Final = f"{STATE}={EMPTY}"
"""A list's filter that hides snoozed and dismissed rows."""

LOWERING: Final = ("cpu_step_total", "memory_step_total")
STEPS: Final = ("steps", "cpu_step", "memory_step", "saving_step", *savings.COLUMNS[savings.When.NOW].names)
"""Columns about the step that may be applied now."""
_OF_STEP: Final = ("saving_step", *savings.COLUMNS[savings.When.NOW].names)
_LEFT: Final = ("saving_month", *savings.COLUMNS[savings.When.ALL_STEPS].names)
"""Columns with the sums over all steps, in the order of those over the next step."""
TAKEN: Final = "the step was applied after the scan"
_FIELDS: Final = ("request_now", "request", "limit_now", "limit", "step")
_AMOUNTS: Final = tuple(f"{resource.value}_{name}" for resource in Resource for name in _FIELDS)


@dataclass(frozen=True, slots=True)
class LedgerMarks:
    """The ledger's facts about workloads: hidden recommendations, cool-downs, trials, and applied steps.

    A workload may not be cut until its cool-down ends (Unix seconds). `trials` are changes that did harm or were rolled
    back; `taken` are changes in effect since the scan; the ledger was read at `now_seconds` (Unix time).
    """

    postponed: Mapping[WorkloadRef, PostponedRecommendation] = field(default_factory=dict)
    cool_downs: Mapping[WorkloadRef, float] = field(default_factory=dict)
    trials: Mapping[WorkloadRef, Sequence[Trial]] = field(default_factory=dict)
    now_seconds: float = 0.0
    taken: Mapping[WorkloadRef, TakenStep] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        postponed: Mapping[WorkloadRef, PostponedRecommendation],
        cool_downs: Mapping[WorkloadRef, float],
        trials: Mapping[WorkloadRef, Sequence[Trial]],
        now_seconds: float,
        taken: Mapping[WorkloadRef, TakenStep],
    ) -> LedgerMarks:
        """Return the marks; of earlier changes (`trials`), only those that did harm in the last COUNTS_SECONDS."""
        counting = {
            ref: tuple(trial for trial in tried if trial.harm and now_seconds - trial.seconds < COUNTS_SECONDS)
            for ref, tried in trials.items()
        }
        return cls(postponed, cool_downs, {ref: tried for ref, tried in counting.items() if tried}, now_seconds, taken)


def mark_recommendations(advice: Relation, marks: LedgerMarks) -> Relation:
    """Return the recommendations with columns that mark hidden ones, without steps that must wait or were applied."""
    ones = list(marks.postponed.values())
    which, numbers = _rows_of(advice, list(marks.postponed))
    cells = {
        STATE: [DISMISSED if ones[place].until_seconds is None else SNOOZED for place in which],
        WHY: [postponement_sentence(ones[place]) for place in which],
    }
    with_columns = advice.with_cells(replace(advice.schema, columns=(*advice.schema.columns, *COLUMNS)), numbers, cells)
    return _without_steps(with_columns, marks)


def without_waiting_steps(advice: Table, marks: LedgerMarks) -> Table:
    """Return the recommendations' rows, hidden ones included, without steps that must wait or were applied already."""
    if not marks.cool_downs and not marks.trials and not marks.taken:
        return advice
    return _without_steps(Relation.of(advice), marks).read(*advice.columns)


def _without_steps(advice: Relation, marks: LedgerMarks) -> Relation:
    # Rows whose step lowers something, of workloads that were changed lately: no step now, and from when on.
    waiting = _withhold_tried_steps(advice, marks)
    until = list(marks.cool_downs.values())
    which, numbers = _rows_of(waiting, list(marks.cool_downs))
    columns = waiting.take(numbers, [*LOWERING, "ready"]).columns
    lowers = np.any([columns[name] < 0 for name in LOWERING], axis=0)
    lowered = np.isin(which, np.unique(which[lowers]))  # all containers of a workload wait together
    waits = lowered & np.isin(columns["ready"].astype(str), [ready.value for ready in Ready if ready.now])
    if waits.any():
        reasons = [f"cool-down until {moment(until[place])}" for place in which[waits]]
        cells = {"ready": [Ready.WAITING.value] * len(reasons), "stopped_by": reasons}
        missing = {name: [np.nan] * len(reasons) for name in STEPS}
        waiting = waiting.with_cells(waiting.schema, numbers[waits], {**cells, **missing})
    return _with_steps_taken(waiting, advice, marks.taken) if marks.taken else waiting


def _with_steps_taken(advice: Relation, scanned: Relation, taken: Mapping[WorkloadRef, TakenStep]) -> Relation:
    """Return the rows with only what is left after steps applied since the scan, so that nothing counts twice.

    `scanned` are the rows as the scan wrote them. A change that is neither the step nor the whole cut leaves its row as
    is.
    """
    which, numbers = _rows_of(scanned, list(taken))
    steps = list(taken.values())
    rows = list(scanned.take(numbers, ["container", "todo", *_AMOUNTS, *_LEFT, *_OF_STEP]).rows())
    now = advice.take(numbers, ["ready", "stopped_by"]).rows()
    remaining_rows = [_left(row, steps[int(place)].amounts) for place, row in zip(which, rows, strict=True)]
    for cells, shown in zip(remaining_rows, now, strict=True):
        if cells is not None and "ready" not in cells:
            waits = Ready(str(shown["ready"])).now
            cells.update({"ready": Ready.WAITING.value, "stopped_by": TAKEN} if waits else shown)
    changed_rows = [cells for cells in remaining_rows if cells is not None]
    names = dict.fromkeys(name for cells in changed_rows for name in cells)
    columns = {name: [cells.get(name) for cells in changed_rows] for name in names}
    is_found = [cells is not None for cells in remaining_rows]
    return advice.with_cells(advice.schema, numbers[is_found], columns) if changed_rows else advice


def _left(row: Mapping[str, Any], amounts: Sequence[Amount]) -> dict[str, Any] | None:
    """Return a row's cells after its container's change; None if the change is not the one that the scan proposed."""
    moved = {(a.resource, a.field): a for a in amounts if a.container == row["container"]}
    steps = {(a.resource, a.field): a for a in _step_amounts(row) if a.after is not None and a.after != a.before}
    keys = {key for key in {*moved, *steps} if key[1] is Field.REQUEST} or {*moved, *steps}
    if not moved or any(key not in moved or key not in steps or moved[key].before != steps[key].before for key in keys):
        return None
    is_whole = all(moved[key].after == _whole_number(row[f"{key[0].value}_{key[1].value}"]) for key in keys)
    if not is_whole and any(moved[key].after != steps[key].after for key in keys):
        return None
    pairs = [(name, row[name], row[step]) for name, step in zip(_LEFT, _OF_STEP, strict=True)]
    rest = {name: 0.0 if is_whole else every - (step or 0.0) for name, every, step in pairs if every is not None}
    after = {f"{a.resource.value}_{a.field.value}_now": a.after for a in moved.values()}
    present = {name: math.nan if amount is None else amount for name, amount in after.items()}
    done = {"ready": Ready.NOTHING.value, "stopped_by": "", "todo": TodoList.NOTHING.value} if is_whole else {}
    return {**rest, **present, **dict.fromkeys(STEPS, math.nan), **done}


def _withhold_tried_steps(advice: Relation, marks: LedgerMarks) -> Relation:
    """Block the rows of workloads whose step would repeat a change that did harm, and name that change."""
    refs = list(marks.trials)
    which, numbers = _rows_of(advice, refs)
    rows = list(advice.take(numbers, ["container", "ready", *_AMOUNTS]).rows())
    amounts: dict[int, list[Amount]] = {}
    for place, row in zip(which, rows, strict=True):
        amounts.setdefault(int(place), []).extend(_step_amounts(row))
    now, trials = marks.now_seconds, marks.trials
    hits = {place: find_repetition(trials[refs[place]], row_amounts, now) for place, row_amounts in amounts.items()}
    evidence = [hits[int(place)] for place in which]
    is_withheld = [
        hit is not None and (Ready(str(row["ready"])).now or row["ready"] == Ready.SECOND_PERSON)
        for hit, row in zip(evidence, rows, strict=True)
    ]
    repetitions = [hit for hit, withheld in zip(evidence, is_withheld, strict=True) if hit and withheld]
    sentences = [f"{RULE}: {trial.sentence(amount)}" for trial, amount in repetitions]
    if not sentences:
        return advice
    cells: dict[str, list[str | float | None]] = {
        "ready": [Ready.BLOCKED.value] * len(sentences),
        "stopped_by": list(sentences),
        **{name: [np.nan] * len(sentences) for name in STEPS},
    }
    return advice.with_cells(advice.schema, numbers[np.array(is_withheld)], cells)


def _step_amounts(row: Mapping[str, Any]) -> Iterator[Amount]:
    """Yield the amounts that the next allowed step would set, field by field."""
    for resource in Resource:
        step, whole_step = (_whole_number(row[f"{resource.value}_{name}"]) for name in ("step", "request"))
        request, limit = whole_step if step is None else step, _whole_number(row[f"{resource.value}_limit"])
        if limit is not None and request is not None:
            limit = max(limit, request)  # of a step, whose limit is not below its request
        for field_, after in ((Field.REQUEST, request), (Field.LIMIT, limit)):
            now = _whole_number(row[f"{resource.value}_{field_.value}_now"])
            yield Amount(str(row["container"]), resource, field_, now, after)


def _whole_number(cell: Any) -> int | None:
    return None if cell is None or np.isnan(cell) else int(cell)


def _rows_of(advice: Relation, refs: Sequence[WorkloadRef]) -> tuple[Index, Index]:
    """Return (index of the workload, row number) of each row of these workloads."""
    return advice.located(WORKLOAD, [(ref.namespace, ref.kind, ref.name) for ref in refs])


def postponement_sentence(entry: PostponedRecommendation) -> str:
    """Return one sentence: until when the recommendation is hidden, why, and by whom."""
    until = "for good" if entry.until_seconds is None else f"until {moment(entry.until_seconds)}"
    return visible(f"{until}: {entry.reason} ({entry.actor})")
