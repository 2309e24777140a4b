"""A source that marks recommendations by what the ledger says: what was postponed, and what waits for its next step.

Postponements and accepted changes are in the `ChangeService`'s ledger, not in the results: `Postponing` wraps the
source of a dashboard that has such a service, and joins the two, so that filters, grid, exports and totals see one
table.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import structlog

from cotenant.base.errors import CotenantError
from cotenant.base.identity import WorkloadRef
from cotenant.base.table import Column, Kind
from cotenant.base.tables.filters import EMPTY
from cotenant.base.tables.queries import Index, Relation
from cotenant.base.text import visible
from cotenant.changes.model.service import ChangeService, PostponedRecommendation
from cotenant.dashboard.sources.answers import Answers
from cotenant.dashboard.sources.source import ResultSource, Snapshot
from cotenant.dashboard.tables import display
from cotenant.dashboard.tables.selection import NAMES
from cotenant.recommender.model import savings
from cotenant.recommender.model.steps import Ready
from cotenant.recommender.model.views import RECOMMENDATIONS

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
STEPS: Final = ("cpu_step", "memory_step", "saving_step", *savings.COLUMNS[savings.When.NOW].names)
"""Columns about the step that is allowed now."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LedgerMarks:
    """The ledger's marks of workloads: those postponed, and the end of others' cool-down (Unix seconds).

    Until the end of its cool-down a workload may not be cut.
    """

    postponed: Mapping[WorkloadRef, PostponedRecommendation] = field(default_factory=dict)
    cool_downs: Mapping[WorkloadRef, float] = field(default_factory=dict)


class Postponing:
    """The source behind, with what was put off marked in the recommendations. Safe for many threads."""

    def __init__(
        self, behind: ResultSource, service: ChangeService, now_seconds: Callable[[], float], wait_seconds: float
    ) -> None:
        """`wait_seconds`: shortest time between two questions to the service."""
        self._behind, self._service = behind, service
        self._now, self._wait = now_seconds, wait_seconds
        self._lock = threading.Lock()
        self._asked_seconds = float("-inf")
        self._known = LedgerMarks()
        self._made: tuple[Snapshot, str, Snapshot] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._behind, name)

    def snapshot(self) -> Snapshot:
        """The newest results, marked; `version` changes with either."""
        behind = self._behind.snapshot()
        with self._lock:
            marks = self._marks()
            digest = _digest(marks)
            if self._made is None or self._made[0] is not behind or self._made[1] != digest:
                self._made = (behind, digest, mark_snapshot(behind, marks, f"{behind.version}-{digest}"))
            return self._made[2]

    def forget(self) -> None:
        """Drop what is cached: something was postponed, recalled or accepted."""
        with self._lock:
            self._asked_seconds = float("-inf")

    def _marks(self) -> LedgerMarks:
        now = self._now()
        if now - self._asked_seconds >= self._wait:
            try:
                self._known = LedgerMarks(self._service.postponed(), self._service.cool_downs())
            except CotenantError as error:  # the list is worth more than what is hidden of it
                _log.warning("postponed_unknown", error=error.message)
            self._asked_seconds = now
        return self._known


def _digest(marks: LedgerMarks) -> str:
    off = (f"{ref} {entry.until_seconds} {entry.since_seconds}" for ref, entry in marks.postponed.items())
    waiting = (f"{ref} {until}" for ref, until in marks.cool_downs.items())
    return f"{zlib.crc32(';'.join(sorted((*off, *waiting))).encode()):08x}"


def mark_snapshot(snapshot: Snapshot, marks: LedgerMarks, version: str) -> Snapshot:
    """The snapshot with the two columns, and without steps that have to wait."""
    advice = snapshot.tables[RECOMMENDATIONS.name]
    tables = {
        **snapshot.tables,
        RECOMMENDATIONS.name: _withhold_cooling_steps(_with_columns(advice, marks.postponed), marks.cool_downs),
    }
    return replace(snapshot, version=version, tables=tables, _answers=Answers(), unmarked_version=snapshot.version)


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
    reasons = [f"cool-down until {display.moment(until[place])}" for place in which[waits]]
    cells = {"ready": [Ready.WAITING.value] * len(reasons), "stopped_by": reasons}
    missing = {name: [np.nan] * len(reasons) for name in STEPS}
    return advice.with_cells(advice.schema, numbers[waits], {**cells, **missing})


def _rows_of(advice: Relation, refs: Sequence[WorkloadRef]) -> tuple[Index, Index]:
    """(place among the workloads, row number) of each of their rows."""
    return advice.located(NAMES, [(ref.namespace, ref.kind, ref.name) for ref in refs])


def postponement_sentence(entry: PostponedRecommendation) -> str:
    """Until when, why and by whom, in one sentence."""
    until = "for good" if entry.until_seconds is None else f"until {display.moment(entry.until_seconds)}"
    return visible(f"{until}: {entry.reason} ({entry.actor})")
