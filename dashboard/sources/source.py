"""EDGE: sources of the dashboard's data: a `ResultSource` returns one consistent snapshot of a cluster's results.

`StoreSource` reads what the pipeline wrote and checks every few seconds for a newer run (`Store.pinned`), so that
everything in a snapshot is from one run. Tests use their own source.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, Final, Protocol, TypeVar

import structlog

from cotenant.base.errors import NoData, StoreCorrupt, StoreError
from cotenant.base.identity import WorkloadRef
from cotenant.base.process.clock import Clock, SystemClock
from cotenant.base.process.memory import release_memory
from cotenant.base.resource import Resource
from cotenant.base.store import Store
from cotenant.base.store.relation import Index, Relation
from cotenant.base.table import Kind, Schema, Table
from cotenant.base.tables import queries
from cotenant.base.tables.filters import Query
from cotenant.base.tables.queries import row_of
from cotenant.base.usage.backtest import BACKTEST, POLICY_TRIAL, WHAT_IF, BacktestReport, PolicyTrial, WhatIf
from cotenant.base.usage.quality import QualityRecord
from cotenant.base.usage.week import WEEKS
from cotenant.dashboard.settings import DashboardSettings
from cotenant.dashboard.sources.workload_story import ForecastDetail, Row, Story, Subject
from cotenant.enforcer.model.enforcement import Gathering, NodeLanes
from cotenant.enforcer.model.enforcement_tables import ENFORCEMENT, ENFORCEMENT_LANES, lanes_of
from cotenant.profiler.recorder.status import STATUS_DOCUMENT, RecorderStatus
from cotenant.recommender.colocation import batch
from cotenant.recommender.colocation.batch import LendableCapacity
from cotenant.recommender.colocation.model.lendable import NODE_HISTORY
from cotenant.recommender.model import views
from cotenant.recommender.model.recommendation import Recommendation
from cotenant.recommender.stored_recommendations import document_name
from cotenant.scheduler_ext.cluster_size.report import REPORT, SizeReport

_log = structlog.get_logger(__name__)
FORECAST_LIST: Final = replace(
    views.FORECASTS, columns=tuple(c for c in views.FORECASTS.columns if c.kind is not Kind.LIST)
)
"""FORECASTS without the paths, which are read one at a time."""

_LISTED: Final = (views.WORKLOADS, views.RECOMMENDATIONS, views.NODES, views.PODS, views.RECLAIMABLE, views.FINDINGS)
SCHEMAS: Final[Mapping[str, Schema]] = {s.name: s for s in (*_LISTED, FORECAST_LIST, views.PLANS, ENFORCEMENT)}
REMEMBERED_STORIES: Final = 16
DETAIL_CELLS: Final = 4_000
"""Approximate number of texts and numbers of a forecast with the weeks before it."""
MOST_CELLS: Final = 100_000
"""Most texts and numbers that all cached answers of a run hold together: under 10 MiB."""
LARGEST_SHARE: Final = 0.1
"""Share of MOST_CELLS for one answer: the filters of 5,000 nodes fit, exports and the filter of 100,000 pods do not."""
QUESTION_CELLS: Final = 500
"""Cells counted for each cached question beside its answer, which limits the number of questions."""
AnswerT = TypeVar("AnswerT")


class Answers:
    """A cache of the latest answers to queries of tables that do not change. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._answers: OrderedDict[Hashable, tuple[int, Any]] = OrderedDict()
        """Question -> cells of the answer, and the answer; the one asked last comes last."""
        self._cells = 0

    def of(self, question: Hashable, ask: Callable[[], AnswerT], cells: Callable[[AnswerT], int]) -> AnswerT:
        """Return the cached answer to `question`, else that of `ask`, which is then cached if it is not too large.

        `cells` counts the texts and numbers of an answer.
        """
        with self._lock:
            if question in self._answers:
                self._answers.move_to_end(question)
                kept_answer: AnswerT = self._answers[question][1]
                return kept_answer
        answer = ask()
        count = QUESTION_CELLS + cells(answer)
        if count <= LARGEST_SHARE * MOST_CELLS:
            with self._lock:
                before, _ = self._answers.pop(question, (0, None))  # another thread may have asked meanwhile
                self._answers[question] = count, answer
                self._cells += count - before
                while self._cells > MOST_CELLS:
                    _, (oldest, _) = self._answers.popitem(last=False)
                    self._cells -= oldest
        return answer


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """The results of one run of the analysis. `version` changes with them, but not with `gathering` and ENFORCEMENT."""

    version: str
    overview: views.Overview | None
    tables: Mapping[str, Relation]
    _answers: Answers = field(default_factory=Answers, repr=False)
    gathering: Gathering | None = None
    """The last collection of node agents' actions; its revision changes with ENFORCEMENT, `version` does not."""
    unmarked_version: str = ""
    """The version of the results without the ledger's marks; "" if no row is marked."""

    @property
    def results_version(self) -> str:
        """The version of the analysis only: it does not change when people snooze or accept something."""
        return self.unmarked_version or self.version

    def file_name(self, table: str, form: str) -> str:
        """Return the name of a file with an exported table, which has the cluster's name to prevent mix-ups."""
        cluster = f"{self.overview.cluster}-" if self.overview else ""
        return f"{cluster}{table}.{form}"

    @classmethod
    def empty(cls) -> Snapshot:
        """Return an empty snapshot, for the time before anything is read."""
        return cls("", None, {name: Relation.of(Table.from_rows(schema, [])) for name, schema in SCHEMAS.items()})

    def rows(self, name: str, query: Query) -> Index:
        """Return the row numbers of a query, for small tables; use `page` for a list."""
        return queries.select(self.tables[name], query)

    def kept(
        self, question: tuple[Hashable, ...], ask: Callable[[], AnswerT], cells: Callable[[AnswerT], int]
    ) -> AnswerT:
        """Return what `ask` computes from these results, cached by `question`; `cells` counts its texts and numbers."""
        return self._answers.of(question, ask, cells)

    def count(self, name: str, query: Query) -> int:
        """Return the number of rows of a table under a query, cached."""
        unsorted = replace(query, sort=())
        question = ("count", name, unsorted)
        return self._answers.of(question, lambda: queries.count(self.tables[name], unsorted), lambda _: 1)

    def facets(self, name: str, query: Query, keys: tuple[str, ...]) -> Mapping[str, Sequence[tuple[str, int]]]:
        """Return the counts of each filter key's values under the query's conditions on all other keys, cached."""
        unsorted = replace(query, sort=())
        return self._answers.of(
            ("facets", name, unsorted, keys),
            lambda: queries.facets(self.tables[name], unsorted, keys),
            lambda counts: sum(map(len, counts.values())),
        )

    def row(self, name: str, where: Mapping[str, str], columns: tuple[str, ...] = ()) -> Row | None:
        """Return the first row with the values in `where`, with these columns or all; None if there is none. Cached."""
        question = ("row", name, tuple(where.items()), columns)
        return self._answers.of(question, lambda: row_of(self.tables[name], where, columns), lambda row: len(row or ()))

    def page(self, name: str, query: Query, window: slice, columns: tuple[str, ...]) -> Table:
        """Return the rows of a table under a query, in the slice `window`, with these columns. Cached."""
        question = ("page", name, query, window.start, window.stop, columns)
        return self._answers.of(question, lambda: queries.page(self.tables[name], query, window, columns), _cells)


