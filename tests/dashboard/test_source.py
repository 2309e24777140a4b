"""The source: one consistent snapshot, renewed when the store's results change and not oftener than asked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cotenant.base.errors import StoreError
from cotenant.base.store import Store
from cotenant.base.table import Table
from cotenant.dashboard.settings import DashboardSettings
from cotenant.dashboard.sources.source import StoreSource
from cotenant.recommender.model.views import RECOMMENDATIONS, WORKLOADS, Overview
from tests.support.dashboard import Results


class Hands:
    """A clock moved by hand."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now_seconds(self) -> float:
        return self.seconds


def test_an_empty_store_is_no_error(tmp_path: Path) -> None:
    source = StoreSource(Store(tmp_path.as_uri(), "c"), DashboardSettings())
    snapshot = source.snapshot()
    assert snapshot.overview is None
    assert len(snapshot.tables["workloads"]) == 0
    assert source.explain("a", "Deployment", "b", "c") is None


def test_newer_results_appear_after_the_waiting_time(demo_results: Results, tmp_path: Path) -> None:
    overview = demo_results.store.read_document("overview", Overview)
    assert overview is not None
    store, clock = Store(tmp_path.as_uri(), "c"), Hands()
    store.write_document("overview", overview)
    source = StoreSource(store, DashboardSettings(reload_seconds=3), clock)
    first = source.snapshot()

    rows = [{"namespace": "a", "kind": "Pod", "workload": "w"}]
    store.write_table(Table.from_rows(WORKLOADS, rows))
    store.write_document("overview", replace(overview, computed_seconds=overview.computed_seconds + 1))
    clock.seconds = 2.9
    assert source.snapshot() is first
    clock.seconds = 3.0
    second = source.snapshot()
    assert second.version != first.version
    assert len(second.tables["workloads"]) == 1


def test_unchanged_results_keep_the_same_snapshot(demo_results: Results) -> None:
    source = StoreSource(demo_results.store, DashboardSettings(reload_seconds=0))
    assert source.snapshot() is source.snapshot()


@pytest.mark.slow
def test_every_recommendation_in_the_table_can_be_explained(demo_results: Results) -> None:
    source = StoreSource(demo_results.store, DashboardSettings())
    table = source.snapshot().tables[RECOMMENDATIONS.name].read()
    assert len(table) > 50
    for row in table.rows():
        recommendation = source.explain(row["namespace"], row["kind"], row["workload"], row["container"])
        assert recommendation is not None
        assert recommendation.severity.value == row["severity"]


@pytest.mark.parametrize("namespace", ["../../etc", "nowhere", "", "pay/../x"])
def test_a_namespace_that_no_row_has_is_not_looked_up(demo_results: Results, namespace: str) -> None:
    assert StoreSource(demo_results.store, DashboardSettings()).explain(namespace, "Deployment", "w", "c") is None


def test_a_snapshot_answers_from_its_own_run_though_the_files_were_replaced(
    demo_results: Results, tmp_path: Path
) -> None:
    store = Store(tmp_path.as_uri(), "c")
    overview = demo_results.store.read_document("overview", Overview)
    store.write_document("overview", overview)
    store.write_table(Table.from_rows(WORKLOADS, [{"namespace": "a", "kind": "Pod", "workload": "w"}]))
    before = StoreSource(store, DashboardSettings()).snapshot()
    store.write_table(Table.from_rows(WORKLOADS, [{"namespace": "b", "kind": "Pod", "workload": "other"}] * 3))
    assert [row["workload"] for row in before.tables[WORKLOADS.name].read().rows()] == ["w"]


def test_a_corrupt_overview_is_an_error_of_ours(demo_results: Results, tmp_path: Path) -> None:
    store = Store(tmp_path.as_uri(), "c")
    store.write_document("overview", {"cluster": 1})
    with pytest.raises(StoreError):
        StoreSource(store, DashboardSettings()).snapshot()
