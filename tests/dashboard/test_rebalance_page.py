"""The page Rebalance and its REST endpoints: maps, moves, refusals, jobs, honest empty states, rights, approvals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
import requests

from cotenant.base.commands.cells import row_cells
from cotenant.base.commands.output import Format
from cotenant.base.errors import ClusterForbidden, NoData, UsageError
from cotenant.base.people import Person, Role
from cotenant.base.reasons import SENTENCES, Reason
from cotenant.base.usage.peak import HIGHEST_HALF_HOUR_NAME
from cotenant.dashboard.app import create_app
from cotenant.dashboard.figures import load_maps
from cotenant.dashboard.figures.display import label
from cotenant.dashboard.frame import panels
from cotenant.dashboard.frame.view import DashboardContext, View, in_cluster
from cotenant.dashboard.pages import rebalance as page
from cotenant.dashboard.rebalance import approval
from cotenant.scheduler_ext.rebalance.cluster_reading import RebalanceReading
from cotenant.scheduler_ext.rebalance.commands import RoundPart
from cotenant.scheduler_ext.rebalance.commands import _print as print_report
from cotenant.scheduler_ext.rebalance.model.move_service import (
    JobCarrier,
    MoveEvent,
    MoveHistoryEntry,
    MoveOutcome,
    MoveService,
)
from cotenant.scheduler_ext.rebalance.model.tables import EMPTYING, JOBS, MOVES, NODES
from cotenant.scheduler_ext.rebalance.rebalance_report import report_of
from tests.dashboard.test_states import text_of
from tests.scheduler_ext.rebalance.small_cluster import NOW, arguments, inputs, node, pod
from tests.support import dashboard as support
from tests.support.access import Browser
from tests.support.moves import APPROVER, JOB_BODIES, OFF, VIEWER, FixedMoves, narrowed, small_emptying, small_report
from tests.support.plans import person

NO_MOVES = replace(small_report(), moves=small_report().moves.take(np.array([], dtype=int)))
NO_METRICS = NoData("the cluster has no NodeMetrics: the usage of nodes is not reported", fix="Run the node agents.")


def view_of(moves: MoveService | None, who: Person = APPROVER) -> View:
    return View(None, support.QUICK, lambda: NOW, DashboardContext(moves=moves, current_user=lambda: who))  # type: ignore[arg-type]


def drawn(moves: MoveService | None, search: str = "", who: Person = APPROVER) -> str:
    view = view_of(moves, who)
    return text_of(panels.render_guarded(lambda: page.render(view, search)))


# ---- maps


def test_the_maps_show_each_node_before_and_after_and_mark_what_is_too_high() -> None:
    rows = list(small_report().nodes.rows())
    chart = load_maps.now_and_after(rows, "cpu")
    json.dumps(chart.figure, allow_nan=False)
    (trace,) = go.Figure(chart.figure).data
    # hot: 50 % system + 2 pods of 20 %, one of which moves to cold (10 % system); silent has no report
    assert [[None if v is None else round(v) for v in row] for row in trace.z] == [[90, 10, None], [70, 30, None]]
    assert [list(row) for row in trace.text] == [["90▲", "10", ""], ["70", "30", ""]]
    # spread: standard deviation of 90 and 10 is 40, of 70 and 30 it is 20
    assert chart.summary == (
        "CPU now: 1 of 3 nodes above their threshold, highest 90 %, spread 40.0 points; after the moves 0 of 3 nodes "
        "above their threshold, highest 70 %, spread 20.0 points; 1 node without a value."
    )
    (peak,) = go.Figure(load_maps.at_peak(rows, "cpu").figure).data
    shares = [[row[f"cpu_{name}"] for row in rows] for name in ("peak", "peak_after")]
    assert [[None if v is None else v / 100 for v in row] for row in peak.z] == [pytest.approx(row) for row in shares]
    # One amount under one name: the cells are those of the table's column, which thresholds are compared with.
    titles = {column.name: column.title for column in NODES.columns}
    assert (
        titles["cpu_peak"] == f"CPU {HIGHEST_HALF_HOUR_NAME}"
        and HIGHEST_HALF_HOUR_NAME in load_maps.at_peak(rows, "cpu").summary
    )
    assert round(peak.z[0][0]) == 95 > peak.z[1][0] and round(peak.z[0][1]) == 30 < peak.z[1][1]


def test_of_many_nodes_those_with_moves_are_drawn_and_the_rest_is_counted() -> None:
    rows = list(small_report().nodes.rows())
    many = [{**rows[1], "node": f"n-{k}", "moves": 0, "cpu_now": 0.99} for k in range(1000)]
    chart = load_maps.now_and_after([*many, rows[0]], "cpu")
    assert len(chart.figure["data"][0]["x"]) == load_maps.MOST_NODES
    assert "hot" in chart.figure["layout"]["xaxis"]["ticktext"]
    assert chart.summary.endswith("961 nodes more in the table.")
    # of each resource by itself: the highest that the summary names is drawn, whatever the other resource is
    full = [{**row, "cpu_now": 0.1, "cpu_peak": 0.1, "memory_now": 0.99, "memory_peak": 0.99} for row in many]
    busy = {**full[0], "node": "busy", "cpu_now": 0.49, "cpu_peak": 0.58, "memory_now": 0.1, "memory_peak": 0.2}
    for draw in (load_maps.now_and_after, load_maps.at_peak):
        assert "busy" in draw([*full, busy], "cpu").figure["layout"]["xaxis"]["ticktext"]
        assert "busy" not in draw([*full, busy], "memory").figure["layout"]["xaxis"]["ticktext"]
    assert load_maps.at_peak([], "memory").summary.endswith("not known for any node.")


@pytest.mark.parametrize("column", ["cpu_now", "cpu_after", "cpu_peak", "cpu_peak_after"])
def test_the_node_whose_value_the_summary_names_is_drawn_however_many_others_have_moves(column: str) -> None:
    row = next(iter(small_report().nodes.rows()))
    low = {"cpu_now": 0.5, "cpu_after": 0.4, "cpu_peak": 0.5, "cpu_peak_after": 0.4}
    many = [{**row, **low, "node": f"n-{k}", "moves": 1, "load": "high"} for k in range(100)]
    highest = {**row, **low, "node": "top", "moves": 0, "load": "", column: 0.97}
    draw = load_maps.at_peak if "peak" in column else load_maps.now_and_after
    chart = draw([*many, highest], "cpu")
    (trace,) = chart.figure["data"]
    assert "highest 97 %" in chart.summary
    assert max(value for cells in trace["z"] for value in cells) == pytest.approx(97)
    assert len(trace["x"]) == load_maps.MOST_NODES


def asks(act: str, of: str, name: str) -> str:
    """What a button of the page asks for, as it stands in the page's text."""
    return json.dumps(panels.asks(approval.ASKED, act=act, of=of, name=name)["data-asked"])