def _cells(page: Table) -> int:
    """Count the texts and numbers of a page; those in lists count individually."""
    lists = [page.columns[column.name] for column in page.schema.columns if column.kind is Kind.LIST]
    return len(page) * (len(page.columns) - len(lists)) + sum(len(cell) for cells in lists for cell in cells)


@dataclass(frozen=True, slots=True)
class Upkeep:
    """The record of data collection: pulls (newest last), lost days, and coverage.

    `lost` has (signal, Unix time of the day's start, file); `namespaces` and `days` are the rows of COVERAGE and of
    COVERAGE_BY_DAY; `recording` is the recorder's status, None without a recorder.
    """

    pulls: tuple[QualityRecord, ...] = ()
    lost: tuple[tuple[str, int, str], ...] = ()
    namespaces: tuple[Row, ...] = ()
    days: tuple[Row, ...] = ()
    recording: RecorderStatus | None = None


class ResultSource(Protocol):
    """The results of one cluster; its methods raise CotenantError if the store cannot be read."""

    def snapshot(self) -> Snapshot:
        """Return the newest results."""

    def forget(self) -> None:
        """Discard what is cached, so that the next request reads the results again: somebody has just acted."""

    def explain(self, namespace: str, kind: str, workload: str, container: str) -> Recommendation | None:
        """Return the full recommendation of one container with its inputs; None if there is none."""

    def explanations(self, namespace: str) -> list[Recommendation]:
        """Return the full recommendations of a namespace."""

    def story(self, ref: WorkloadRef) -> Story | None:
        """Return everything stored about one workload; None if the results do not have it."""

    def ladders(self, refs: Sequence[WorkloadRef]) -> Mapping[WorkloadRef, Mapping[Resource, Sequence[float]]]:
        """Return the usage quantiles of whole workloads with a stored usage summary; each namespace is read once."""

    def foreseen(self, subject: Subject) -> ForecastDetail | None:
        """Return one forecast with its quantile paths and the usage before it; None if there is none."""

    def node_history(self, node: str) -> Mapping[str, Row]:
        """Return the rows of NODE_HISTORY by resource; empty if the results do not have the node."""

    def enforcement(self, node: str) -> NodeLanes | None:
        """Return a node's CPU over time and its agent's limit for best effort; None without a report."""

    def lendable_capacity(self) -> LendableCapacity | None:
        """Return what batch pods could get over the next day, by node; None if no node has a forecast."""

    def upkeep(self) -> Upkeep:
        """Return the record of data collection: pulls, gaps, lost days and coverage."""

    def recorder_status(self) -> RecorderStatus | None:
        """Return the status of the cluster's recorder; None if none ever ran."""

    def backtest(self) -> BacktestReport | None:
        """Return the report of this store's last `cotenant backtest`; None if there was none."""

    def policy_trial(self) -> PolicyTrial | None:
        """Return the scores of this store's last `cotenant backtest --reclaim`; None if there was none."""

    def what_if(self) -> WhatIf | None:
        """Return the result of this store's last `cotenant simulate --trace stored`; None if there was none."""

    def cluster_size(self) -> SizeReport | None:
        """Return the report of the cluster's last `cotenant size`; None if there was none."""


