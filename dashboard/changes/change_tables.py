"""Changes and ledger entries as tables: only those that the requesting person may read, ready for filters.

`with_changes(view)` returns a view whose source has them, for lists, exports and the API; without a `ChangeService` the
table of changes is empty. Tables are cached until a change or its state changes.
"""

from __future__ import annotations

import threading
import zlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from dash.development.base_component import Component

from cotenant.base.errors import NoData
from cotenant.base.people import Person
from cotenant.base.tables.queries import Relation
from cotenant.changes.model.change import ChangeState, ChangeStatus
from cotenant.changes.model.service import ChangeService, LedgerHealth
from cotenant.changes.model.tables import CHANGES, ENTRIES, changes_table, entries_table
from cotenant.dashboard.figures import display
from cotenant.dashboard.frame import panels
from cotenant.dashboard.frame.view import View
from cotenant.dashboard.sources.source import Answers, Snapshot

TONES: Final[Mapping[ChangeState, str]] = {
    ChangeState.UNKNOWN: "orange",
    ChangeState.ROLLBACK_UNKNOWN: "orange",
    ChangeState.AWAITING: "violet",
    ChangeState.WAITING: "blue",
    ChangeState.APPLIED: "blue",
    ChangeState.VERIFIED: "teal",
    ChangeState.REGRESSED: "red",
    ChangeState.FAILED: "red",
}
REMEMBERED: Final = 4
"""Number of cached tables: people with other namespaces see other rows."""
NO_CHANGE_SERVICE: Final = "This dashboard is read-only: it keeps no ledger."
FIX: Final = "Start the dashboard with `cotenant dashboard --act`."


class Changing:
    """The view's result source with a single table in its snapshots: changes, or ledger entries. Thread-safe."""

    def __init__(self, view: View) -> None:
        """Store the view; no table is built yet."""
        self._view = view
        self._lock = threading.Lock()
        self._made: OrderedDict[str, Relation] = OrderedDict()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._view.source, name)

    def snapshot(self) -> Snapshot:
        """Return the newest results with a single table: the changes that the requesting person may read."""
        behind = self._view.source.snapshot()
        statuses = statuses_of(self._view)
        version = version_of(statuses)
        with self._lock:
            relation = self._made.get(version)
        if relation is None:
            relation = Relation.of(changes_table(statuses))
            with self._lock:
                self._made[version] = relation
                while len(self._made) > REMEMBERED:
                    self._made.popitem(last=False)
        return replace(behind, version=version, tables={CHANGES.name: relation}, _answers=Answers())

    def entries(self) -> Snapshot:
        """Return the newest results with a single table: the ledger entries, which only exports and scripts read."""
        behind = self._view.source.snapshot()
        ledger_rows = require_changes(self._view).entries(self._view.given.current_user())
        version = f"{len(ledger_rows)}-{ledger_rows[-1].hash[:12] if ledger_rows else ''}"
        relation = Relation.of(entries_table(ledger_rows))
        return replace(behind, version=version, tables={ENTRIES.name: relation}, _answers=Answers())


def with_changes(view: View) -> View:
    """Return the view with a source whose table is that of changes or ledger entries."""
    return replace(view, source=Changing(view))


def require_changes(view: View) -> ChangeService:
    """Return the change service; raise NoData if this dashboard is read-only."""
    if view.given.changes is None:
        raise NoData(NO_CHANGE_SERVICE, fix=FIX)
    return view.given.changes


def statuses_of(view: View) -> list[ChangeStatus]:
    """Return the changes that the requesting person may read, newest first; empty if this dashboard is read-only."""
    service = view.given.changes
    return service.changes(view.given.current_user()) if service else []


def version_of(statuses: Sequence[ChangeStatus]) -> str:
    """Return a version string that differs whenever a change is added or the state of one changes."""
    text = ";".join(f"{s.change.id}{s.state}{s.since_seconds}" for s in statuses)
    return f"{len(statuses)}-{zlib.crc32(text.encode()):08x}"


def chip(state: ChangeState) -> Component:
    """Return a chip with the state of a change."""
    return panels.chip(state.value, TONES.get(state, "gray"))


def visible_health(health: LedgerHealth, who: Person) -> LedgerHealth:
    """Return the ledger's health, without its row count and texts unless the person may read all namespaces."""
    return health if who.reads is None else replace(health, rows=None, words="", notes=())


def health_words(health: LedgerHealth) -> str:
    """Return one sentence that says whether the audit log is intact."""
    if health.bad_row:
        why = f": {health.words}" if health.words else ""
        return f"Audit log damaged: entry {health.bad_row} is wrong{why}."
    if health.rows is None:
        return (
            "Audit log intact: nothing changed, nothing removed"
            if health.anchored
            else "The entries of the audit log are consistent"
        )
    entries = display.counted(health.rows, "entry")
    if health.anchored:
        return f"Audit log intact: {entries}, none changed, none removed"
    unknown = "whether the log's last entries were removed cannot be checked: the cluster stores no hash of the last"
    return f"The audit log is empty; {unknown}" if health.rows == 0 else f"Audit log consistent: {entries}; {unknown}"


def soaks(status: ChangeStatus, soak_seconds: float, now_seconds: float) -> float | None:
    """Return the seconds of soak time left of an applied change, 0 if it is over; None if the change is not applied."""
    if status.state is not ChangeState.APPLIED:
        return None
    return max(0.0, (status.begun_seconds or status.accepted_seconds) + soak_seconds - now_seconds)


def done_words(statuses: Sequence[ChangeStatus], verb: str) -> str:
    """Describe the result of an action: each change for up to three, else the number of changes in each state."""
    if not statuses:
        return f"Nothing to {verb}."
    if len(statuses) > 3:
        states = [s.state.value for s in statuses]
        counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
        return f"{len(statuses)} changes: {counts}."
    return " ".join(f"{s.change.workload}: {s.state.value}{f' ({s.words})' if s.words else ''}." for s in statuses)


def display_name(someone: Person) -> str:
    """Return the name by which the page addresses a person."""
    return someone.name or "the person at this computer"