# ---- page


def test_the_page_shows_moves_refusals_rules_and_jobs() -> None:
    entry = MoveHistoryEntry(NOW, "ann", MoveEvent.APPROVED, "shop/c-1", "from hot to cold: overload now (sale)")
    text = drawn(FixedMoves(entries=(entry,)))
    for phrase in ("1 move for 3 nodes", "shop/a-1", "shop/b-1", SENTENCES[Reason.LOCAL_STORAGE], "high 1",
                  "unknown 1", "Configured thresholds: low cpu 40 %, memory 40 %; high cpu 70 %, memory 80 %",
                  "What could not be read", "1 of 3 nodes has no fresh NodeMetric", "Approve it", "move-approved",
                  "overload now (sale)"):  # fmt: skip
        assert phrase in text, phrase
    for phrase in ("Pending 1", "Running 1", "Succeeded 1", "Failed 1", "ReservationCreated", "ReservationScheduled",
                  "Unschedulable: no node has 4 cores free", "cold-2"):  # fmt: skip
        assert phrase in text, phrase


def test_only_a_pending_job_can_be_withdrawn() -> None:
    text = drawn(FixedMoves())
    assert [
        body["metadata"]["name"] for body in JOB_BODIES if asks("withdraw", "move", body["metadata"]["name"]) in text
    ] == ["job-waits"]


