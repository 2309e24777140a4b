"""One workload and one forecast: read whole, summed rightly, served alike to pages and scripts, told in every state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dash.development.base_component import Component
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.cluster import ContainerRole
from cotenant.base.identity import ContainerRef, WorkloadRef
from cotenant.base.reasons import Reason
from cotenant.base.resource import GIB, Resource
from cotenant.base.store import Store
from cotenant.base.usage.forecast import fine_path
from cotenant.dashboard.changes import proposals
from cotenant.dashboard.figures import story as chart
from cotenant.dashboard.frame.carried import workload_address
from cotenant.dashboard.frame.view import DashboardContext, View
from cotenant.dashboard.pages import forecast, portrait
from cotenant.dashboard.settings import DashboardSettings
from cotenant.dashboard.sources import workload_story
from cotenant.dashboard.sources.source import FORECAST_LIST, StoreSource
from cotenant.dashboard.sources.workload_story import Story, Subject
from cotenant.recommender.model.recommendation import Action, Backtest, Field, Recommendation, Restart, Trust, Value
from cotenant.recommender.model.savings import savings_of
from cotenant.recommender.model.shortage_text import MEANING
from cotenant.recommender.model.views import EVENTS, FORECASTS, RECOMMENDATIONS, WORKLOADS, Overview, portraits_of
from cotenant.recommender.settings import PriceSettings
from tests.support import dashboard as support
from tests.support.dashboard import Results

pytestmark = pytest.mark.slow

PRICES = PriceSettings(currency="EUR")
REF = WorkloadRef("pay", "Deployment", "checkout")
NASTY = "<img src=x onerror=alert(1)>\u202egnp"


def view_of(results: Results, source: Any = None, now_seconds: float = 0.0) -> View:
    settings = DashboardSettings()
    shown_source = source or StoreSource(results.store, settings)
    return View(
        shown_source,
        settings,
        lambda: now_seconds,
        DashboardContext(lambda *_: "kubectl patch", lambda *_: "kind: X", PRICES),
    )


def texts(component: Any) -> Iterator[str]:
    """Every text of a tree of components, in order."""
    if isinstance(component, (list, tuple)):
        for child in component:
            yield from texts(child)
    elif isinstance(component, Component):
        yield from texts(getattr(component, "children", None))
    elif component is not None:
        yield str(component)


def text_of(component: Any) -> str:
    return " ".join(texts(component))


def value(resource: Resource, which: Field, now: int | None, amount: int | None, action: Action = Action.SET) -> Value:
    return Value(resource, which, now, amount, action, Reason.OK)


def proposal(container: str = "app", replicas: int = 3, **more: Any) -> Recommendation:
    values = (
        value(Resource.CPU, Field.REQUEST, 500, 200),
        value(Resource.CPU, Field.LIMIT, 1000, None, Action.UNSET),
        value(Resource.MEMORY, Field.REQUEST, GIB, 2 * GIB),
        value(Resource.MEMORY, Field.LIMIT, None, None, Action.WITHHELD),
    )
    fields = {"values": values, "window_seconds": 86_400, "settings_digest": "d", "end_seconds": 0, **more}
    return Recommendation(ContainerRef(REF, container), "cotenant", replicas, **fields)


def story_of(*recommendations: Recommendation) -> Story:
    row = {c.name: None for c in WORKLOADS.columns} | {"namespace": "pay", "kind": "Deployment", "workload": "checkout"}
    return Story(row, {}, {}, [], recommendations, [])


# ---- sums


def test_totals_are_over_containers_that_run_together_and_over_pods() -> None:
    story = story_of(
        proposal(), proposal("side", role=ContainerRole.SIDECAR), proposal("setup", role=ContainerRole.INIT)
    )
    # Two containers beside each other (the init container has gone before) times 3 pods: 2 x 500 x 3 and 2 x 200 x 3.
    assert workload_story.total(story, Resource.CPU, Field.REQUEST, proposed=False) == 3000
    assert workload_story.total(story, Resource.CPU, Field.REQUEST, proposed=True) == 1200
    assert workload_story.total(story, Resource.MEMORY, Field.REQUEST, proposed=True) == 12 * GIB


def test_the_proposal_of_an_hour_is_of_the_pods_of_that_hour() -> None:
    story = replace(story_of(proposal()), portraits={"cpu": {"pods": [3.0, 6.0, None]}, "memory": {"pods": []}})
    # 200 m a pod are proposed: of three pods 600 m, of six 1200 m; nothing is known of the last hour, nor of memory.
    by_hour = workload_story.proposed_by_hour(story, Resource.CPU)
    assert by_hour[:2].tolist() == [600.0, 1200.0] and np.isnan(by_hour[2])
    assert workload_story.proposed_by_hour(story, Resource.MEMORY).tolist() == []
    assert workload_story.proposed_by_hour(story_of(proposal()), Resource.CPU).tolist() == []


def test_one_container_without_a_limit_makes_the_whole_unlimited() -> None:
    story = story_of(proposal())
    assert workload_story.total(story, Resource.CPU, Field.LIMIT, proposed=False) == 3000
    assert workload_story.total(story, Resource.CPU, Field.LIMIT, proposed=True) is None
    assert workload_story.total(story, Resource.MEMORY, Field.LIMIT, proposed=False) is None


def test_a_request_that_is_not_set_counts_as_the_limit_until_one_is_set() -> None:
    first = value(Resource.CPU, Field.REQUEST, None, 200, Action.SET)
    recommendation = replace(proposal(), values=(first,), present_limits={Resource.CPU: 1000})
    story = story_of(recommendation)
    # of each pod 1000 m now, 200 m then
    assert workload_story.total(story, Resource.CPU, Field.REQUEST, proposed=False) == 1000 * recommendation.replicas
    assert workload_story.total(story, Resource.CPU, Field.REQUEST, proposed=True) == 200 * recommendation.replicas


def test_no_total_of_containers_stands_for_the_amount_of_the_pod_itself() -> None:
    withheld = replace(value(Resource.CPU, Field.REQUEST, 500, None, Action.WITHHELD), reason=Reason.POD_AMOUNTS)
    story = story_of(replace(proposal(), values=(withheld,)))
    assert workload_story.total(story, Resource.CPU, Field.REQUEST, proposed=False) is None
    assert workload_story.total(story, Resource.CPU, Field.REQUEST, proposed=True) is None


def test_back_tests_add_up_and_say_how_many_containers_have_one() -> None:
    test = Backtest(7.0, 10.0, 4.0, 1, 0, 2, 300, -GIB)
    totals = workload_story.outcome(
        [proposal(backtest=test), proposal("b", backtest=replace(test, days=5.0)), proposal("c")]
    )
    assert totals == workload_story.BacktestTotals(5.0, 20.0, 8.0, 2, 0, 4, 600, -2 * GIB, containers=2, of=3)
    assert workload_story.outcome([proposal()]) is None


def test_the_dearest_restart_counts_and_money_adds_up() -> None:
    recommendations = [
        proposal(restart=Restart.IN_PLACE, monthly_saving=2.0),
        proposal(restart=Restart.NONE, monthly_saving=-0.5),
    ]
    assert workload_story.restart(recommendations) is Restart.IN_PLACE
    assert savings_of(recommendations).net.monthly == 1.5
    assert savings_of([proposal()]).net.monthly is None


# ---- what is read


def test_a_story_holds_the_rows_of_every_table(demo_results: Results) -> None:
    source = StoreSource(demo_results.store, DashboardSettings())
    story = source.story(REF)
    assert story is not None and source.story(REF) is story
    of = {"namespace": "pay", "kind": "Deployment", "workload": "checkout"}
    every = [r for r in demo_results.store.read_table(EVENTS).rows() if of.items() <= r.items()]
    assert story.events == every != []
    stored = [r for r in demo_results.store.read_table(portraits_of("pay")).rows() if of.items() <= r.items()]
    assert list(story.portraits.values()) == stored and set(story.portraits) == {"cpu", "memory"}
    assert {r.container.container for r in story.recommendations} == {
        r["container"] for r in demo_results.store.read_table(RECOMMENDATIONS).rows() if of.items() <= r.items()
    }
    assert set(story.forecasts) == {"cpu", "memory"} and story.log


def test_every_listed_forecast_can_be_opened_with_its_paths(demo_results: Results) -> None:
    source = StoreSource(demo_results.store, DashboardSettings())
    rows = list(demo_results.store.read_table(FORECASTS).rows())
    assert not {"q10", "q50", "q90", "q95"} & {c.name for c in FORECAST_LIST.columns}
    for row in rows[:: max(1, len(rows) // 20)]:
        detail = source.foreseen(Subject(row["scope"], row["namespace"], row["kind"], row["name"], row["resource"]))
        assert detail is not None and detail.row == row
        assert len(detail.times) == len(detail.mean) == len(detail.request) > 24
        assert np.isfinite(detail.mean).any()


@pytest.mark.parametrize("name", [("../etc", "Deployment", "x"), ("pay", "Deployment", "nobody"), ("", "", "")])
def test_what_the_results_do_not_name_is_not_looked_up(demo_results: Results, name: tuple[str, str, str]) -> None:
    source = StoreSource(demo_results.store, DashboardSettings())
    assert source.story(WorkloadRef(*name)) is None
    assert source.foreseen(Subject("workload", *name, "cpu")) is None


# ---- the way there and back


@given(
    st.text(min_size=1),
    st.sampled_from(["?ns=pay&severity!=good", "", "?q=a%26b&kind%20in%20(Job,Pod)", "?open=a%2Fb"]),
)
def test_filters_survive_the_way_there_and_back_letter_by_letter(name: str, search: str) -> None:
    href = workload_address("/b/", WorkloadRef("pay", "Deployment", name), search, "recommendations")
    path, _, query = href.partition("?")
    assert path.count("/") == 5 and path.startswith("/b/workload/pay/Deployment/")
    assert portrait.back("/b/", f"?show=memory&{query}") == ("Recommendations", f"/b/recommendations{search}")


def test_an_unknown_origin_leads_to_the_workloads() -> None:
    assert portrait.back("/", "?from=//evil.example&ns=a") == ("Workloads", "/workloads?ns=a")


# ---- states


def test_the_page_tells_the_back_test_beside_the_present(demo_results: Results) -> None:
    page = text_of(portrait.contents(view_of(demo_results), REF, ""))
    rows = (
        "Minutes throttled",
        "OOM kills",
        "Evictions in addition",
        "CPU requests, mean",
        "Memory requests, mean",
        "Restart",
    )
    for text in ("proposal been applied 7 days ago", *rows, "EUR a month", "Confidence", "kubectl patch", "kind: X"):
        assert text in page


def test_a_workload_that_is_gone_offers_the_search(demo_results: Results) -> None:
    page = text_of(portrait.contents(view_of(demo_results), WorkloadRef("pay", "Deployment", "gone"), ""))
    assert "The results contain no workload pay/Deployment/gone." in page and "Search for the name" in page


def test_an_empty_store_says_which_command_fills_it(tmp_path: Path) -> None:
    empty = Results(Store(tmp_path.as_uri(), "c"), 0)
    for component in (portrait.contents(view_of(empty), REF, ""), forecast.render(view_of(empty), "")):
        assert "cotenant scan --prometheus URL" in text_of(component)


class Partly:
    """The real source with one story in the place of all."""

    def __init__(self, results: Results, story: Story) -> None:
        self._source, self._story = StoreSource(results.store, DashboardSettings()), story

    def snapshot(self) -> Any:
        return self._source.snapshot()

    def story(self, _ref: WorkloadRef) -> Story:
        return self._story


def test_results_without_portraits_or_proposals_say_so_panel_by_panel(demo_results: Results) -> None:
    page = text_of(portrait.contents(view_of(demo_results, Partly(demo_results, story_of())), REF, ""))
    assert "Nothing is stored about this workload." in page and "cotenant scan" in page
    assert "No recommendation for this workload." in page and "cotenant explain pay/Deployment/checkout" in page
    assert "No proposal was logged yet." in page and "could not be drawn" not in page


def test_missing_samples_are_told_on_top(demo_results: Results) -> None:
    story = StoreSource(demo_results.store, DashboardSettings()).story(REF)
    assert story is not None
    holed = replace(story, workload={**story.workload, "coverage": 0.6})
    assert "60.0 % of samples present; charts show gaps for the rest" in text_of(
        portrait.contents(view_of(demo_results, Partly(demo_results, holed)), REF, "")
    )


def test_old_data_warn_before_anything_is_applied(demo_results: Results, tmp_path: Path) -> None:
    store = support.results(tmp_path, demo=False).store
    late = view_of(Results(store, demo_results.end_seconds), now_seconds=demo_results.end_seconds + 7200)
    assert "run a new scan before you apply" in text_of(portrait.contents(late, REF, ""))
    fresh = view_of(Results(store, demo_results.end_seconds), now_seconds=demo_results.end_seconds + 60)
    assert "run a new scan before you apply" not in text_of(portrait.contents(fresh, REF, ""))


def test_one_broken_panel_leaves_the_others(demo_results: Results) -> None:
    story = StoreSource(demo_results.store, DashboardSettings()).story(REF)
    assert story is not None
    bad = {"cpu": {**story.portraits["cpu"], "bounds": [1.0], "weights": "x"}}
    page = text_of(
        portrait.contents(view_of(demo_results, Partly(demo_results, replace(story, portraits=bad))), REF, "")
    )
    assert page.count("This panel could not be drawn.") == 1 and "Had the proposal been applied" in page


def test_worse_than_now_is_marked_in_a_word() -> None:
    test = Backtest(7.0, 10.0, 4.0, 0, 0, 0, 300, 0)
    card = text_of(proposals.card(story_of(proposal(backtest=test, trust=Trust(0.4, ("Two days only.",)))), "USD"))
    assert card.count("worse") == 1 and "40 %" not in card and "Confidence low Two days only." in card


def test_a_person_reads_what_the_cpu_request_means_for_its_pods(demo_results: Results) -> None:
    test = Backtest(7.0, 14.0, 0.0, 0, 0, 0, 300, 0, 7 * 1440.0, 7, 4, 0, 84.0, 0.0)
    page = text_of(proposals.containers(story_of(proposal(backtest=test)), stale=False))
    # 84 minutes above the proposed request and 14 above its limit, in seven days of one pod.
    was, _, proposed = page.partition("As proposed")
    assert "As it was" in was
    assert "CPU demand above the request on none of 7 pod-days; throttled at no time." in was
    told_of_proposal = "CPU demand above the request on 4 of 7 pod-days, for 12 minutes a day"
    assert f"{told_of_proposal}; throttled for 2 minutes a day." in proposed
    assert MEANING in page
    older = text_of(proposals.containers(story_of(proposal(backtest=replace(test, cpu_pod_days=0))), stale=False))
    assert "above the request" not in older and MEANING not in older


def test_names_that_deceive_are_written_out(demo_results: Results) -> None:
    story = story_of(proposal(NASTY, notes=(NASTY,)))
    page = text_of(portrait.contents(view_of(demo_results, Partly(demo_results, story)), REF, ""))
    assert "\u202e" not in page and "\\u202e" in page


# ---- forecasts


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("", "cluster demo, CPU"),
        ("?open=workload%2Fpay%2FDeployment%2Fcheckout%2Fmemory", "pay/Deployment/checkout, memory"),
        ("?open=node%2F%2F%2Fgone%2Fcpu", "No forecast of node gone, CPU."),
    ],
)
def test_the_cluster_is_shown_until_another_is_chosen(demo_results: Results, address: str, says: str) -> None:
    view = view_of(demo_results)
    assert says in text_of(forecast.band(view, address))


def test_the_worst_are_those_with_the_highest_loss_and_the_least_coverage(demo_results: Results) -> None:
    rows = list(demo_results.store.read_table(FORECASTS).rows())
    quality = text_of(forecast.quality(view_of(demo_results), "?resource=cpu"))
    measured = [r for r in rows if r["resource"] == "cpu" and r["relative_wql"] is not None]
    worst = max(measured, key=lambda r: r["relative_wql"])
    times = worst["relative_wql"]
    most = forecast.MOST_TIMES
    shown = f"error {times:.2f} x as high" if times <= most else f"error over {most} x as high"
    assert times > 1 and f"cpu {shown}" in quality and worst["name"] in quality
    least = min(measured, key=lambda r: r["coverage_95"])
    assert f"{100 * least['coverage_95']:.0f} %" in quality and "How models are weighted" in quality


def test_a_chart_says_what_5_minute_values_stay_below(demo_results: Results) -> None:
    source = StoreSource(demo_results.store, DashboardSettings())
    row = next(
        r
        for r in demo_results.store.read_table(FORECASTS).rows()
        if r["scope"] == "workload" and r["resource"] == "cpu"
    )
    detail = source.foreseen(Subject(row["scope"], row["namespace"], row["kind"], row["name"], row["resource"]))
    assert detail is not None
    line = forecast.line(detail, Resource.CPU)
    traces = {trace["name"]: trace for trace in chart.chart(line).figure["data"]}
    fine, half_hours = traces["p95 of 5 min"], traces["p95"]
    assert len(fine["y"]) == 288 and fine["x"][:7:6] == half_hours["x"][:2]
    np.testing.assert_allclose(np.array(fine["y"]) * 1000, fine_path(row["fine_q95"], row["fine_profile"]), rtol=1e-3)
    old = replace(detail, row={**row, "fine_q95": [], "fine_profile": []})  # results of an earlier version
    assert "p95 of 5 min" not in {
        trace["name"] for trace in chart.chart(forecast.line(old, Resource.CPU)).figure["data"]
    }


def test_the_models_of_a_series_are_compared_best_first(demo_results: Results) -> None:
    row = next(
        r for r in demo_results.store.read_table(FORECASTS).rows() if r["scope"] == "cluster" and r["resource"] == "cpu"
    )
    compared = workload_story.model_losses(row)
    losses = [loss for _, loss in compared]
    assert losses == sorted(losses) and dict(compared)["seasonal-naive-day"] == 1.0
    text = text_of(forecast.models(row))
    best = f"{len(compared)} models compared: best {compared[0][0]}, {losses[0]:.2f} x the error of repeating yesterday"
    assert best in text
    assert all(f"{name} {loss:.2f}" in text for name, loss in compared)
    assert "No model was tested on this series." in text_of(forecast.models({**row, "losses": ""}))


def test_filtered_out_forecasts_say_so(demo_results: Results) -> None:
    assert "No forecast matches these filters." in text_of(forecast.quality(view_of(demo_results), "?q=no-such-name"))
    assert "Did you mean scope?" in text_of(forecast.quality(view_of(demo_results), "?scoop=node"))


def test_the_overview_s_cluster_has_a_forecast(demo_results: Results) -> None:
    overview = demo_results.store.read_document("overview", Overview)
    assert overview is not None
    detail = StoreSource(demo_results.store, DashboardSettings()).foreseen(
        Subject("cluster", "", "", overview.cluster, "cpu")
    )
    assert detail is not None and list(detail.times) == overview.cpu.times
