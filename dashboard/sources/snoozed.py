"""A source that marks postponed recommendations: two columns beside the analysis's own.

Postponements are in the `ChangeService`'s ledger, not in the results: `Postponing` wraps the source of a dashboard that
has such a service, and joins the two, so that filters, grid, exports and totals see one table.
"""

from __future__ import annotations

import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import structlog

from cotenant.core.model.changes.service import ChangeService, PostponedRecommendation
from cotenant.core.model.errors import CotenantError
from cotenant.core.model.identity import WorkloadRef
from cotenant.core.model.table import Column, Kind, Table
from cotenant.core.model.text import visible
from cotenant.core.model.views import RECOMMENDATIONS
from dashboard.sources.source import ResultSource, Snapshot
from dashboard.tables import display
from dashboard.tables.filters import EMPTY, Cells, Index, Indexed
from dashboard.tables.selection import NAMES, keys

STATE: Final = "postponed"
WHY: Final = "postponed_why"
COLUMNS: Final = (
    Column(STATE, "Put off", Kind.TEXT, "snoozed until a day, or dismissed for good; empty: neither.", wide=True),
    Column(WHY, "Put off because", Kind.TEXT, "Until when, why, and who said so.", wide=True),
)
SNOOZED: Final = "snoozed"
DISMISSED: Final = "dismissed"
HIDDEN: Final = f"{STATE}={EMPTY}"
"""The filter of a list that hides what was put off."""

_log = structlog.get_logger(__name__)


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
        self._known: Mapping[WorkloadRef, PostponedRecommendation] = {}
        self._made: tuple[Snapshot, str, Snapshot] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._behind, name)

    def snapshot(self) -> Snapshot:
        """The newest results, marked; `version` changes with either."""
        behind = self._behind.snapshot()
        with self._lock:
            postponed = self._postponed()
            digest = _digest(postponed)
            if self._made is None or self._made[0] is not behind or self._made[1] != digest:
                self._made = (behind, digest, marked(behind, postponed, f"{behind.version}-{digest}"))
            return self._made[2]

    def forget(self) -> None:
        """Drop the cached postponements: one was added or recalled."""
        with self._lock:
            self._asked_seconds = float("-inf")

    def _postponed(self) -> Mapping[WorkloadRef, PostponedRecommendation]:
        now = self._now()
        if now - self._asked_seconds >= self._wait:
            try:
                self._known = self._desk.postponed()
            except CotenantError as error:  # the list is worth more than what is hidden of it
                _log.warning("postponed_unknown", error=error.message)
            self._asked_seconds = now
        return self._known


def _digest(postponed: Mapping[WorkloadRef, PostponedRecommendation]) -> str:
    text = ";".join(sorted(f"{ref} {one.until_seconds} {one.since_seconds}" for ref, one in postponed.items()))
    return f"{zlib.crc32(text.encode()):08x}"


def marked(snapshot: Snapshot, postponed: Mapping[WorkloadRef, PostponedRecommendation], version: str) -> Snapshot:
    """The snapshot with the two columns."""
    indexed = snapshot.tables[RECOMMENDATIONS.name]
    tables = {**snapshot.tables, RECOMMENDATIONS.name: _with_columns(indexed, postponed)}
    return replace(snapshot, version=version, tables=tables, _rows=OrderedDict())


def _with_columns(indexed: Indexed, postponed: Mapping[WorkloadRef, PostponedRecommendation]) -> Indexed:
    states = np.zeros(len(indexed), dtype=np.int32)
    reasons = np.zeros(len(indexed), dtype=np.int32)
    sentences = ["", *sorted({said(one) for one in postponed.values()})]
    places = {word: place for place, word in enumerate(sentences)}
    for rows, one in zip(_rows_of(indexed, list(postponed)), postponed.values(), strict=True):
        states[rows], reasons[rows] = 2 if one.until_seconds is not None else 1, places[said(one)]
    added = {STATE: (("", DISMISSED, SNOOZED), states), WHY: (tuple(sentences), reasons)}
    cells = indexed.table.columns
    assert isinstance(cells, Cells)
    texts = {name: np.array(vocabulary, dtype=object) for name, (vocabulary, _) in added.items()}
    codes = {**cells.codes, **{name: numbers for name, (_, numbers) in added.items()}}
    schema = replace(indexed.table.schema, columns=(*indexed.table.schema.columns, *COLUMNS))
    wider = Cells((*cells.order, *added), {**cells.texts, **texts}, codes, cells.others)
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