def test_tables_have_the_columns_of_the_command_line_with_their_units() -> None:
    text = drawn(FixedMoves())
    for schema in (NODES, MOVES, JOBS):
        for column in schema.columns:
            assert column.wide or f'"{column.title}"' in text, column.title
    assert '"Gain, node-seconds"' in text and '"Cost, node-seconds"' in text


def test_the_address_chooses_the_resource() -> None:
    assert "Memory now: " in drawn(FixedMoves(), "?show=memory") and "CPU now: " in drawn(FixedMoves(), "?show=disk")


def test_without_a_choice_the_maps_show_the_resource_that_most_nodes_have_too_much_of() -> None:
    # memory of 90 % is above the threshold of 80 %, CPU of 20 % below that of 70 %
    cluster = inputs(node("full", pod("a-1", 20, memory_percent=90)), node("cold", system=10))
    reading = RebalanceReading(cluster, gaps=(), forecasts=0)
    full = FixedMoves(report_of(reading, arguments(), with_forecast=False, configured=True))
    assert "Memory now: 1 of 2 nodes above" in drawn(full) and "CPU now: " in drawn(full, "?show=cpu")


def test_the_pages_tables_are_those_of_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    report = small_report()
    print_report(report, RoundPart.ALL, Format.TABLE, headers=False)
    printed = capsys.readouterr().out
    text = drawn(FixedMoves(report))
    print_report(report, RoundPart.ALL, Format.JSON, headers=True)
    document = json.loads(capsys.readouterr().out)
    assert document == {"nodes": list(report.nodes.rows()), "moves": list(report.moves.rows())}
    for schema, rows in ((NODES, document["nodes"]), (MOVES, document["moves"])):
        texts = [column for column in schema.columns if column.kind.value == "text" and not column.wide]
        for row in rows:
            for cell in row_cells(texts, row):
                assert cell in printed and label(cell) in text, cell
    # both round a share to whole percent: hot uses 90 %, 70 % after the move, 95 % at its peak
    assert all(str(share) in printed.split() and f"{share} %" in text for share in (90, 70, 95))


def test_the_page_of_emptied_nodes_has_the_rows_of_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    report = small_emptying()
    print_report(report, RoundPart.ALL, Format.TABLE, headers=False)
    printed = capsys.readouterr().out
    print_report(report, RoundPart.ALL, Format.JSON, headers=True)
    document = json.loads(capsys.readouterr().out)
    assert list(document) == ["emptying", "nodes", "moves"]
    text = drawn(FixedMoves(), "?plugin=HighNodeLoad")
    decisions = {row["node"]: (row["decision"], row["reason"]) for row in document["emptying"]}
    assert decisions == {
        "low": ("set", "under-used"), "approved": ("stays", "started-lately"), "left": ("left alone", "no-controller"),
    }  # fmt: skip
    for schema in (EMPTYING, NODES, MOVES):
        for row in document[schema.name.removeprefix("rebalance_")]:
            for cell in row_cells([c for c in schema.columns if c.kind.value == "text" and not c.wide], row):
                assert cell in printed and label(cell) in text, cell
    assert SENTENCES[Reason.UNDER_USED] in text and SENTENCES[Reason.NO_CONTROLLER] in text
    assert asks("approve", "node", "low") in text and asks("withdraw", "node", "approved") in text
    assert asks("withdraw", "node", "low") not in text


@pytest.mark.parametrize(("who", "off"), [(APPROVER, False), (VIEWER, True)])
def test_a_node_is_emptied_by_who_may(who: Person, off: bool) -> None:
    view = view_of(FixedMoves(), who)
    shown = page.emptying_panel(view, small_emptying(), FixedMoves().jobs(who))
    buttons = [component for component in shown._traverse() if '"of": "node"' in getattr(component, "data-asked", "")]
    assert len(buttons) == 3 and {button.disabled for button in buttons} == {off}
    form = text_of(approval.form([MoveOutcome("low")], approval.NODES))
    assert "1 node of 1 would be tainted. Nothing was written." in form and '"nodes-chosen"' in form
    assert "Tainted 1 node." in text_of(approval.result([MoveOutcome("low")], approval.NODES))
    assert approval.chosen_subjects(view, approval.EVERY, approval.NODES) == ["low"]


