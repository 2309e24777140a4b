"""A node's page names its pods: the rows that the list and the API show for the node, and ways onward."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from plotly.utils import PlotlyJSONEncoder

from cotenant.base.store import Store
from cotenant.base.store.relation import Relation
from cotenant.base.table import Table
from cotenant.base.tables import filters
from cotenant.dashboard.nodes import pods_of_node
from cotenant.dashboard.rest import results
from cotenant.dashboard.sources.source import Snapshot, StoreSource
from cotenant.recommender.model.views import PODS, Overview
from tests.support import dashboard as support
from tests.support.dashboard import Results

NASTY = "<script>\u202e=1"


@pytest.fixture(scope="module")
def snapshot(demo_results: Results) -> Snapshot:
    return StoreSource(demo_results.store, support.QUICK).snapshot()


def drawn(snapshot: Snapshot, node: str) -> str:
    return json.dumps(pods_of_node.panel(snapshot, node, "/"), cls=PlotlyJSONEncoder, ensure_ascii=False)


def test_the_panel_holds_every_pod_of_the_node_and_the_api_the_same_rows(
    demo_results: Results, snapshot: Snapshot
) -> None:
    expected = list(demo_results.store.read_table(PODS, {"node": "node-003"}).rows())
    rows = pods_of_node.of_node(snapshot, "node-003")
    assert {r["pod"] for r in rows} == {r["pod"] for r in expected} and len(rows) == len(expected) > 3
    used = [r["cpu_usage"] for r in rows if r["cpu_usage"] is not None]
    assert used == sorted(used, reverse=True)
    text = drawn(snapshot, "node-003")
    for row in expected:
        assert f'"{row["pod"]}"' in text
        assert f"/workload/{row['namespace']}/{row['kind']}/{row['workload']}?node=node-003&from=pods" in text
    response = results.answer(snapshot, PODS, "node=node-003&sort=-cpu_usage", "json", slice(0, 1000))
    document = json.loads(bytes(response.body))
    assert document["rows"] == rows


def test_a_node_without_pods_says_so_and_what_helps(snapshot: Snapshot) -> None:
    text = drawn(snapshot, "node-404")
    assert "No pod is listed on this node." in text and "cotenant scan" in text


def test_hostile_names_are_written_out_and_the_links_find_them_again(demo_results: Results, tmp_path: Path) -> None:
    row = next(iter(demo_results.store.read_table(PODS).rows()))
    store = Store(tmp_path.as_uri(), "c")
    store.write_table(Table.from_rows(PODS, [row | {"pod": NASTY, "workload": NASTY, "node": "a*,b"}]))
    store.write_document("overview", demo_results.store.read_document("overview", Overview))
    snapshot = StoreSource(store, support.QUICK).snapshot()
    text = drawn(snapshot, "a*,b")
    assert "\u202e" not in text and "\\\\u202e" in text
    # The filter of the link means this very node, not a pattern.
    assert "/pods?node=a%5C%2A%5C%2Cb" in text
    assert filters.parse("node=a%5C%2A%5C%2Cb", PODS).values("node") == ("a\\*\\,b",)


def test_only_the_largest_of_very_many_are_drawn(snapshot: Snapshot, demo_results: Results) -> None:
    row = next(iter(demo_results.store.read_table(PODS).rows()))
    many = Table.from_rows(PODS, [row | {"pod": f"p{k}", "node": "n", "cpu_usage": k} for k in range(300)])
    crowded = replace(snapshot, tables={**snapshot.tables, "pods": Relation.of(many)})
    text = drawn(replace(crowded, version="other"), "n")
    assert '"p299"' in text and '"p180"' in text and '"p179"' not in text  # 120 from the top
    assert "the 120 largest of 300" in text
