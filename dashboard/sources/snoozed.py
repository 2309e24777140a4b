"""A source that marks recommendations from the ledger: snoozed and dismissed ones, and those that wait for a step.

Snoozes and accepted changes are in the `ChangeService`'s ledger, not in the results: `Postponing` wraps the source of a
dashboard that has such a service and joins the two, so that filters, grid, exports and totals see one table.
"""

from __future__ import annotations

import math
import threading
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import structlog

from cotenant.base.errors import CotenantError
from cotenant.changes.model.ledger_marks import LedgerMarks, mark_recommendations
from cotenant.changes.model.service import ChangeService
from cotenant.dashboard.sources.source import Answers, ResultSource, Snapshot
from cotenant.recommender.model.views import RECOMMENDATIONS

_log = structlog.get_logger(__name__)


class Postponing:
    """A source that marks the snoozed and dismissed recommendations of the wrapped source. Thread-safe."""

    def __init__(
        self, behind: ResultSource, service: ChangeService, now_seconds: Callable[[], float], wait_seconds: float
    ) -> None:
        """Wrap a source; `wait_seconds` is the minimum time between two reads of the ledger."""
        self._behind, self._service = behind, service
        self._now, self._wait = now_seconds, wait_seconds
        self._lock = threading.Lock()
        self._asked_seconds = float("-inf")
        self._known = LedgerMarks()
        self._made: tuple[Snapshot, str, Snapshot] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._behind, name)

    def snapshot(self) -> Snapshot:
        """Return the newest results with snoozed and waiting recommendations marked; new marks give a new `version`."""
        behind = self._behind.snapshot()
        with self._lock:
            scanned_seconds = behind.overview.time_seconds if behind.overview else math.inf
            now = self._now()
            if now - self._asked_seconds >= self._wait:
                try:
                    service = self._service
                    marks_known = service.postponed(), service.cool_downs(), service.trials(), now
                    self._known = LedgerMarks.of(*marks_known, service.taken_steps(scanned_seconds))
                except CotenantError as error:  # the list is worth more than what is hidden of it
                    _log.warning("postponed_unknown", error=error.message)
                self._asked_seconds = now
            marks = self._known
            off = (f"{ref} {entry.until_seconds} {entry.since_seconds}" for ref, entry in marks.postponed.items())
            waiting = (f"{ref} {until}" for ref, until in marks.cool_downs.items())
            tried = (trial.change for trials in marks.trials.values() for trial in trials)
            taken = (f"{ref} {step.seconds}" for ref, step in marks.taken.items())
            digest = f"{zlib.crc32(';'.join(sorted((*off, *waiting, *tried, *taken))).encode()):08x}"
            if self._made is None or self._made[0] is not behind or self._made[1] != digest:
                self._made = (behind, digest, mark_snapshot(behind, marks, f"{behind.version}-{digest}"))
            return self._made[2]

    def forget(self) -> None:
        """Discard the cached marks, because something was snoozed, recalled or accepted."""
        with self._lock:
            self._asked_seconds = float("-inf")


def mark_snapshot(snapshot: Snapshot, marks: LedgerMarks, version: str) -> Snapshot:
    """Return the snapshot with hidden recommendations marked, without steps that must wait or were applied."""
    advice = snapshot.tables[RECOMMENDATIONS.name]
    tables = {**snapshot.tables, RECOMMENDATIONS.name: mark_recommendations(advice, marks)}
    return replace(snapshot, version=version, tables=tables, _answers=Answers(), unmarked_version=snapshot.version)
