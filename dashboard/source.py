"""EDGE: where the dashboard gets what it shows: a `Source` answers with one consistent snapshot of a cluster's results.

`StoreSource` reads what the pipeline wrote and looks again, at most every few seconds, whether newer results are there;
the overview document, written last, tells. Tests put a Source of their own in its place.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from cotenant.edges.clock import Clock, SystemClock
from cotenant.edges.store import Store
from cotenant.model.errors import NoData
from cotenant.model.recommendation import Recommendation
from cotenant.model.table import Schema, Table
from cotenant.model.views import NODES, RECOMMENDATIONS, WORKLOADS, Overview
from cotenant.settings.dashboard import DashboardSettings
from dashboard import filters
from dashboard.filters import Index, Indexed, Query

SCHEMAS: Final[Mapping[str, Schema]] = {s.name: s for s in (WORKLOADS, RECOMMENDATIONS, NODES)}
REMEMBERED_QUERIES: Final = 32


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """One run's results; `version` changes whenever anything else does."""

    version: str
    overview: Overview | None
    tables: Mapping[str, Indexed]
    _rows: OrderedDict[tuple[str, Query], Index] = field(default_factory=OrderedDict, repr=False)

    @classmethod
    def of(cls, version: str, overview: Overview | None, tables: Mapping[str, Table]) -> Snapshot:
        """Index the tables; a table that is missing is empty."""
        found = {name: tables.get(name) or Table.from_rows(schema, []) for name, schema in SCHEMAS.items()}
        return cls(version, overview, {name: Indexed.of(table) for name, table in found.items()})

    def rows(self, name: str, query: Query) -> Index:
        """Row numbers of a table under a query; the last few answers are kept, as a grid asks page after page."""
        key = (name, query)
        found = self._rows.get(key)
        if found is None:
            found = filters.select(self.tables[name], query)
            self._rows[key] = found
            while len(self._rows) > REMEMBERED_QUERIES:
                self._rows.popitem(last=False)
        return found


class Source(Protocol):
    """Answers for one cluster; raises CotenantError when the place behind it cannot be read."""

    def snapshot(self) -> Snapshot:
        """The newest results."""

    def explain(self, namespace: str, kind: str, workload: str, container: str) -> Recommendation | None:
        """The full recommendation of one container with its inputs; None when there is none."""


class StoreSource:
    """The results in a store, re-read when they change."""

    def __init__(self, store: Store, settings: DashboardSettings, clock: Clock | None = None) -> None:
        """Nothing is read yet."""
        self._store = store
        self._wait_seconds = settings.reload_seconds
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._snapshot = Snapshot.of("", None, {})
        self._looked_seconds = float("-inf")

    def snapshot(self) -> Snapshot:
        """The newest results; the old ones while another thread reads newer ones."""
        if not self._lock.acquire(blocking=self._snapshot.overview is None):
            return self._snapshot
        try:
            now = self._clock.now_seconds()
            if now - self._looked_seconds >= self._wait_seconds:
                self._look()
                self._looked_seconds = now
            return self._snapshot
        finally:
            self._lock.release()

    def _look(self) -> None:
        overview = self._store.read_document("overview", Overview)
        version = f"{overview.computed_seconds}-{overview.time_seconds}-{overview.settings_digest}" if overview else ""
        if version != self._snapshot.version:
            tables = {name: table for name, schema in SCHEMAS.items() if (table := self._table(schema)) is not None}
            self._snapshot = Snapshot.of(version, overview, tables)

    def _table(self, schema: Schema) -> Table | None:
        try:
            return self._store.read_table(schema)
        except NoData:
            return None

    def explain(self, namespace: str, kind: str, workload: str, container: str) -> Recommendation | None:
        """From the namespace's document; a namespace that no recommendation names is not looked up."""
        known = self.snapshot().tables[RECOMMENDATIONS.name].vocabulary.get("namespace", ())
        if namespace not in known:
            return None
        wanted = (namespace, kind, workload, container)
        stored = self._store.read_document(f"explain@{namespace}", list[Recommendation]) or []
        return next((r for r in stored if _name(r) == wanted), None)


def _name(recommendation: Recommendation) -> tuple[str, str, str, str]:
    ref = recommendation.container
    return ref.workload.namespace, ref.workload.kind, ref.workload.name, ref.container
