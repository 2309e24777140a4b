"""The switches of units and time zone: charts, headline numbers and tables follow on every page; exports stay raw."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from cotenant.base.resource import GIB
from cotenant.recommender.colocation.model.lendable import NODE_HISTORY
from cotenant.recommender.model.views import WORKLOADS, Overview, portraits_of
from tests.browser.conftest import Open
from tests.browser.test_browsing import serious
from tests.browser.test_pages import api, chart_of, settled
from tests.support.dashboard import Results
from tests.support.first_sight import unfold

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.xdist_group("browser")]
TOKYO_HOURS = 9
MIB = 1024**2


def switched(page: Page, *, back: bool = False) -> Page:
    """Both switches set (or set back); the tests' browser stands in Tokyo."""
    page.locator("#display-button").click()
    page.get_by_text("cores, GiB", exact=True).click() if back else page.get_by_text("millicores, MiB").click()
    page.locator("#zone").get_by_text("UTC", exact=True).click() if back else page.get_by_text("this browser's").click()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Units and time zone")).to_be_hidden()
    return page


def figure(page: Page, name: str) -> Any:
    """What plotly draws: title and range of its axes, and per trace its numbers."""
    script = """id => { const it = document.querySelector('#' + id + ' .js-plotly-plot');
        const at = x => it.layout.xaxis.type === 'date' ? Date.parse(x + 'Z') : x; return {
        y: it.layout.yaxis.title && it.layout.yaxis.title.text, x: it.layout.xaxis,
        drawn: it._fullLayout.xaxis.range.map(it._fullLayout.xaxis.r2l),
        data: it.data.map(t => ({
            name: t.name, x: [...t.x].map(at), y: [...(t.y || [])], z: t.z, hover: t.hovertemplate}))} }"""
    chart_of(page, name)
    return page.evaluate(script, name)


def trace(figure: Any, name: str) -> Any:
    return next(t for t in figure["data"] if t["name"] == name)


@pytest.mark.soak
def test_the_band_and_the_heat_map_of_the_overview_follow(open_page: Open, address: str, demo_results: Results) -> None:
    page = settled(open_page(address))
    unfold(page)
    before, heat = figure(page, "band-figure"), figure(page, "heat-figure")
    overview = demo_results.store.read_document("overview", Overview)
    assert overview is not None
    switched(page)
    after, turned = figure(page, "band-figure"), figure(page, "heat-figure")
    assert (before["y"], after["y"]) == ("cores", "millicores")
    # Millicores are cores x 1000, the numbers of the results; moments move by nine hours.
    now, then = trace(after, "Usage"), trace(before, "Usage")
    assert now["y"] == pytest.approx(overview.cpu.usage[-len(now["y"]) :], rel=1e-9)
    assert [a - b for a, b in zip(now["x"], then["x"], strict=True)] == [3600_000 * TOKYO_HOURS] * len(now["x"])
    assert after["x"]["hoverformat"].endswith("GMT+9") and "millicores" in now["hover"]
    # What plotly makes of it, far from Greenwich: the axis begins with the first moment in UTC, and nine hours later.
    assert before["drawn"][0] == then["x"][0]
    assert after["drawn"][0] == then["x"][0] + 3600_000 * TOKYO_HOURS
    # Monday 9 h in Tokyo is Monday 0 h UTC; Monday 8 h is Sunday 23 h.
    assert turned["data"][0]["z"][0][9] == heat["data"][0]["z"][0][0]
    assert turned["data"][0]["z"][0][8] == heat["data"][0]["z"][6][23]
    assert turned["x"]["title"]["text"] == "hour, GMT+9"
    reclaimable = page.locator("#card-lend h2 .amount")
    expect(reclaimable).to_have_text(f"{round(overview.cpu.batch_now):,} m")
    ahead = page.locator("#card-lend .card-detail .amount", has_text=" to ")
    expect(ahead).to_have_text(re.compile(r"^[\d,]+ to [\d,]+ m$"))
    assert overview.peak is not None
    start = datetime.fromtimestamp(overview.peak.start_seconds + 3600 * TOKYO_HOURS, UTC)
    expect(page.locator(".stats.four time").first).to_have_text(start.strftime("%H:%M GMT+9"))
    switched(page, back=True)
    assert figure(page, "band-figure") == before
    assert figure(page, "heat-figure") == heat
    expect(page.locator(".stats.four time").first).to_contain_text("UTC")


def test_a_chart_drawn_after_the_switch_is_in_the_chosen_units(
    open_page: Open, address: str, demo_results: Results
) -> None:
    page = switched(settled(open_page(f"{address}/health")))
    page.goto(f"{address}/nodes/node-003")  # the browser keeps the choice
    expect(page.locator("#hours-memory .main-svg").first).to_be_visible()
    hours = {r["resource"]: r for r in demo_results.store.read_table(NODE_HISTORY, {"node": "node-003"}).rows()}
    page.wait_for_function(
        "document.querySelector('#hours-memory .js-plotly-plot')?.layout?.yaxis.title?.text === 'MiB'"
    )
    shown = trace(figure(page, "hours-memory"), "Whole node")["y"]
    assert shown == pytest.approx([v / MIB for v in hours["memory"]["total"][-len(shown) :]], rel=1e-6)
    expect(page.locator("#node-pods .amount").first).to_have_text(re.compile(r"^[\d,.]+ m$"))