@pytest.mark.parametrize(
    ("moves", "who", "phrases"),
    [
        (None, APPROVER, ("This dashboard has no cluster access.", "cotenant dashboard --act")),
        (FixedMoves(NO_METRICS), APPROVER, ("the usage of nodes is not reported", "cotenant install --components")),
        (FixedMoves(ClusterForbidden("you may not list nodes", fix="Bind it.")), APPROVER, ("forbidden", "list nodes")),
        (FixedMoves(carrier=OFF), APPROVER, ("is off, so no move", "descheduler.enabled=true serve manager "
        "--write")),
        (FixedMoves(), VIEWER, ("ann may not approve", "this needs role approver or admin")),
        (FixedMoves(NO_MOVES), VIEWER, ("No pod should move now.",)),
    ],
)  # fmt: skip
def test_every_emptiness_has_its_own_words(moves: FixedMoves | None, who: Person, phrases: tuple[str, ...]) -> None:
    text = drawn(moves, who=who)
    assert [word for word in phrases if word not in text] == []
    assert "could not be drawn" not in text


@pytest.mark.parametrize(
    ("moves", "who", "approvable"),
    [(FixedMoves(), APPROVER, True), (FixedMoves(), VIEWER, False), (FixedMoves(carrier=OFF), APPROVER, False),
     (FixedMoves(), narrowed(APPROVER, "shop"), True)],
)  # fmt: skip
def test_buttons_are_open_only_to_who_may_and_while_somebody_carries_moves_out(
    moves: FixedMoves, who: Person, approvable: bool
) -> None:
    view = view_of(moves, who)
    shown = page.move_panel(view, moves.report(who), moves.jobs(who))
    buttons = [
        component for component in shown._traverse() if '"act": "approve"' in getattr(component, "data-asked", "")
    ]
    assert len(buttons) == 2 and {not button.disabled for button in buttons} == {approvable}
    assert approvable or all(button.title for button in buttons)


def test_without_a_forecast_the_second_map_says_so() -> None:
    report = small_report()
    columns = dict(report.nodes.columns)
    columns["cpu_peak"] = columns["cpu_peak"] * float("nan")
    assert "No node has a forecast." in drawn(FixedMoves(replace(report, nodes=replace(report.nodes, columns=columns))))


def test_a_person_sees_pods_of_their_namespaces_and_all_nodes() -> None:
    text = drawn(FixedMoves(), who=narrowed(VIEWER, "pay"))
    assert "shop/" not in text and "pay/f-1" in text and '"hot"' in text
    assert "Rows about pods of namespaces that you may not read are hidden" in text


def test_the_mark_changes_with_rows_and_address_and_not_with_time() -> None:
    first = page.LIVE.mark(view_of(FixedMoves()), "")
    later = page.LIVE.mark(view_of(FixedMoves(replace(small_report(), at_seconds=NOW + 60))), "")
    fewer = page.LIVE.mark(view_of(FixedMoves(bodies=())), "")
    off = page.LIVE.mark(view_of(FixedMoves(carrier=OFF)), "")
    other = page.LIVE.mark(view_of(FixedMoves()), "?show=memory")
    assert first == later and len({first, fewer, off, other}) == 4


# ---- forms


def test_the_form_names_what_would_be_made_and_what_is_refused() -> None:
    refused = MoveOutcome("shop/x-1", error="shop/x-1 is moved already by job j", fix="Wait.")
    text = text_of(approval.form([MoveOutcome("shop/a-1", "job-a"), refused]))
    assert "1 job of 2 would be made. Nothing was written." in text and "Make 1 job" in text
    assert "is moved already by job j. Wait." in text and '"data": ["shop/a-1"]' in text
    assert '"disabled": true' in text_of(approval.form([refused]))
    done = text_of(approval.result([MoveOutcome("shop/a-1", "job-a"), refused]))
    assert "Made 1 job. 1 move refused." in done


def test_all_means_every_move_that_the_person_may_approve() -> None:
    view = view_of(FixedMoves())
    assert approval.chosen_subjects(view, approval.EVERY) == ["shop/a-1"]
    assert approval.chosen_subjects(view, "shop/b-1") == ["shop/b-1"]
    mixed = replace(VIEWER, grants=(*VIEWER.grants, *person(Role.APPROVER, "pay").grants))
    with pytest.raises(UsageError, match="no move that you may approve"):
        approval.chosen_subjects(view_of(FixedMoves(), mixed), approval.EVERY)
    with pytest.raises(UsageError, match="has no access to a cluster"):
        in_cluster(view_of(None).given.moves)


