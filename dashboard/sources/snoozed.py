"""A source that marks recommendations by what the ledger says: what was postponed, and what waits for its next step.

Postponements and accepted changes are in the `ChangeService`'s ledger, not in the results: `Postponing` wraps the
source of a dashboard that has such a service, and joins the two, so that filters, grid, exports and totals see one
table.
"""

from __future__ import annotations

import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import structlog

from cotenant.core.model.changes.service import ChangeService, PostponedRecommendation
from cotenant.core.model.changes.steps import Ready
from cotenant.core.model.errors import CotenantError
from cotenant.core.model.identity import WorkloadRef
from cotenant.core.model.table import Column, Kind, Schema, Table
from cotenant.core.model.text import visible
from cotenant.core.model.views import RECOMMENDATIONS
from dashboard.sources.source import ResultSource, Snapshot
from dashboard.tables import display
from dashboard.tables.filters import EMPTY, Cells, Index, Indexed
from dashboard.tables.selection import NAMES, keys

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
STEPS: Final = ("cpu_step", "memory_step", *LOWERING, "saving_step")
"""Columns about the step that is allowed now."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LedgerMarks:
    """What the ledger says of workloads: postponed ones, and until when (Unix seconds) others may not be cut."""

    postponed: Mapping[WorkloadRef, PostponedRecommendation] = field(default_factory=dict)
    cool_downs: Mapping[WorkloadRef, float] = field(default_factory=dict)


class Postponing:
    """The source behind, with what was put off marked in the recommendations. Safe for many threads."""

    def __init__(
        self, behind: ResultSource, desk: ChangeService, now_seconds: Callable[[], float], wait_seconds: float
    ) -> None:
        """`wait_seconds`: shortest time between two questions to the service."""
        self._behind, self._desk = behind, desk
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
                self._made = (behind, digest, marked(behind, marks, f"{behind.version}-{digest}"))
            return self._made[2]

    def forget(self) -> None:
        """Drop what is cached: something was postponed, recalled or accepted."""
        with self._lock:
            self._asked_seconds = float("-inf")

    def _marks(self) -> LedgerMarks:
        now = self._now()
        if now - self._asked_seconds >= self._wait:
            try:
                self._known = LedgerMarks(self._desk.postponed(), self._desk.cool_downs())
            except CotenantError as error:  # the list is worth more than what is hidden of it
                _log.warning("postponed_unknown", error=error.message)
            self._asked_seconds = now
        return self._known


def _digest(marks: LedgerMarks) -> str:
    off = (f"{ref} {one.until_seconds} {one.since_seconds}" for ref, one in marks.postponed.items())
    waiting = (f"{ref} {until}" for ref, until in marks.cool_downs.items())
    return f"{zlib.crc32(';'.join(sorted((*off, *waiting))).encode()):08x}"


def marked(snapshot: Snapshot, marks: LedgerMarks, version: str) -> Snapshot:
    """The snapshot with the two columns, and without steps that have to wait."""
    indexed = _with_columns(snapshot.tables[RECOMMENDATIONS.name], marks.postponed)
    tables = {**snapshot.tables, RECOMMENDATIONS.name: _waiting(indexed, marks.cool_downs)}
    return replace(snapshot, version=version, tables=tables, _rows=OrderedDict(), unmarked_version=snapshot.version)


def _with_columns(indexed: Indexed, postponed: Mapping[WorkloadRef, PostponedRecommendation]) -> Indexed:
    states = np.zeros(len(indexed), dtype=np.int32)
    reasons = np.zeros(len(indexed), dtype=np.int32)
    sentences = ["", *sorted({said(one) for one in postponed.values()})]
    places = {word: place for place, word in enumerate(sentences)}
    for rows, one in zip(_rows_of(indexed, list(postponed)), postponed.values(), strict=True):
        states[rows], reasons[rows] = 2 if one.until_seconds is not None else 1, places[said(one)]
    added = {STATE: (("", DISMISSED, SNOOZED), states), WHY: (tuple(sentences), reasons)}
    schema = replace(indexed.table.schema, columns=(*indexed.table.schema.columns, *COLUMNS))
    return _recoded(indexed, added, schema)


def _waiting(indexed: Indexed, cool_downs: Mapping[WorkloadRef, float]) -> Indexed:
    """Rows whose step lowers something, of workloads that were changed lately: no step now, and from when on."""
    columns = indexed.table.columns
    assert isinstance(columns, Cells)
    parts_by_text: dict[str, list[Index]] = {}  # of workloads that were accepted together the text is the same
    for rows, until in zip(_rows_of(indexed, list(cool_downs)), cool_downs.values(), strict=True):
        if any((columns[name][rows] < 0).any() for name in LOWERING):
            going = rows[np.isin(columns["ready"][rows], [ready.value for ready in Ready if ready.now])]
            parts_by_text.setdefault(f"cool-down until {display.moment(until)}", []).append(going)
    if not parts_by_text:
        return indexed
    rows_by_text = {text: np.concatenate(parts) for text, parts in parts_by_text.items()}
    every = np.concatenate(list(rows_by_text.values()))
    added = {
        "ready": _coded(columns["ready"], dict.fromkeys([Ready.WAITING.value], every)),
        "stopped_by": _coded(columns["stopped_by"], rows_by_text),
    }
    numbers = dict(columns.others)
    for name in STEPS:
        numbers[name] = np.array(numbers[name], dtype=np.float64)
        numbers[name][every] = np.nan
    table = Table(indexed.table.schema, replace(columns, others=numbers))
    return _recoded(replace(indexed, table=table), added, indexed.table.schema)


def _coded(cells: Any, rows_by_text: Mapping[str, Index]) -> tuple[tuple[str, ...], npt.NDArray[np.int32]]:
    """A text column after some of its rows were set: its vocabulary, sorted, and codes."""
    texts = np.array(cells, dtype=object)
    for text, rows in rows_by_text.items():
        texts[rows] = text
    vocabulary, codes = np.unique(texts.astype(str), return_inverse=True)
    return tuple(map(str, vocabulary)), codes.astype(np.int32)


def _recoded(
    indexed: Indexed, added: Mapping[str, tuple[tuple[str, ...], npt.NDArray[np.int32]]], schema: Schema
) -> Indexed:
    """With these text columns in place of those of their names, or after the others."""
    cells = indexed.table.columns
    assert isinstance(cells, Cells)
    texts = {name: np.array(vocabulary, dtype=object) for name, (vocabulary, _) in added.items()}
    codes = {**cells.codes, **{name: numbers for name, (_, numbers) in added.items()}}
    order = tuple(dict.fromkeys((*cells.order, *added)))
    wider = Cells(order, {**cells.texts, **texts}, codes, cells.others)
    vocabulary = {n: tuple(word or EMPTY for word in listed) for n, (listed, _) in added.items()}
    return Indexed(Table(schema, wider), {**indexed.vocabulary, **vocabulary}, codes, indexed.size)


def _rows_of(indexed: Indexed, refs: Sequence[WorkloadRef]) -> list[Index]:
    """Row numbers of each workload."""
    numbers = keys(indexed)
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    places = {name: {word: place for place, word in enumerate(indexed.vocabulary[name])} for name in NAMES}
    row_groups = []
    for ref in refs:
        key = _key(indexed, places, (ref.namespace, ref.kind, ref.name))
        start, end = np.searchsorted(ordered, (key, key + 1))
        row_groups.append(order[start:end])
    return row_groups


def _key(indexed: Indexed, places: Mapping[str, Mapping[str, int]], texts: tuple[str, str, str]) -> int:
    """The number of a workload's rows; -1 when there are none."""
    key = 0
    for name, text in zip(NAMES, texts, strict=True):
        if text not in places[name]:
            return -1
        key = key * len(indexed.vocabulary[name]) + places[name][text]
    return key


def said(one: PostponedRecommendation) -> str:
    """Until when, why and by whom, in one sentence."""
    until = "for good" if one.until_seconds is None else f"until {display.moment(one.until_seconds)}"
    return visible(f"{until}: {one.reason} ({one.actor})")
