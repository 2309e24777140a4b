"""The page Queues and its REST endpoints: bars, tables, reasons, history, honest empty states, rights."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import plotly.graph_objects as go
import pytest
import requests

from cotenant.base.errors import ClusterForbidden, UsageError
from cotenant.base.people import Grant, Person, Role
from cotenant.dashboard.app import create_app
from cotenant.dashboard.figures import base
from cotenant.dashboard.figures import quotas as figures
from cotenant.dashboard.frame import panels
from cotenant.dashboard.frame.view import DashboardContext, View, in_cluster
from cotenant.dashboard.pages import queues as page
from cotenant.dashboard.rest.queues import COMMAND
from cotenant.scheduler_ext.queues.model.queue_service import QuotaHistory
from cotenant.scheduler_ext.queues.model.report import QueueReport
from cotenant.scheduler_ext.queues.model.tables import GANGS, QUOTAS, WAITING_PODS
from tests.dashboard.test_states import text_of
from tests.support import dashboard as support
from tests.support.queues import NOW, REPORT, FixedQueues
from tests.support.queues import QUOTAS as ROWS

STEPS = 289
PAST = QuotaHistory(
    "research",
    "cpu",
    int(NOW) - 86_400,
    series={
        "runtime": (34_000.0,) * STEPS,
        "used": (None, *(30_000.0,) * (STEPS - 1)),
        "request": (*(40_000.0,) * 12, *(30_000.0,) * (STEPS - 12)),
        "waiting": (*(3.0,) * 12, *(0.0,) * (STEPS - 12)),
    },
)


def view_of(queues: FixedQueues | None, person: Person | None = None) -> View:
    context = DashboardContext(queues=queues, current_user=lambda: person or Person("ada"))
    return View(None, support.QUICK, lambda: NOW, context)  # type: ignore[arg-type]


def drawn(queues: FixedQueues | None, search: str = "") -> str:
    view = view_of(queues)
    return text_of(panels.render_guarded(lambda: page.render(view, search)))


# ---- figures


def test_bars_show_limit_runtime_use_and_guarantee_of_each_quota() -> None:
    rows = [row for row in ROWS if row.resource == "cpu"]
    chart = figures.chart(rows, "cpu")
    json.dumps(chart.figure, allow_nan=False)
    figure = go.Figure(chart.figure)
    by_name = {trace.name: trace for trace in figure.data}
    assert list(by_name["Max"].x) == [None, 50.0, 40.0]
    assert list(by_name["May use"].x) == [60.0, 34.0, 26.0]
    assert list(by_name["Uses"].x) == [46.0, 36.0, 10.0]
    assert list(by_name["Min"].x) == [60.0, 20.0, 40.0]
    over, within = by_name["Uses"].marker.color[1:]
    assert over == base.RED and within == base.TEAL
    assert (figure.layout.xaxis.ticksuffix, figure.layout.xaxis.showticksuffix) == (" cores", "first")
    assert figure.layout.yaxis.ticktext[1] == "\u00a0" * 4 + "research"
    assert chart.summary == (
        "cpu: 3 quotas use 46 cores of the 60 cores they may use now; 1 borrows: research 16 cores; "
        "1 lends: shop 30 cores; 1 uses more than allowed: research; 4 pods wait."
    )


def test_a_thousand_quotas_are_forty_bars_and_the_rest_is_counted() -> None:
    rows = [replace(ROWS[2], quota=f"team-{k}") for k in range(1000)]
    chart = figures.chart(rows, "cpu")
    assert len(chart.figure["data"][0]["y"]) == figures.MOST_BARS
    assert chart.summary.endswith("960 more in the table.")


def test_a_count_has_no_cores_and_an_empty_chart_has_words() -> None:
    figure = go.Figure(figures.chart([ROWS[4]], "nvidia.com/gpu").figure)
    assert figure.layout.xaxis.ticksuffix == " nvidia.com/gpu" and figure.layout.meta == {}
    assert figures.chart([], "cpu").summary == "No quota limits cpu."


def test_the_last_day_says_how_long_it_was_starved() -> None:
    used, waited = figures.history(PAST), figures.waiting(PAST)
    json.dumps((used.figure, waited.figure), allow_nan=False)
    assert used.summary == (
        "research used 30 cores of cpu in the last 24 hours; in 1.0 of them it requested more than it might use."
    )
    assert waited.summary == "Pods waited for research in 1.0 of 24 hours, at most 3 at once."
    assert list(go.Figure(used.figure).data[1].y[:2]) == [None, 30.0]
    unknown = replace(PAST, series={**PAST.series, "waiting": (None,) * STEPS, "used": (None,) * STEPS})
    assert figures.waiting(unknown).summary.startswith("No sample")
    assert figures.history(unknown).summary.startswith("No sample")


# ---- page


def test_the_page_shows_tree_reasons_and_gangs() -> None:
    text = drawn(FixedQueues(past=PAST))
    for word in (
        "company",
        "research",
        "shop",
        "borrows: research 16 cores",
        "WaitsForQuota 1",
        "NoRoom 1",
        "quota-full 1",
    ):
        assert word in text, word
    for row in REPORT.waiting:
        assert row.reason in text
    assert "elasticquota lab/broken" in text and "max 8 is below min 10" in text
    assert "The last day of research, cpu" in text, "the quota that most pods wait for"


def test_tables_have_the_columns_of_the_command_line_in_which_a_row_says_anything() -> None:
    quotas = tuple(replace(row, borrows_since_seconds=REPORT.at_seconds - 90) for row in REPORT.quotas)
    text, borrowed = drawn(FixedQueues()), drawn(FixedQueues(replace(REPORT, quotas=quotas)))
    assert '"Borrows since"' in borrowed and '"Borrows since"' not in text, "no row borrows since a known time"
    for schema in (QUOTAS, WAITING_PODS, GANGS):
        for column in schema.columns:
            assert column.wide or f'"{column.title}"' in borrowed, column.title


def test_a_reason_is_said_in_people_s_words() -> None:
    text = drawn(FixedQueues())
    assert '"gang incomplete"' in text and '"gang-incomplete"' not in text


def test_the_address_chooses_resource_quota_and_namespaces() -> None:
    text = drawn(FixedQueues(past=PAST), "?show=memory&open=research&ns=shop")
    assert "The last day of research, memory" in text and "memory: 1 quota uses 8 GiB" in text
    assert "needs 4 nodes" in text and "train-0" not in text


@pytest.mark.parametrize(
    ("queues", "phrases"),
    [
        (None, ("This dashboard has no cluster access.", "cotenant dashboard --act")),
        (FixedQueues(QueueReport(NOW)), ("No quota is defined.", "kubectl apply -f", "There is no gang.", "No pod")),
        (FixedQueues(), ("No Prometheus is configured.", "profiler.prometheus.url")),
        (FixedQueues(ClusterForbidden("you may not list pods", fix="Bind it.")), ("forbidden", "list pods", "Bind")),
    ],
)  # fmt: skip
def test_every_emptiness_has_its_own_words(queues: FixedQueues | None, phrases: tuple[str, ...]) -> None:
    text = drawn(queues)
    assert [word for word in phrases if word not in text] == []
    assert "could not be drawn" not in text


def test_pods_and_gangs_that_the_address_leaves_out_are_not_said_to_be_none() -> None:
    text = drawn(FixedQueues(), "?ns=nobody")
    assert "No waiting pod matches these filters." in text and "No gang matches these filters." in text
    assert "No pod waits" not in text and "There is no gang." not in text


def test_the_mark_changes_with_rows_and_address_and_not_with_time() -> None:
    first = page.LIVE.mark(view_of(FixedQueues()), "")
    later = page.LIVE.mark(view_of(FixedQueues(replace(REPORT, at_seconds=NOW + 60))), "")
    fewer = page.LIVE.mark(view_of(FixedQueues(replace(REPORT, waiting=()))), "")
    assert first == later and len({first, fewer, page.LIVE.mark(view_of(FixedQueues()), "?show=memory")}) == 3


# ---- REST: one server, whose queues and person a test changes


class Stage:
    """What is behind the server now."""

    def __init__(self) -> None:
        self.url, self.person = "", Person("ada")
        self.queues = FixedQueues(past=PAST)

    def report(self, who: Person) -> QueueReport:
        return self.queues.report(who)

    def history(self, who: Person, quota: str, resource: str) -> QuotaHistory:
        return self.queues.history(who, quota, resource)

    def get(self, path: str) -> requests.Response:
        return requests.get(f"{self.url}/api/v1/queues/{path}", timeout=30)

    def rows(self, path: str) -> list[dict[str, Any]]:
        response = self.get(path)
        assert response.status_code == 200, response.text
        rows: list[dict[str, Any]] = response.json()["rows"]
        return rows


@pytest.fixture(scope="module")
def running() -> Iterator[Stage]:
    stage = Stage()
    context = DashboardContext(queues=stage, current_user=lambda: stage.person)
    with support.served(create_app(None, support.QUICK, context=context)) as url:  # type: ignore[arg-type]
        stage.url = url
        yield stage


@pytest.fixture
def stage(running: Stage) -> Stage:
    running.person, running.queues = Person("ada"), FixedQueues(past=PAST)
    return running


@pytest.mark.server
def test_rest_gives_the_rows_under_the_filters_of_all_tables(stage: Stage) -> None:
    assert len(stage.rows("quotas")) == 5
    borrowing = stage.rows("quotas?quota=research&resource=cpu&columns=quota,borrowed")
    assert borrowing == [{"quota": "research", "borrowed": 16_000}]
    assert [row["pod"] for row in stage.rows("pods?ns=research")] == ["train-0"]
    assert [row["gang"] for row in stage.rows("gangs?state=NoRoom")] == ["index"]
    assert "'=cmd()" in stage.get("pods?format=csv").text, "a spreadsheet would run it"


@pytest.mark.server
def test_rest_explains_a_pod_and_gives_a_quotas_day(stage: Stage) -> None:
    explained = stage.get("pods/research/train-0").json()
    assert explained["pod"]["missing"] == 6000 and explained["gang"]["state"] == "WaitsForQuota"
    assert {row["quota"] for row in explained["quotas"]} == {"research"}
    assert stage.get("pods/research/other").status_code == 404
    past = stage.get("quotas/research/history?resource=cpu").json()
    assert past["series"]["used"][:2] == [None, 30_000.0] and past["step_seconds"] == 300


@pytest.mark.server
def test_rest_refuses_in_words(stage: Stage) -> None:
    unknown = stage.get("quotas?colour=red")
    assert unknown.status_code == 400 and "colour" in unknown.json()["message"]
    assert stage.get("gangs?format=yaml").status_code == 400
    stage.queues = FixedQueues()
    assert stage.get("quotas/x/history").status_code == 404
    stage.queues = FixedQueues(ClusterForbidden("you may not list pods"))
    forbidden = stage.get("pods")
    assert forbidden.status_code == 403 and "list pods" in forbidden.json()["message"]


@pytest.mark.server
def test_rest_shows_a_person_their_namespaces(stage: Stage) -> None:
    stage.person = Person("ann", grants=(Grant(Role.VIEWER, ("shop",)),))
    assert {row["namespace"] for row in stage.rows("pods")} == {"shop"}
    assert stage.get("pods/research/train-0").status_code == 404


def test_without_a_cluster_the_answer_names_the_command() -> None:
    with pytest.raises(UsageError) as refusal:
        in_cluster(view_of(None).given.queues, COMMAND)
    assert "cotenant get quotas" in refusal.value.fix
