"""A source limited to the namespaces in which the requesting person has a role; rows of all others are left out.

Reading is limited only here: pages, exports, search and the REST API all read from it. Data about the whole cluster
that name no workload (nodes, capacity, the cluster's curves) are kept; a method that is not defined here is available
to nobody. A person who may read everything gets the wrapped source unchanged.
"""

from __future__ import annotations

import re
import threading
import zlib
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from cotenant.base.identity import WorkloadRef
from cotenant.base.people import Person
from cotenant.base.resource import Resource
from cotenant.base.table import Kind
from cotenant.base.tables import queries
from cotenant.base.tables.filters import Query
from cotenant.base.tables.queries import Relation, RowCondition, quote_identifier
from cotenant.base.usage.backtest import BacktestReport, PolicyTrial, WhatIf
from cotenant.dashboard.sources.source import Answers, ResultSource, Snapshot, Upkeep
from cotenant.dashboard.sources.workload_story import ForecastDetail, Row, Story, Subject
from cotenant.enforcer.model.enforcement import NodeLanes
from cotenant.profiler.recorder.status import RecorderStatus
from cotenant.recommender.colocation.batch import LendableCapacity
from cotenant.recommender.model.list_totals import in_sight, planned_savings
from cotenant.recommender.model.recommendation import Recommendation
from cotenant.recommender.model.savings import freed_of, worth_the_effort
from cotenant.recommender.model.views import PODS, RECOMMENDATIONS, WORKLOADS, Overview
from cotenant.scheduler_ext.cluster_size.report import SizeReport, narrow_report

OF_THESE: Final = "of the namespaces that you may see"
NOTE: Final = (
    "Workloads, pods, waste, savings and reasons cover the namespaces that you may see; nodes, capacity, the curves "
    "and the headline cover the whole cluster."
)
ADVICE: Final = (("severity",), ("cpu_reason",), ("memory_reason",))
"""Columns of recommendations whose texts an overview counts."""
HIDDEN: Final = "(hidden)"
"""Replaces a text about a node that names a workload or pod in a namespace that the person may not read."""
REMEMBERED: Final = 16
"""Most sets of namespaces for which the filtered results are cached."""
EVERY_NAMESPACE: Final = Query()
Namespaces = frozenset[str]


class Narrowing:
    """A source that returns only what the requesting person may read of the wrapped source. Thread-safe."""

    def __init__(self, behind: ResultSource, current_user: Callable[[], Person]) -> None:
        """Wrap a source; no narrowed snapshot is built yet."""
        self._behind, self._people = behind, current_user
        self._lock = threading.Lock()
        self._made: OrderedDict[Namespaces, tuple[Snapshot, Snapshot]] = OrderedDict()

    def forget(self) -> None:
        """Drop what the wrapped source has cached."""
        self._behind.forget()

    def snapshot(self) -> Snapshot:
        """Return the newest results, filtered once for each set of namespaces."""
        full, namespaces = self._behind.snapshot(), self._readable_namespaces()
        if namespaces is None:
            return full
        with self._lock:
            entry = self._made.get(namespaces)
            if entry is None or entry[0] is not full:
                entry = self._made[namespaces] = (full, filter_snapshot(full, namespaces))
            self._made.move_to_end(namespaces)
            while len(self._made) > REMEMBERED:
                self._made.popitem(last=False)
            return entry[1]

    def explain(self, namespace: str, kind: str, workload: str, container: str) -> Recommendation | None:
        """Return a recommendation of a namespace that the requesting person may read, else None."""
        return self._behind.explain(namespace, kind, workload, container) if self._sees(namespace) else None

    def explanations(self, namespace: str) -> list[Recommendation]:
        """Return the recommendations of a namespace that the requesting person may read, else none."""
        return self._behind.explanations(namespace) if self._sees(namespace) else []

    def story(self, ref: WorkloadRef) -> Story | None:
        """Return everything stored about a workload in a namespace that the requesting person may read, else None."""
        return self._behind.story(ref) if self._sees(ref.namespace) else None

    def ladders(self, refs: Sequence[WorkloadRef]) -> Mapping[WorkloadRef, Mapping[Resource, Sequence[float]]]:
        """Return the usage quantiles of those workloads whose namespaces the requesting person may read."""
        return self._behind.ladders([ref for ref in refs if self._sees(ref.namespace)])

    def foreseen(self, subject: Subject) -> ForecastDetail | None:
        """Return the forecast of the cluster, a node, or a workload in a readable namespace, else None."""
        sees = subject.scope != "workload" or self._sees(subject.namespace)
        return self._behind.foreseen(subject) if sees else None

    def node_history(self, node: str) -> Mapping[str, Row]:
        """Return the hourly history of a node, which everybody may read: it has only sums over pods."""
        return self._behind.node_history(node)

    def enforcement(self, node: str) -> NodeLanes | None:
        """Return a node's CPU over time, which everybody may read: it has only sums over pods."""
        return self._behind.enforcement(node)

    def lendable_capacity(self) -> LendableCapacity | None:
        """Return the lendable capacity of the nodes, which everybody may read: it has only sums over pods."""
        return self._behind.lendable_capacity()

    def upkeep(self) -> Upkeep:
        """Return the record of data collection for readable namespaces, without notes of pulls, which may name any."""
        record, namespaces = self._behind.upkeep(), self._readable_namespaces()
        if namespaces is None:
            return record
        pulls = tuple(replace(pull, notes=()) for pull in record.pulls)
        readable = tuple(row for row in record.namespaces if row["namespace"] in namespaces)
        return replace(record, pulls=pulls, namespaces=readable)

    def recorder_status(self) -> RecorderStatus | None:
        """Return the recorder's status, which everybody may read: it has only nodes and sums over pods."""
        return self._behind.recorder_status()

    def backtest(self) -> BacktestReport | None:
        """Return the report of the last back-test if the person may read all namespaces, because it names workloads."""
        return self._behind.backtest() if self._readable_namespaces() is None else None

    def policy_trial(self) -> PolicyTrial | None:
        """Return the back-test scores of reclaim policies, which everybody may read: they name no workload."""
        return self._behind.policy_trial()

    def what_if(self) -> WhatIf | None:
        """Return the last simulation of the stored history, which everybody may read: it names no workload."""
        return self._behind.what_if()

    def cluster_size(self) -> SizeReport | None:
        """Return the report on removable nodes, without the names of pods in unreadable namespaces."""
        report, namespaces = self._behind.cluster_size(), self._readable_namespaces()
        return report if report is None or namespaces is None else narrow_report(report, namespaces)

    def _readable_namespaces(self) -> Namespaces | None:
        return self._people().reads

    def _sees(self, namespace: str) -> bool:
        namespaces = self._readable_namespaces()
        return namespaces is None or namespace in namespaces