@pytest.mark.soak
def test_a_workload_s_distribution_and_week_follow_and_its_export_stays_raw(
    open_page: Open, address: str, demo_results: Results
) -> None:
    page = open_page(f"{address}/workloads")
    row = max(demo_results.store.read_table(WORKLOADS).rows(), key=lambda r: r["memory_max"] or 0)
    where = {"kind": row["kind"], "workload": row["workload"], "resource": "memory"}
    (portrait,) = demo_results.store.read_table(portraits_of(row["namespace"]), where).rows()
    switched(settled(page))
    page.goto(f"{address}/workload/{row['namespace']}/{row['kind']}/{row['workload']}?show=memory")
    expect(page.locator("#spread-figure .main-svg").first).to_be_visible()
    page.wait_for_function(
        "document.querySelector('#spread-figure .js-plotly-plot')?.layout?.xaxis.ticksuffix === ' MiB'"
    )
    ladder = trace(figure(page, "spread-figure"), "Quantiles")
    assert ladder["x"] == pytest.approx([v / MIB for v in portrait["ladder"]], rel=1e-6)
    week = figure(page, "week-figure")["data"][0]["z"]
    assert week[0][9] == pytest.approx(portrait["heat"][0] / MIB, rel=1e-6)
    assert "MiB" in figure(page, "week-figure")["data"][0]["hover"]
    expect(page.locator("#week-figure .colorbar .cbtitle")).to_have_text("MiB")
    expect(page.locator(".portrait-stats .amount").first).to_have_text(re.compile(r"MiB$"))
    query = f"{address}/api/v1/workloads?ns={row['namespace']}&workload={row['workload']}&kind={row['kind']}"
    assert api(page, query)["rows"][0]["memory_max"] == row["memory_max"] > GIB


@pytest.mark.soak
def test_the_waste_ranking_and_the_forecast_follow(open_page: Open, address: str) -> None:
    page = settled(open_page(address))
    plain = figure(page, "waste-figure")["data"][0]["x"]
    switched(page)
    shown = figure(page, "waste-figure")
    assert shown["data"][0]["x"] == pytest.approx([1000 * v for v in plain])
    assert shown["x"]["ticksuffix"] == " m"
    page.keyboard.press("g")
    page.keyboard.press("f")
    expect(page.locator("#foreseen-figure .main-svg").first).to_be_visible()
    page.wait_for_function(
        "document.querySelector('#foreseen-figure .js-plotly-plot')?.layout?.yaxis.title?.text === 'millicores'"
    )
    assert figure(page, "foreseen-figure")["x"]["hoverformat"].endswith("GMT+9")


def rows_of(page: Page, name: str) -> list[list[str]]:
    """The opened table of a chart, its heading first."""
    script = """id => [...document.querySelectorAll(`details[data-figure="${id}"] tr`)]
        .map(row => [...row.cells].map(cell => cell.textContent))"""
    return list(page.evaluate(script, name))


def test_every_chart_can_be_read_as_a_table_in_the_units_that_are_shown(
    open_page: Open, address: str, demo_results: Results, axe: str
) -> None:
    page = settled(open_page(address))
    unfold(page)
    for summary in page.locator("details.as-table > summary").all():
        summary.press("Enter")  # by keyboard
    overview = demo_results.store.read_document("overview", Overview)
    assert overview is not None
    head, *rows = rows_of(page, "band-figure")
    usage, batch = head.index("Usage"), head.index("Batch could take")
    # The last hour of the history: the room for batch itself, not the upper edge of its band.
    last = [row for row in rows if row[usage] != "–"][-1]
    assert float(last[usage].replace(",", "")) == pytest.approx(overview.cpu.usage[-1] / 1000, rel=0.01)
    assert float(last[batch].replace(",", "")) == pytest.approx(overview.cpu.batch[-1] / 1000, rel=0.01)
    assert {row[head.index("Allocatable")] for row in rows} == {last[head.index("Allocatable")]}
    heat = rows_of(page, "heat-figure")
    assert len(heat) == 8 and float(heat[1][1]) == pytest.approx(100 * overview.heat[0][0], rel=0.01)
    most = max(overview.waste, key=lambda row: row.cpu_millicores)
    first = rows_of(page, "waste-figure")[1]
    assert first[0] == most.namespace and float(first[1]) == pytest.approx(most.cpu_millicores / 1000, rel=0.01)
    switched(page)
    after = rows_of(page, "band-figure")
    shown = [row for row in after[1:] if row[usage] != "–"][-1]
    assert float(shown[usage].replace(",", "")) == pytest.approx(overview.cpu.usage[-1], rel=0.01)
    assert after[0][0] == "GMT+9"
    assert serious(page, axe, "details[data-figure=heat-figure]") == []  # every table is built by one function


@pytest.mark.parametrize(
    ("path", "figures"),
    [
        pytest.param("/nodes", {"balance-figure": 8}, marks=pytest.mark.soak),
        pytest.param("/nodes/node-003", {"hours-cpu": 216, "hours-memory": 216}, marks=pytest.mark.soak),
        ("/forecast", {"foreseen-figure": 456, "coverage-figure": 20}),
    ],
)
def test_tables_of_charts_have_a_row_for_each_thing_drawn(
    open_page: Open, address: str, path: str, figures: dict[str, int]
) -> None:
    # 8 nodes; 7 days of hours and a day of half hours; 7 days of hours and a day of 288 times of five minutes, half
    # hours among them; 20 bars.
    page = open_page(address + path)
    for name, count in figures.items():
        expect(page.locator(f"#{name} .main-svg").first).to_be_visible()
        page.locator(f"details[data-figure='{name}'] > summary").click()
        expect(page.locator(f"details[data-figure='{name}'] tbody tr")).to_have_count(count)