class StoreSource:
    """The results in a store, read again when they change."""

    def __init__(self, store: Store, settings: DashboardSettings, clock: Clock | None = None) -> None:
        """Store the arguments; no results are read yet."""
        self._newest = store
        self._store = store
        """The store with the run of the snapshot."""
        self._wait_seconds = settings.reload_seconds
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._snapshot = Snapshot.empty()
        self._looked_seconds = float("-inf")
        self._stories: OrderedDict[tuple[str, WorkloadRef], Story] = OrderedDict()
        self._room: tuple[str, LendableCapacity | None] = ("", None)

    def snapshot(self) -> Snapshot:
        """Return the newest results; while another thread reads newer ones, return the old ones."""
        if not self._lock.acquire(blocking=self._snapshot.overview is None):
            return self._snapshot
        try:
            now = self._clock.now_seconds()
            if now - self._looked_seconds >= self._wait_seconds:
                self._check_run()
                self._looked_seconds = now
            return self._snapshot
        finally:
            self._lock.release()

    def forget(self) -> None:
        """Make the next snapshot read the store again."""
        self._looked_seconds = float("-inf")

    def _check_run(self) -> None:
        before = self._store
        try:
            self._store = self._newest.pinned()
            overview = self._store.read_document("overview", views.Overview)
            version = ""
            if overview:
                version = f"{overview.computed_seconds}-{overview.time_seconds}-{overview.settings_digest}"
            gathering, last = self._store.read_document(ENFORCEMENT.name, Gathering), self._snapshot
            if version != last.version:
                # One table after the other: each is checked as a whole before anybody asks it.
                tables = {n: self._table(s) for n, s in SCHEMAS.items()}
                self._snapshot = Snapshot(version, overview, tables, gathering=gathering)
                release_memory()
            elif gathering != last.gathering:
                # The same results with the newest enforcement events; nothing else is read again.
                tables, last_gathering = dict(last.tables), last.gathering
                if gathering is None or last_gathering is None or gathering.revision != last_gathering.revision:
                    tables[ENFORCEMENT.name] = self._table(ENFORCEMENT)
                self._snapshot = Snapshot(last.version, last.overview, tables, gathering=gathering)
        except StoreCorrupt:
            self._store = before
            raise
        except StoreError as error:
            self._store = before
            if not self._newest.shared or self._snapshot.overview is None:
                raise
            _log.warning("store_away", error=error.message, fix=error.fix)  # what was read stays, with its age

    def _table(self, schema: Schema) -> Relation:
        try:
            return self._store.relation(schema)
        except NoData:
            return Relation.of(Table.from_rows(schema, []))

    def explain(self, namespace: str, kind: str, workload: str, container: str) -> Recommendation | None:
        """Return a container's recommendation; no document is read for a namespace that no recommendation names."""
        if self.snapshot().row(views.RECOMMENDATIONS.name, {"namespace": namespace}, ("namespace",)) is None:
            return None
        ref = WorkloadRef(namespace, kind, workload)
        return next((r for r in self._workload_explanations(ref) if r.container.container == container), None)

    def explanations(self, namespace: str) -> list[Recommendation]:
        """Return the recommendations in the namespace's document."""
        return self._store.read_document(document_name(namespace), list[Recommendation]) or []

    def _workload_explanations(self, ref: WorkloadRef) -> list[Recommendation]:
        return [r for r in self.explanations(ref.namespace) if r.container.workload == ref]

    def story(self, ref: WorkloadRef) -> Story | None:
        """Return everything stored about the workload, read on request; the last few stories are cached."""
        snapshot = self.snapshot()
        row = snapshot.row(views.WORKLOADS.name, _key_of(ref))
        if row is None:
            return None
        key = (snapshot.version, ref)
        story = self._stories.get(key)
        if story is None:
            where = _key_of(ref)
            ahead = self._rows(views.FORECASTS, Subject("workload", ref.namespace, ref.kind, ref.name).where)
            story = self._stories[key] = Story(
                workload=row,
                portraits={r["resource"]: r for r in self._rows(views.portraits_of(ref.namespace), where)},
                forecasts={r["resource"]: r for r in ahead},
                events=self._rows(views.EVENTS, where),
                recommendations=self._workload_explanations(ref),
                log=self._rows(views.RECOMMENDATION_LOG, where),
            )
            while len(self._stories) > REMEMBERED_STORIES:
                self._stories.popitem(last=False)
        return story

    def _read_table(self, schema: Schema, where: Mapping[str, str] | None = None) -> Table:
        """Return the rows that have these texts; none if the table was never written."""
        try:
            return self._store.read_table(schema, where)
        except NoData:
            return Table.from_rows(schema, [])

    def _rows(self, schema: Schema, where: Mapping[str, str] | None = None) -> list[Row]:
        return list(self._read_table(schema, where).rows())

    def ladders(self, refs: Sequence[WorkloadRef]) -> Mapping[WorkloadRef, Mapping[Resource, Sequence[float]]]:
        """Return the usage quantiles of these workloads from PORTRAITS, the table of usage summaries."""
        by_namespace: dict[str, list[WorkloadRef]] = defaultdict(list)
        for ref in refs:
            by_namespace[ref.namespace].append(ref)
        ladder_of: dict[WorkloadRef, dict[Resource, Sequence[float]]] = {}
        for namespace, inside in by_namespace.items():
            portraits = self._table(views.portraits_of(namespace))
            which, numbers = portraits.located(("kind", "workload"), [(ref.kind, ref.name) for ref in inside])
            rows = portraits.take(numbers, ("resource", "ladder")).rows()
            for place, row in zip(which, rows, strict=True):
                ladder_of.setdefault(inside[place], {})[Resource(row["resource"])] = row["ladder"]
        return ladder_of

    def foreseen(self, subject: Subject) -> ForecastDetail | None:
        """Return the forecast's row, and the history of the same workload, node or cluster."""
        snapshot = self.snapshot()
        question = ("foreseen", subject)
        return snapshot.kept(question, lambda: self._read_forecast(subject, snapshot), lambda _: DETAIL_CELLS)

    def _read_forecast(self, subject: Subject, snapshot: Snapshot) -> ForecastDetail | None:
        if row_of(snapshot.tables[views.FORECASTS.name], subject.where) is None:
            return None
        rows, weeks = self._rows(views.FORECASTS, subject.where), self._rows(WEEKS, subject.where)
        if not rows:
            return None
        detail = ForecastDetail.of(rows[0], self._past_means(subject, snapshot))
        return replace(detail, week=weeks[0] if weeks else None)

    def node_history(self, node: str) -> Mapping[str, Row]:
        """Return the node's rows, read on request: the hours of all nodes are too many to cache."""
        return {str(row["resource"]): row for row in self._rows(NODE_HISTORY, {"node": node})}

    def enforcement(self, node: str) -> NodeLanes | None:
        """Return the node's CPU over time, read on request."""
        rows = self._rows(ENFORCEMENT_LANES, {"node": node})
        return lanes_of(rows[0]) if rows else None

    def lendable_capacity(self) -> LendableCapacity | None:
        """Return what batch pods could get; computed once per run, on request, since all nodes' forecasts are read."""
        snapshot = self.snapshot()
        if self._room[0] != snapshot.version:
            self._room = (snapshot.version, batch.batch_capacity(snapshot.tables, self._read_table(batch.AHEAD)))
        return self._room[1]

    def upkeep(self) -> Upkeep:
        """Return the record of data collection, read on request; a table that was never written is empty."""
        return Upkeep(
            self._store.read_quality(),
            tuple((hole.signal.value, hole.start_seconds, hole.path) for hole in self._store.holes()),
            tuple(self._rows(views.COVERAGE)),
            tuple(self._rows(views.COVERAGE_BY_DAY)),
            self.recorder_status(),
        )

    def recorder_status(self) -> RecorderStatus | None:
        """Return the recorder's status, read on request because it changes each minute."""
        return self._store.read_document(STATUS_DOCUMENT, RecorderStatus)

    def backtest(self) -> BacktestReport | None:
        """Return the report of the last back-test, read from the store on request."""
        return self._store.read_document(BACKTEST, BacktestReport)

    def policy_trial(self) -> PolicyTrial | None:
        """Return the scores of the last back-test of reclaim policies, read from the store on request."""
        return self._store.read_document(POLICY_TRIAL, PolicyTrial)

    def what_if(self) -> WhatIf | None:
        """Return the last replay of the stored history, read from the store on request."""
        return self._store.read_document(WHAT_IF, WhatIf)

    def cluster_size(self) -> SizeReport | None:
        """Return the report of this cluster's last `cotenant size`, read from the store on request."""
        return self._store.read_document(REPORT, SizeReport)

    def _past_means(self, subject: Subject, snapshot: Snapshot) -> Row | None:
        """Return the hourly means before the forecast, under the column names of a portrait; None without history."""
        if subject.scope == "workload":
            where = {"kind": subject.kind, "workload": subject.name, "resource": subject.resource}
            history = self._rows(views.portraits_of(subject.namespace), where)
        elif subject.scope == "node":
            rows = self._rows(NODE_HISTORY, {"node": subject.name, "resource": subject.resource})
            history = [{"start": row["start"], "mean": row["total"]} for row in rows]
        else:
            overview = snapshot.overview
            bands = {"cpu": overview.cpu, "memory": overview.memory} if overview else {}
            band = bands.get(subject.resource)
            past = band if band and band.times else None
            history = [{"start": past.times[0], "mean": past.usage, "request": past.request}] if past else []
        return history[0] if history else None


def _key_of(ref: WorkloadRef) -> dict[str, str]:
    return {"workload": ref.name, "namespace": ref.namespace, "kind": ref.kind}
