"""Whether a plan's pods fit when its window begins: by what the last run expects nodes to use, beside what fits now."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cotenant.base.people import Role
from cotenant.base.store import Store
from cotenant.base.table import Table
from cotenant.changes.forecasted_usage import ahead_of, usage_at
from cotenant.dashboard.reservations import plan_actions
from cotenant.recommender.model.views import FORECASTS
from cotenant.scheduler_ext.reservations.commands.rows import preview_table
from cotenant.scheduler_ext.reservations.model.plan import Plan, PlanOwner, PlanStatus, Span, WindowSource
from cotenant.scheduler_ext.reservations.model.plan_service import PlanRef
from cotenant.scheduler_ext.reservations.plans.preview import FreeNode, PreviewContext, forecast_free_capacity, preview
from cotenant.scheduler_ext.reservations.service.service import plan_service_of
from tests.support import plans
from tests.support.plans import HOUR, NAMESPACE, SIX, Scene, person

WINDOW = Span(SIX, SIX + 2 * HOUR)
PLAN = Plan(
    "shop",
    "web",
    WindowSource.MANUAL,
    PlanOwner("Deployment", "web"),
    {"cpu": 500},
    3,
    status=PlanStatus(window=WINDOW),
)
OWNER = person(Role.OWNER, NAMESPACE)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Scene]:
    """Node n1 of 16 cores, and a plan of four pods of two cores."""
    with plans.embedded(tmp_path) as embedded:
        embedded.plan()
        yield embedded


def forecast(node: str, start: float, cores: list[float]) -> dict[str, Any]:
    """A row of FORECASTS: 0.95 quantile of each half hour."""
    row = dict.fromkeys((column.name for column in FORECASTS.columns), None)
    q95 = [1000.0 * amount for amount in cores]
    return row | {"scope": "node", "namespace": "", "kind": "", "name": node, "resource": "cpu"} | {
        "model": "m", "reason": "ok", "start": int(start), "q95": q95, "losses": ""
    }  # fmt: skip


def test_nodes_that_are_busier_then_take_fewer_pods_and_requests_stay_asked_for() -> None:
    # a has 1200 m free of 4000; 3400 m used then leave 600. b is used less than requested: no more room than now.
    busy = forecast_free_capacity({"cpu": 1200}, {"cpu": 4000}, {"cpu": 3400})
    calm = forecast_free_capacity({"cpu": 600}, {"cpu": 4000}, {"cpu": 100})
    assert (busy, calm) == ({"cpu": 600}, {"cpu": 600})
    nodes = [FreeNode("a", {"cpu": 1200}, then=busy), FreeNode("b", {"cpu": 600}, then=calm)]
    plan_preview = preview(PLAN, WINDOW, PreviewContext(nodes, {}, 0.1))
    assert (plan_preview.unplaced, plan_preview.nodes) == (0, (("a", 2), ("b", 1)))
    assert (plan_preview.unplaced_then, plan_preview.nodes_then) == (1, (("a", 1), ("b", 1)))
    assert plan_preview.notes == ("1 of 3 pods fits on no node when the window begins: nodes are busier then.",)


def test_without_a_forecast_it_is_not_known_and_nodes_without_one_count_as_now() -> None:
    blind = preview(PLAN, WINDOW, PreviewContext([FreeNode("a", {"cpu": 1500})], {}, 0.1))
    assert (blind.unplaced, blind.unplaced_then, blind.nodes_then, blind.notes) == (0, None, (), ())
    nodes = [FreeNode("a", {"cpu": 1000}), FreeNode("b", {"cpu": 500}, then={"cpu": 400})]
    assert preview(PLAN, WINDOW, PreviewContext(nodes, {}, 0.1)).nodes_then == (("a", 2),)


def test_the_half_hour_of_the_moment_counts_and_beyond_the_forecast_nothing_is_known() -> None:
    rows = [forecast("n1", SIX, [1.0, 2.0])]
    usages = [usage_at(rows, SIX + seconds) for seconds in (-1, 0, 1799, 1800, 3600)]
    assert usages == [{}, {"n1": {"cpu": 1000}}, {"n1": {"cpu": 1000}}, {"n1": {"cpu": 2000}}, {}]


@pytest.mark.server
def test_the_service_says_both_and_the_page_and_the_command_show_them(cluster: Scene, tmp_path: Path) -> None:
    store = Store((tmp_path / "results").as_uri(), "shop")
    assert ahead_of(store)(SIX) == {}
    blind = plan_service_of(cluster.settings, clock=cluster.clock, store=store).preview(
        OWNER, PlanRef(NAMESPACE, "web-peak")
    )
    assert blind.unplaced_then is None and "unknown: no node" in str(plan_actions.preview_table(blind, "EUR"))
    # 11 of 16 cores are used then: five are left, in which two pods of two cores fit.
    store.write_table(Table.from_rows(FORECASTS, [forecast("n1", SIX - HOUR, [1.0, 1.0, 11.0])]))
    plan_preview = plan_service_of(cluster.settings, clock=cluster.clock, store=store).preview(
        OWNER, PlanRef(NAMESPACE, "web-peak")
    )
    assert (plan_preview.fits, plan_preview.unplaced_then, plan_preview.nodes_then) == (True, 2, (("n1", 2),))
    assert "2 of 4 pods: n1 (2), by the forecast" in str(plan_actions.preview_table(plan_preview, "EUR"))
    rows = {row["what"]: row["answer"] for row in preview_table(plan_preview, "EUR").rows()}
    assert (rows["fits now"], rows["fits at the start"]) == ("4 of 4 pods: 4 on n1", "2 of 4 pods: 2 on n1")


@pytest.mark.server
def test_a_quota_for_pods_of_one_kind_does_not_count_against_a_plan(cluster: Scene) -> None:
    def quota(name: str, **spec: Any) -> None:
        path = f"/api/v1/namespaces/{NAMESPACE}/resourcequotas"
        status = {"hard": {"requests.cpu": "3"}, "used": {"requests.cpu": "1"}}
        head = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name}}
        cluster.api.create(path, {**head, "spec": {"hard": {"requests.cpu": "3"}, **spec}})
        cluster.api.patch(f"{path}/{name}/status", {**head, "status": status}, "apply", fieldManager="test")

    quota("jobs", scopes=["Terminating"])
    quota("urgent", scopeSelector={"matchExpressions": [{"scopeName": "PriorityClass", "operator": "Exists"}]})
    plan_preview = cluster.service().preview(OWNER, PlanRef(NAMESPACE, "web-peak"))
    assert plan_preview.quota_left == {}
    quota("team")
    # Three cores may be asked for and one is: the plan's four pods of two cores are six too many.
    assert cluster.service().preview(OWNER, PlanRef(NAMESPACE, "web-peak")).quota_left == {"cpu": -6000}
