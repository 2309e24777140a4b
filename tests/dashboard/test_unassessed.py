"""Where kube-state-metrics is absent no request is known: Home, status and Forecast say so, and never "none"."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from plotly.utils import PlotlyJSONEncoder

from cotenant.base.process.clock import FixedClock
from cotenant.base.progress import Silent
from cotenant.base.reasons import Reason
from cotenant.base.store import Store
from cotenant.dashboard.changes import explanation
from cotenant.dashboard.frame.view import View
from cotenant.dashboard.home import answers, cards, overview
from cotenant.dashboard.home.page_data import OverviewPage, overview_page
from cotenant.dashboard.pages import forecast
from cotenant.dashboard.sources.source import StoreSource
from cotenant.pipeline import daily_analysis
from cotenant.recommender.model.list_totals import Unassessed
from cotenant.recommender.model.views import RECOMMENDATIONS
from cotenant.settings import Settings
from cotenant_lab.simulation.demo import CLUSTER, fill
from cotenant_lab.synthetic import SyntheticSpec
from tests.dashboard.test_home import text_of
from tests.support.command_line import cotenant
from tests.support.dashboard import QUICK


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Two days of usage whose nodes, requests and limits nobody told."""
    filled_store = Store(tmp_path_factory.mktemp("store").as_uri(), CLUSTER)
    inventory = fill(filled_store, SyntheticSpec(nodes=2, workloads=6, days=2, seed=5), Silent()).inventory
    workloads = tuple(
        replace(
            workload,
            containers=tuple(
                replace(container, requests={}, limits={}, gaps=(Reason.AMOUNTS_UNKNOWN,))
                for container in workload.containers
            ),
        )
        for workload in inventory.workloads
    )
    filled_store.write_inventory(replace(inventory, nodes=(), workloads=workloads))
    settings = Settings()
    analysis = daily_analysis.analyse(filled_store, settings, FixedClock(inventory.time_seconds), Silent())
    daily_analysis.publish(analysis, filled_store, settings)
    return filled_store


@pytest.fixture(scope="module")
def view(store: Store) -> View:
    return View(StoreSource(store, QUICK), QUICK, lambda: 0.0)


@pytest.fixture(scope="module")
def home(view: View) -> OverviewPage:
    page = overview_page(view, "")
    assert page is not None
    return page


def test_every_container_counts_as_not_assessed(home: OverviewPage, store: Store) -> None:
    containers = sum(1 for _ in store.read_table(RECOMMENDATIONS).rows())
    assert containers > 0
    assert home.unassessed_counts == Unassessed(severity=containers, memory=containers, containers=containers)


def test_the_cards_do_not_say_that_nothing_is_at_risk_or_to_cut(home: OverviewPage) -> None:
    risk, waste = text_of(cards.at_risk(home)), text_of(cards.waste(home))
    assert "Risk is not known" in risk and "Waste is not known" in waste
    for card in (risk, waste):
        assert f"{home.unassessed_counts.severity} containers cannot be assessed" in card
    assert "No container used" not in risk and "No request is larger" not in waste


def test_the_first_questions_are_answered_by_what_is_not_known(home: OverviewPage) -> None:
    answered = {question.words: text_of(question.answer) for question in answers.questions(home)}
    assert "usage and request both known" in answered["Which containers will be killed first?"]
    for question in ("What do I save?", "Who wastes most?", "What can I lend to batch work?"):
        assert answered[question] == answers.NOT_KNOWN


def test_no_amount_of_nodes_that_are_not_known_is_drawn_as_zero(home: OverviewPage, view: View) -> None:
    text = json.dumps(overview.contents(view), cls=PlotlyJSONEncoder)
    assert "usage in the newest hour" in text
    assert "0 m allocatable" not in text and "take –" not in text
    assert home.overview.cpu.allocatable != home.overview.cpu.allocatable  # NaN


def test_a_forecast_that_nobody_back_tested_is_not_praised(view: View) -> None:
    text = json.dumps(forecast.quality(view, ""), cls=PlotlyJSONEncoder)
    assert "Nothing was measured" in text
    assert "Each beats" not in text


def status(store: Store, folder: Path, *options: str) -> str:
    done = cotenant("status", "--store", store.url, *options, variables={"HOME": str(folder)})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_command_says_the_same(home: OverviewPage, store: Store, tmp_path: Path) -> None:
    lines = status(store, tmp_path)
    assert "no container that can be assessed" in lines and "no known request to cut" in lines
    assert f"{home.unassessed_counts.severity} containers cannot be assessed" in lines
    risk: Any = json.loads(status(store, tmp_path, "-o", "json"))["at_risk"]
    assert (risk["unassessed"], risk["memory_unknown"]) == (
        home.unassessed_counts.severity,
        home.unassessed_counts.memory,
    )


def test_a_request_that_nobody_told_is_not_said_to_be_not_set(view: View, store: Store, tmp_path: Path) -> None:
    row = next(iter(store.read_table(RECOMMENDATIONS).rows()))
    name = f"{row['namespace']}/{row['kind']}/{row['workload']}"
    read = ("--store", store.url)
    explained = cotenant("explain", name, *read, variables={"HOME": str(tmp_path)})
    report = cotenant("scan", "--offline", *read, "-o", "html", variables={"HOME": str(tmp_path)})
    recommendation = view.source.explain(row["namespace"], row["kind"], row["workload"], row["container"])
    assert recommendation is not None
    shown = json.dumps(explanation.values(recommendation), cls=PlotlyJSONEncoder)
    assert "not known" in report.stdout
    for text in (explained.stdout, shown):
        assert "not known" in text and "not set" not in text


@pytest.mark.parametrize(
    ("unassessed", "sentence"),
    [
        (Unassessed(0, 0, 9), "No container used more memory than it requests."),
        (
            Unassessed(0, 1, 9),
            "No container is known to have used more memory than it requests; 1 container could not be checked.",
        ),
        (Unassessed(2, 0, 9), "No container used more memory than it requests."),
    ],
)
def test_what_is_said_of_memory_rests_on_the_containers_whose_memory_is_known(
    unassessed: Unassessed, sentence: str
) -> None:
    assert unassessed.none_above_request == sentence
    assert not unassessed.knows_nothing
