"""Recommendations that somebody put off are marked row by row, whatever their names, and the version tells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.errors import StoreError
from cotenant.base.identity import WorkloadRef
from cotenant.base.store.relation import Relation
from cotenant.base.table import Table
from cotenant.base.tables import filters, queries
from cotenant.changes.model.ledger_marks import LedgerMarks
from cotenant.changes.model.service import PostponedRecommendation
from cotenant.changes.model.trial import TakenStep, Trial
from cotenant.dashboard.sources import snoozed as postponing
from cotenant.dashboard.sources.snoozed import Postponing
from cotenant.dashboard.sources.source import Snapshot
from cotenant.recommender.model.views import RECOMMENDATIONS

WORDS = st.sampled_from(["a", "b", "none", "", "ü"])
REFS = st.builds(WorkloadRef, WORDS, WORDS, WORDS)


def snapshot_of(refs: list[WorkloadRef]) -> Snapshot:
    rows = [
        {"namespace": r.namespace, "kind": r.kind, "workload": r.name, "container": str(index)}
        for index, r in enumerate(refs)
    ]
    table = Relation.of(Table.from_rows(RECOMMENDATIONS, rows))
    return Snapshot("v1", None, {**Snapshot.empty().tables, RECOMMENDATIONS.name: table})


def off(ref: WorkloadRef, until: float | None = None, since: float = 1.0) -> PostponedRecommendation:
    return PostponedRecommendation(ref, until, "ada", "later", since)


class Source:
    """A source of one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def snapshot(self) -> Snapshot:
        return self._snapshot


class DeskScene:
    """A ledger that can be lost."""

    def __init__(self) -> None:
        self.known: Mapping[WorkloadRef, PostponedRecommendation] = {}
        self.lost = False

    def postponed(self) -> Mapping[WorkloadRef, PostponedRecommendation]:
        if self.lost:
            raise StoreError("the ledger cannot be read")
        return self.known

    def cool_downs(self) -> Mapping[WorkloadRef, float]:
        return {}

    def trials(self) -> Mapping[WorkloadRef, Sequence[Trial]]:
        return {}

    def taken_steps(self, since_seconds: float) -> Mapping[WorkloadRef, TakenStep]:  # noqa: ARG002 - the protocol has it
        return {}


@pytest.mark.slow
@settings(max_examples=60)
@given(st.lists(REFS.filter(lambda r: "" not in (r.namespace, r.kind, r.name)), max_size=8), st.sets(REFS, max_size=4))
def test_exactly_the_rows_of_what_was_put_off_are_marked(rows: list[WorkloadRef], put: set[WorkloadRef]) -> None:
    snapshot = postponing.mark_snapshot(snapshot_of(rows), LedgerMarks({ref: off(ref) for ref in put}), "v2")
    marked = [row["postponed"] for row in snapshot.tables[RECOMMENDATIONS.name].read().rows()]
    assert marked == ["dismissed" if ref in put else "" for ref in rows]


def test_snoozed_and_dismissed_are_told_apart_with_their_reasons() -> None:
    refs = [WorkloadRef("pay", "Deployment", name) for name in ("a", "b", "c")]
    recommendations = {refs[0]: off(refs[0]), refs[1]: off(refs[1], until=1_795_089_600.0)}
    indexed = postponing.mark_snapshot(snapshot_of(refs), LedgerMarks(recommendations), "v2").tables[
        RECOMMENDATIONS.name
    ]
    rows = list(indexed.read().rows())
    assert [row["postponed"] for row in rows] == ["dismissed", "snoozed", ""]
    # 1795089600 s is 2026-11-19 12:00 UTC.
    texts = ["for good: later (ada)", "until Thu 19 Nov 12:00 UTC: later (ada)", ""]
    assert [row["postponed_why"] for row in rows] == texts
    query = filters.parse("postponed!=none", indexed.schema)
    assert queries.select(indexed, query).tolist() == [0, 1]


def test_the_version_changes_with_what_is_put_off_and_a_lost_ledger_hides_no_more_and_no_less() -> None:
    ref, service = WorkloadRef("pay", "Deployment", "a"), DeskScene()
    source = Postponing(Source(snapshot_of([ref])), service, lambda: 0.0, 0.0)  # type: ignore[arg-type]
    first = source.snapshot()
    assert source.snapshot() is first and first.version.startswith("v1-")
    service.known = {ref: off(ref)}
    second = source.snapshot()
    assert second.version != first.version
    service.lost = True
    assert source.snapshot() is second


def test_the_service_is_asked_again_at_once_after_somebody_acted() -> None:
    ref, service = WorkloadRef("pay", "Deployment", "a"), DeskScene()
    source = Postponing(Source(snapshot_of([ref])), service, lambda: 0.0, 3600.0)  # type: ignore[arg-type]
    first = source.snapshot()
    service.known = {ref: off(ref)}
    assert source.snapshot() is first
    source.forget()
    assert source.snapshot().version != first.version


def test_a_workload_that_was_changed_lately_has_no_step_now_and_says_from_when_on() -> None:
    key = {"namespace": "pay", "kind": "Deployment", "container": "app", "ready": "first-step"}
    rows = [
        {**key, "workload": "cut", "cpu_step": 700, "cpu_step_total": -600.0, "saving_step": 9.0},
        {**key, "workload": "raised", "ready": "whole", "cpu_step": 700, "cpu_step_total": 600.0},
        {**key, "workload": "other", "cpu_step": 700, "cpu_step_total": -600.0},
    ]
    table = Relation.of(Table.from_rows(RECOMMENDATIONS, rows))
    snapshot = Snapshot("v1", None, {**Snapshot.empty().tables, RECOMMENDATIONS.name: table})
    # 1795089600 s is 2026-11-19 12:00 UTC.
    until = {WorkloadRef("pay", "Deployment", name): 1_795_089_600.0 for name in ("cut", "raised")}
    indexed = postponing.mark_snapshot(snapshot, LedgerMarks({}, until), "v2").tables[RECOMMENDATIONS.name]
    assert [(row["ready"], row["stopped_by"], row["cpu_step_total"]) for row in indexed.read().rows()] == [
        ("waiting", "cool-down until Thu 19 Nov 12:00 UTC", None),
        ("whole", "", 600.0),
        ("first-step", "", -600.0),
    ]
    query = filters.parse("ready=whole,first-step", indexed.schema)
    assert queries.select(indexed, query).tolist() == [1, 2]


def test_of_workloads_that_were_cut_together_every_one_waits() -> None:
    key = {"namespace": "pay", "kind": "Deployment", "container": "app", "ready": "first-step"}
    rows = [{**key, "workload": name, "cpu_step": 700, "cpu_step_total": -600.0} for name in ("a", "b", "c")]
    table = Relation.of(Table.from_rows(RECOMMENDATIONS, rows))
    snapshot = Snapshot("v1", None, {**Snapshot.empty().tables, RECOMMENDATIONS.name: table})
    # Accepted within one second: until 2026-11-19 12:00:00 and 12:00:01, which is one text.
    until = {WorkloadRef("pay", "Deployment", name): 1_795_089_600.0 + late for late, name in enumerate("ab")}
    indexed = postponing.mark_snapshot(snapshot, LedgerMarks({}, until), "v2").tables[RECOMMENDATIONS.name]
    text = "cool-down until Thu 19 Nov 12:00 UTC"
    assert [(row["ready"], row["stopped_by"], row["cpu_step_total"]) for row in indexed.read().rows()] == [
        ("waiting", text, None),
        ("waiting", text, None),
        ("first-step", "", -600.0),
    ]