# ---- REST: one server, whose moves and person a test changes


class Stage:
    """What is behind the server now."""

    def __init__(self) -> None:
        self.url, self.person, self.moves = "", APPROVER, FixedMoves()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.moves, name)

    def get(self, path: str) -> requests.Response:
        return requests.get(f"{self.url}/api/v1/rebalance{path}", timeout=30)

    def post(self, path: str, body: dict[str, Any]) -> requests.Response:
        browser = Browser(self.url)  # whose token is the person's
        browser.get("/", page=True)
        return browser.post(f"/api/v1/rebalance{path}", json=body)


@pytest.fixture(scope="module")
def running() -> Iterator[Stage]:
    stage = Stage()
    context = DashboardContext(moves=stage, current_user=lambda: stage.person)
    with support.served(create_app(None, support.QUICK, context=context)) as url:  # type: ignore[arg-type]
        stage.url = url
        yield stage


@pytest.fixture
def stage(running: Stage) -> Stage:
    running.person, running.moves = APPROVER, FixedMoves()
    return running


@pytest.mark.server
def test_rest_gives_the_rows_of_the_command_line_under_the_filters_of_all_tables(stage: Stage) -> None:
    report = small_report()
    assert stage.get("/nodes").json()["rows"] == list(report.nodes.rows())
    assert stage.get("/moves").json()["rows"] == list(report.moves.rows())
    assert [row["pod"] for row in stage.get("/moves?decision=stay").json()["rows"]] == ["shop/b-1"]
    assert [row["job"] for row in stage.get("/jobs?phase=Failed").json()["rows"]] == ["job-failed"]
    assert stage.get("/jobs?format=csv").text.startswith("job,pod,phase")
    overview = stage.get("").json()
    assert (overview["moves"], overview["nodes"], overview["carrier"]["carries"]) == (1, 3, True)
    assert stage.get("/history").json() == []
    assert [row["node"] for row in stage.get("/emptying?decision=set").json()["rows"]] == ["low"]


@pytest.mark.server
def test_rest_approves_tries_and_withdraws(stage: Stage) -> None:
    tried = stage.post("/approvals", {"pods": ["shop/a-1"], "dry_run": True})
    assert tried.json()[0]["job"] == "job-shop-a-1" and stage.moves.approved == []
    assert stage.post("/approvals", {"pods": ["shop/a-1"], "reason": "sale"}).status_code == 200
    assert stage.post("/jobs/job-waits/withdrawal", {}).json()["job"] == "job-waits"
    nodes = {"nodes": ["low"], "reason": "autoscaler"}
    assert stage.post("/emptying/approvals", {**nodes, "dry_run": True}).json()[0]["pod"] == "low"
    assert stage.post("/emptying/approvals", nodes).status_code == 200
    assert stage.post("/emptying/approved/withdrawal", {}).json()["pod"] == "approved"
    assert stage.moves.approved == [("shop/a-1", "sale"), ("job-waits", ""), ("low", "autoscaler"), ("approved", "")]


@pytest.mark.server
def test_rest_refuses_in_words(stage: Stage) -> None:
    assert "colour" in stage.get("/moves?colour=red").json()["message"]
    wrong = stage.post("/approvals", {"pod": "shop/a-1"})
    assert wrong.status_code == 400 and "pod" in wrong.json()["message"]
    stage.person = VIEWER
    for response in (stage.post("/approvals", {"pods": ["shop/a-1"]}), stage.post("/jobs/job-waits/withdrawal", {})):
        assert response.status_code == 403 and "may not approve" in response.json()["message"]
    assert stage.moves.approved == []
    stage.moves = FixedMoves(NO_METRICS)
    assert stage.get("/nodes").status_code == 404
    stage.person = narrowed(VIEWER, "pay")
    assert {row["pod"] for row in stage.get("/jobs").json()["rows"]} == {"pay/f-1"}


def test_a_carrier_says_why_not_or_carries() -> None:
    assert JobCarrier().carries and not OFF.carries
