"""The page Cluster size, the overview's sentence, REST and the Python API show the one stored answer."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cotenant.base.errors import UsageError
from cotenant.base.people import Person
from cotenant.base.process.clock import FixedClock
from cotenant.base.store import Store
from cotenant.dashboard.app import create_app
from cotenant.dashboard.frame.view import DashboardContext, View
from cotenant.dashboard.pages import cluster_size
from cotenant.dashboard.sources.namespace_filter import Narrowing
from cotenant.dashboard.sources.source import StoreSource
from cotenant.python_api.cluster_store import ClusterStore
from cotenant.scheduler_ext.cluster_size.autoscalers.model import NodeAutoscaler, Obstacle
from cotenant.scheduler_ext.cluster_size.machines.bills import BatchAlone
from cotenant.scheduler_ext.cluster_size.machines.mix import Mix, MixLine
from cotenant.scheduler_ext.cluster_size.model import RequestLevel
from cotenant.scheduler_ext.cluster_size.report import (
    COMPUTING,
    HIDDEN,
    LATER,
    NEVER,
    SizeReport,
    level_words,
    short_sentence,
)
from cotenant.scheduler_ext.cluster_size.stored_scan import keep
from cotenant.settings import Settings
from cotenant_lab.simulation.demo import CLUSTER
from tests.dashboard.test_states import text_of, view_on
from tests.scheduler_ext.cluster_size.test_stored_scan import STEP, report
from tests.support import dashboard as support

REPORT = report([STEP])
"""Three nodes, of which none could leave now and one after the ready steps, for 730 USD a month."""
SENTENCE = "0 of 3 nodes could leave now, 1 more after the ready steps"


class Stranger(Person):
    """Somebody who reads one namespace, in which nothing runs."""

    @property
    def reads(self) -> frozenset[str]:
        return frozenset({"bank"})


def store_with_report(folder: Path) -> Store:
    store = Store(folder.as_uri(), CLUSTER)
    keep(store, REPORT)
    return store


def rest(address: str, path: str) -> Any:
    with urllib.request.urlopen(f"{address}/api/v1/{path}", timeout=120) as response:
        return json.load(response)


def test_the_levels_have_one_wording_in_sentences_values_and_buttons() -> None:
    for level in (RequestLevel.READY, RequestLevel.ALL_STEPS):
        assert level_words(level) == level.value == cluster_size.NAMES[level].replace("After", "after")


def test_the_page_rest_and_python_have_the_number_of_the_stored_answer(tmp_path: Path) -> None:
    store = store_with_report(tmp_path)
    source = StoreSource(store, support.QUICK)
    page = text_of(cluster_size.render(view_on(source, 0), ""))
    for text in ("0 of 3 nodes", "1 of 3 nodes", "730 USD a month", "2 nodes kept, 1.00 x the fewest possible (2)"):
        assert text in page
    frame = ClusterStore(store, Settings()).cluster_size(requests="ready")
    assert frame.attrs["sentence"] == SENTENCE == short_sentence(REPORT, RequestLevel.READY)
    assert list(frame["leaves"]).count("yes") == 1
    moves = ClusterStore(store, Settings()).cluster_size(requests="ready", rows="moves")
    with support.served(support.app_on(source)) as address:
        totals, rows = rest(address, "cluster-size"), rest(address, "cluster-size/ready")
    assert [entry["sentence"] for entry in totals["levels"]] == [
        short_sentence(REPORT, level) for level in RequestLevel
    ]
    assert rows["sentence"] == SENTENCE and rows["summary"] == frame.attrs["summary"]
    assert [row["node"] for row in rows["nodes"]] == list(frame["node"])
    assert [row["pod"] for row in rows["moves"]] == list(moves["pod"])
    steps = ClusterStore(store, Settings()).cluster_size(requests="ready", rows="steps")
    assert [row["words"] for row in rows["steps"]] == list(steps["words"]) and len(steps) == 2
    assert all(phrase in page for phrase in steps["words"])


@pytest.mark.parametrize(("argument", "choices"), [
    ("rows", "nodes, moves, steps, obstacles, mix, bills"), ("requests", "now, ready, all-steps")
])  # fmt: skip
def test_python_names_the_choices_where_an_argument_is_none_of_them(
    tmp_path: Path, argument: str, choices: str
) -> None:
    with pytest.raises(UsageError, match=f"{argument}='nosuch' is not") as refused:
        ClusterStore(store_with_report(tmp_path), Settings()).cluster_size(**{argument: "nosuch"})
    assert refused.value.fix == f"Write one of {choices}."


def test_obstacles_of_autoscalers_are_the_same_on_every_surface_and_name_no_pod_of_others(tmp_path: Path) -> None:
    store = Store(tmp_path.as_uri(), CLUSTER)
    obstacle = Obstacle(
        "ReplicaSet shop/web",
        "annotation x=false",
        (NodeAutoscaler.KARPENTER,),
        "kept",
        ("a",),
        namespace="shop",
        pods=3,
    )
    keep(store, replace(REPORT, obstacles=(obstacle,), autoscaler_notes=("Karpenter waits",)))
    source = StoreSource(store, support.QUICK)
    page = text_of(cluster_size.render(view_on(source, 0), ""))
    for text in ("ReplicaSet shop/web", "annotation x=false", "Karpenter waits"):
        assert text in page
    frame = ClusterStore(store, Settings()).cluster_size(requests="ready", rows="obstacles")
    with support.served(support.app_on(source)) as address:
        rows, totals = rest(address, "cluster-size/ready")["obstacles"], rest(address, "cluster-size")
    assert [row["object"] for row in rows] == list(frame["object"]) == ["ReplicaSet shop/web"]
    assert totals["autoscalers"] == ["Karpenter waits"]
    narrowed = Narrowing(source, lambda: Stranger("ann")).cluster_size()
    assert narrowed is not None and narrowed.obstacles[0].object == HIDDEN


def test_the_overview_has_the_third_number_and_leads_to_the_page(demo_results: support.Results) -> None:
    from cotenant.dashboard.home import overview

    source = StoreSource(demo_results.store, support.QUICK)
    assert "nodes could leave" not in text_of(overview.render(view_on(source), ""))
    keep(demo_results.store, REPORT)
    page = text_of(overview.render(view_on(source), ""))
    assert SENTENCE in page and "cluster-size" in page


def test_before_the_first_answer_every_surface_names_the_command(tmp_path: Path) -> None:
    source = StoreSource(Store(tmp_path.as_uri(), CLUSTER), support.QUICK)
    assert "cotenant size" in text_of(cluster_size.render(view_on(source, 0), ""))
    with support.served(support.app_on(source)) as address:
        with pytest.raises(urllib.error.HTTPError) as refused:
            rest(address, "cluster-size")
        assert refused.value.code == 404 and NEVER in refused.value.read().decode()


def test_while_the_first_answer_is_computed_no_surface_says_that_nobody_asked(tmp_path: Path) -> None:
    source = StoreSource(Store(tmp_path.as_uri(), CLUSTER), support.QUICK)
    context = DashboardContext(computes_size=lambda: True)
    page = text_of(cluster_size.render(View(source, support.QUICK, lambda: 0.0, context), ""))
    assert LATER in page and "never asked" not in page
    with support.served(create_app(source, support.QUICK, FixedClock(0.0), context)) as address:
        with pytest.raises(urllib.error.HTTPError) as refused:
            rest(address, "cluster-size")
        text = refused.value.read().decode()
        assert refused.value.code == 404 and COMPUTING in text and LATER in text


@pytest.mark.parametrize("level", RequestLevel)
def test_each_level_has_its_own_rows_under_its_address(tmp_path: Path, level: RequestLevel) -> None:
    source = StoreSource(store_with_report(tmp_path), support.QUICK)
    page = text_of(cluster_size.render(view_on(source, 0), f"?show={level.option}"))
    size = REPORT.at(level).size
    assert size is not None
    assert f"{len(size.leaving)} of 3 nodes could leave" in page
    assert ("No pod would move." in page) == (not size.leaving)


def test_a_level_without_an_answer_has_its_reason(tmp_path: Path) -> None:
    from cotenant.scheduler_ext.cluster_size.stored_scan import NO_SCAN, StoredScan

    store = Store(tmp_path.as_uri(), CLUSTER)
    keep(store, report([STEP], StoredScan(reason=NO_SCAN)))
    page = text_of(cluster_size.render(view_on(StoreSource(store, support.QUICK), 0), "?show=ready"))
    assert NO_SCAN in page and "0 of 3 nodes" in page


def test_pods_of_other_namespaces_are_not_named(tmp_path: Path) -> None:
    source = Narrowing(StoreSource(store_with_report(tmp_path), support.QUICK), lambda: Stranger("ann"))
    shown = source.cluster_size()
    assert isinstance(shown, SizeReport) and short_sentence(shown, RequestLevel.READY) == SENTENCE
    assert "shop/" not in text_of(cluster_size.render(view_on(source, 0), ""))


def test_the_mix_and_the_bills_are_the_same_on_every_surface(tmp_path: Path) -> None:
    store = Store(tmp_path.as_uri(), CLUSTER)
    mix = Mix((MixLine("m5.large", "a", 2, 1_460.0),), ("c",), 1_500.0, bound_month=1_250.0, kept_month=40.0)
    batch = BatchAlone(3, 2_000, 1 << 30, Mix((MixLine("m5.large", "a", 1, 730.0),), (), 730.0))
    keep(store, replace(REPORT, levels=tuple(replace(level, mix=mix) for level in REPORT.levels), batch=batch))
    source = StoreSource(store, support.QUICK)
    page = text_of(cluster_size.render(view_on(source, 0), "?show=ready"))
    # 2 new nodes and 1 that stays; 1,500 / 1,250 = 1.2; the kept node costs 40, the new ones 1,460.
    sentence = "Cheapest mix found: 3 nodes, of which 1 stays, 1,500 USD a month, 1.20 x the lowest possible price ("
    batch_words = "on 1 separate node, batch would cost 730 USD"
    for text in (sentence, "m5.large", "nodes that stay", "packing alone", batch_words):
        assert text in page
    api = ClusterStore(store, Settings())
    frames = {rows: api.cluster_size(requests="ready", rows=rows) for rows in ("mix", "bills")}
    with support.served(support.app_on(source)) as address:
        rows, totals = rest(address, "cluster-size/ready"), rest(address, "cluster-size")
    assert [row["price_month"] for row in rows["mix"]] == list(frames["mix"]["price_month"]) == [1_460.0, 40.0]
    assert [row["bill"] for row in rows["bills"]] == list(frames["bills"]["bill"])
    # Three nodes of 730 a month today; one leaves after the ready steps; both bills of the mix are 1,500.
    assert [row["price_month"] for row in rows["bills"]] == [2_190.0, 1_460.0, 1_500.0, 1_500.0]
    assert totals["batch_on_lent_capacity"]["price_month"] == 730.0
    assert totals["levels"][1]["mix_month"] == 1_500.0 and totals["levels"][1]["mix_lower_bound_month"] == 1_250.0


def test_without_a_list_of_machine_types_the_page_names_the_option(tmp_path: Path) -> None:
    page = text_of(cluster_size.render(view_on(StoreSource(store_with_report(tmp_path), support.QUICK), 0), ""))
    assert "No list of machine types was given." in page and "cotenant size --shapes FILE" in page