def filter_snapshot(full: Snapshot, namespaces: Namespaces) -> Snapshot:
    """Return the results of these namespaces, and those of no namespace, such as of nodes. Pure."""
    all_namespaces = {name for table in full.tables.values() for name in table.texts("namespace")}
    others = named_in(all_namespaces - namespaces - {""})
    # Rows of these namespaces, and those that are of none: of the cluster, or of a node.
    names = ("", *sorted(namespaces))
    readable = RowCondition(f"namespace IN ({', '.join('?' * len(names))})", names)
    tables = {}
    for table, relation in full.tables.items():
        has_namespace = any(column.name == "namespace" for column in relation.schema.columns)
        tables[table] = _hide_other_namespaces(relation.restrict(readable) if has_namespace else relation, others)
    digest = zlib.crc32("/".join(sorted(namespaces)).encode())
    overview = full.overview
    if overview is not None:  # what is of the whole cluster stays, and is said to be
        narrow = overview_of(overview, tables, EVERY_NAMESPACE, namespaces.__contains__)
        overview = replace(narrow, notes=[NOTE], kept_recommendations=None, kept_seconds=None)
    gathering = full.gathering and replace(full.gathering, notes=())
    version = f"{full.version}@{digest:08x}" if full.version else ""
    return replace(full, version=version, overview=overview, tables=tables, _answers=Answers(), gathering=gathering)


def named_in(namespaces: set[str]) -> re.Pattern[str] | None:
    """Return a pattern that finds NAMESPACE/NAME of these namespaces in a text; None without namespaces."""
    if not namespaces:
        return None
    return re.compile(rf"(?<![\w.-])(?:{'|'.join(map(re.escape, sorted(namespaces)))})/[\w./-]+")


def _hide_other_namespaces(relation: Relation, others: re.Pattern[str] | None) -> Relation:
    """Hide names of other namespaces in texts, such as the workload that a pod of a visible namespace disturbed."""
    if others is None:
        return relation
    for column in [c.name for c in relation.schema.columns if c.kind is Kind.TEXT]:
        named_rows = relation.numbers(RowCondition(f"contains({quote_identifier(column)}, '/')"))
        if len(named_rows):
            texts = [str(cell) for cell in relation.take(named_rows, [column]).columns[column]]
            cleaned = [HIDDEN if others.search(text) else text for text in texts]
            changed = [place for place, text in enumerate(texts) if text != cleaned[place]]
            if changed:
                cells = {column: [cleaned[place] for place in changed]}
                relation = relation.with_cells(relation.schema, named_rows[changed], cells)
    return relation


def overview_of(
    overview: Overview, tables: Mapping[str, Relation], query: Query, includes: Callable[[str], bool]
) -> Overview:
    """Return the overview limited to these namespaces and a query's rows; nodes, capacity and curves are unchanged."""
    advice = tables[RECOMMENDATIONS.name]
    chosen = queries.condition(advice, query)
    severities, cpu_reasons, memory_reasons = advice.groups(ADVICE, chosen)
    running = tables[WORKLOADS.name]
    led = overview.peak.led_by.partition("/")[0] if overview.peak else ""
    narrow = replace(
        overview,
        workloads=queries.count(running, query),
        containers=queries.count(advice, query),
        pods=queries.count(tables[PODS.name], query),
        waste=[row for row in overview.waste if includes(row.namespace)],
        peak=overview.peak and replace(overview.peak, led_by=overview.peak.led_by if includes(led) else ""),
        severities=_by_text(severities),
        patterns=_by_text(running.groups([("pattern",)], queries.condition(running, query))[0]),
        reasons=_by_text(cpu_reasons) + _by_text(memory_reasons),
    )
    return with_savings(narrow, advice, query)


def with_savings(overview: Overview, advice: Relation, query: Query = EVERY_NAMESPACE) -> Overview:
    """Return the overview with the savings of a query's recommendations, without snoozed and dismissed ones."""
    planned = planned_savings(advice, query)
    rows = queries.condition(advice, query) & in_sight(advice)
    freed = freed_of(advice.read("cpu_delta_total", where=rows).columns["cpu_delta_total"])
    frees = planned.all_steps.frees
    return replace(
        overview,
        savings=planned,
        saving_cpu_millicores=frees.millicores,
        saving_memory_bytes=frees.bytes,
        worth_the_effort=worth_the_effort(freed),
    )


def _by_text(groups: Counter[tuple[str, ...]]) -> Counter[str]:
    return Counter({text: number for (text,), number in groups.items()})
