"""The pages as a person meets them: seen, filtered, sorted, shared, explained, driven by keyboard, in both themes."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from cotenant.base.store import Store
from cotenant.changes.decide.patches import kubectl_command
from cotenant.dashboard import pages
from cotenant.dashboard.sources.source import StoreSource
from cotenant.recommender.model.todo import ORDERS
from cotenant.recommender.model.views import RECOMMENDATIONS, Overview
from tests.browser.conftest import Open
from tests.support import dashboard as support
from tests.support.dashboard import Results
from tests.support.extent import full
from tests.support.first_sight import unfold
from tests.support.hands import go_to
from tests.support.pictures import pictured

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.xdist_group("browser")]
STILL = "() => document.getAnimations().every(a => a.playState !== 'running')"
"""Nothing slides or fades any more."""
THEMES = ("light", *full("dark"))
WASTE_FIRST = "&".join(f"sort={name}" for name in ORDERS[""])
"""The order in which recommendations come where nobody asks for another."""
SMALL = ("overview", "recommendations", "workloads")
"""The pages that `make test` reads whole: one of charts, the two widest tables."""
PAGES = {
    "overview": "/",
    "workloads": "/workloads",
    "recommendations": "/recommendations",
    "nodes": "/nodes",
    "pods": "/pods",
    "reservations": "/reservations",
    "batch": "/batch",
    "what-if": "/what-if",
    "enforcement": "/enforcement",
    "findings": "/findings",
    "health": "/health",
}
FURTHER = [path for name, path in PAGES.items() if name != "overview"]


TITLES = {page.path: page.title for page in pages.ALL}
"""Heading of each page by its path."""
FIRST_CELL = """() => {
    const part = document.querySelector('.ag-header-viewport .ag-header-cell') ? '.ag-center-cols-container' : '.grid';
    const cells = part + " [row-index='0'] .ag-cell:not([col-id^=ag-Grid])";
    return document.querySelector(cells)?.textContent; }"""
"""Text of the first row's first cell that scrolls, or that is pinned where all columns in sight are."""


def settled(page: Page) -> Page:
    """Charts drawn that are in sight, rows there, nothing loading."""
    expect(page.locator("[aria-busy=true]")).to_have_count(0)
    expect(page.locator("h1")).to_have_count(1)
    titles = "titles => document.querySelector('h1').textContent === titles[cotenant.page()]"
    page.wait_for_function(titles, arg=TITLES)
    if page.locator(".grid-frame").count():
        expect(page.locator(".ag-center-cols-container .ag-row").first).not_to_have_class(re.compile("ag-row-loading"))
        page.wait_for_function(FIRST_CELL)
    for chart in page.locator(".js-plotly-plot:not(details:not([open]) *)").all():
        expect(chart.locator(".main-svg").first).to_be_visible()
    return page


def chart_of(page: Page, figure: str) -> str:
    """Wait until plotly has drawn the figure, which may come after the page; the script that names its chart."""
    chart = f"document.querySelector('#{figure} .js-plotly-plot')"
    page.wait_for_function(f"{chart}?.data?.length > 0")
    return chart


def texts_of(name: str) -> str:
    """CSS of a column's texts; a name and its place below it are parts of one cell."""
    return f".ag-row :is(.ag-cell[col-id={name}]:not(:has([data-part])), [data-part={name}])"


def wait_for_column(page: Page, name: str, test: str) -> None:
    """Until rows are there and every cell of a column passes a JavaScript test of its text `t`."""
    cells = f"[...document.querySelectorAll('{texts_of(name)}')].map(c => c.textContent)"
    page.wait_for_function(f"(() => {{ const all = {cells}; return all.length && all.every(t => {test}); }})()")


def column(page: Page, name: str) -> list[str]:
    """Texts of a column's cells in sight, top down, once every cell has its text: the grid fills rows cell by cell."""
    script = """texts => {
        const cells = [...document.querySelectorAll(texts)]
            .map(c => [parseInt(c.closest('.ag-row').getAttribute('row-index')), c.textContent])
            .sort((a, b) => a[0] - b[0]).map(p => p[1]);
        return cells.length && cells.every(text => text) && cells;
    }"""
    return list(page.wait_for_function(script, arg=texts_of(name)).json_value())


def api(page: Page, path: str) -> Any:
    return page.request.get(path).json()


def export_of(page: Page, name: str, form: str = "csv") -> str:
    """Text of the file that a list's menu of exports saves."""
    ways = page.locator(f".export-ways:has(#export-{form}-{name})")
    ways.locator("summary").click()
    with page.expect_download() as download:
        ways.locator(f"#export-{form}-{name}").click()
    return Path(download.value.path()).read_text()


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", [*SMALL, *full(*sorted(PAGES.keys() - SMALL))])
def test_a_page_is_drawn_without_a_serious_accessibility_fault(
    open_page: Open, address: str, axe: str, name: str, theme: str, tmp_path: Path
) -> None:
    page = settled(open_page(address + PAGES[name], theme=theme))
    assert page.evaluate("document.documentElement.dataset.mantineColorScheme") == theme
    page.evaluate(axe)
    shown = page.evaluate("async () => (await axe.run()).violations")
    serious = [
        (v["id"], [n["html"][:200] for n in v["nodes"]]) for v in shown if v["impact"] in ("serious", "critical")
    ]
    assert serious == []
    pictured(page, f"{name}-{theme}", tmp_path)


def test_the_slider_of_the_risk_changes_what_is_shown(open_page: Open, address: str) -> None:
    page = settled(open_page(f"{address}/what-if"))
    lent = page.locator(".stats.four .stat-value").first
    expect(lent).to_have_text("30 cores")
    page.get_by_role("slider", name="Risk of a forecast peak").focus()
    page.keyboard.press("ArrowRight")
    expect(lent).to_have_text("40 cores")


@pytest.mark.parametrize("theme", THEMES)
def test_the_drawer_has_no_serious_accessibility_fault(
    open_page: Open, address: str, axe: str, theme: str, tmp_path: Path
) -> None:
    page = settled(open_page(f"{address}/recommendations", theme=theme))
    page.locator(".ag-row[row-index='0'] .ag-cell[col-id=workload]").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    expect(page.locator("#copy-patch, .explain .panel-note").first).to_be_visible()
    page.wait_for_function(STILL)  # contrast is judged where the drawer stands
    page.evaluate(axe)
    shown = page.evaluate("async () => (await axe.run('[role=dialog]')).violations")
    assert [v["id"] for v in shown if v["impact"] in ("serious", "critical")] == []
    pictured(page, f"explanation-{theme}", tmp_path)


def test_a_facet_filters_grid_count_totals_and_export_alike(open_page: Open, address: str) -> None:
    page = settled(open_page(f"{address}/recommendations"))
    unfold(page, ".facet")
    reasons = page.locator(".facet", has=page.get_by_role("heading", name="Reason"))
    expect(page.locator(".facet ul").first).to_be_visible()
    assert page.evaluate("[...document.querySelectorAll('.facet ul')].every(u => u.scrollHeight <= u.clientHeight)")
    expect(reasons.get_by_role("list", name="More Reason filter")).to_be_hidden()
    reasons.locator("summary.facet-more").click()
    expect(reasons.get_by_role("list", name="More Reason filter")).to_be_visible()
    page.locator(".facet-link", has_text="warning").click()
    page.wait_for_url(re.compile("severity=warning"))
    document = api(page, f"{address}/api/v1/recommendations?severity=warning&{WASTE_FIRST}")
    expect(page.locator("#count-recommendations")).to_have_text(
        f"{document['total']} of {document['of']} recommendations"
    )
    wait_for_column(page, "severity", "t === 'warning'")
    texts = column(page, "workload")
    assert texts == [row["workload"] for row in document["rows"]][: len(texts)]
    saved = csv.DictReader(io.StringIO(export_of(page, "recommendations")))
    assert [row["workload"] for row in saved] == [row["workload"] for row in document["rows"]]
    # What falls after all steps, shown with three digits.
    falls = -sum(min(row["cpu_delta_total"] or 0, 0) for row in document["rows"]) / 1000
    expect(page.locator("#total-all-steps .total-value")).to_contain_text("frees")
    shown = re.match(r"frees ([\d.,]+) cores", page.locator("#total-all-steps .total-value").text_content() or "")
    assert shown is not None and float(shown[1].replace(",", "")) == pytest.approx(falls, rel=0.005)


@pytest.mark.soak
def test_a_value_can_be_left_out_and_filters_cleared(open_page: Open, address: str) -> None:
    page = settled(open_page(f"{address}/workloads"))
    unfold(page, ".facet")
    row = page.locator(".facet-row", has_text="Deployment")
    row.hover()
    row.locator(".facet-not").click()
    page.wait_for_url(re.compile("kind!=Deployment|kind%21=Deployment"))
    wait_for_column(page, "kind", "t !== 'Deployment'")
    page.get_by_role("link", name="Clear filters").click()
    expect(page.locator("#count-workloads")).to_have_text(f"{support.SPEC.workloads} workloads")


def test_sorting_is_in_the_url_and_survives_reload_and_back(open_page: Open, address: str) -> None:
    page = settled(open_page(f"{address}/workloads"))
    page.locator(".ag-header-cell[col-id=workload]").click()
    page.wait_for_url(re.compile("sort=workload"))
    names = sorted(r["workload"] for r in api(page, f"{address}/api/v1/workloads")["rows"])
    expect(page.locator(".ag-row[row-index='0'] [data-part=workload]")).to_have_text(names[0])
    page.reload()
    settled(page)
    texts = column(page, "workload")
    assert texts == names[: len(texts)]
    go_to(page, "r")
    page.wait_for_url(re.compile("/recommendations"))
    page.go_back()
    settled(page)
    expect(page).to_have_url(re.compile("sort=workload"))
    assert column(page, "workload")[0] == names[0]


def test_a_shared_link_shows_the_same_rows_to_somebody_else(open_page: Open, address: str) -> None:
    link = f"{address}/recommendations?severity=critical&kind!=Job&sort=-memory_delta_total"
    page = settled(open_page(link, theme="dark"))  # a browser that has never been here
    expected = api(page, link.replace("/recommendations", "/api/v1/recommendations"))["rows"]
    texts = column(page, "workload")
    assert texts == [row["workload"] for row in expected][: len(texts)] != []


def test_search_narrows_by_name_and_walks_from_the_overview(open_page: Open, address: str) -> None:
    page = settled(open_page(address))
    name = api(page, f"{address}/api/v1/workloads?sort=workload")["rows"][3]["workload"]
    page.keyboard.press("/")
    page.keyboard.type(name)
    page.wait_for_url(re.compile(r"/workloads\?q="))
    expect(page.locator("#count-workloads")).to_contain_text(" of ")
    settled(page)
    assert all(name in text for text in column(page, "workload"))
    expect(page.locator("#search")).to_have_value(name)


def test_filtered_out_says_so_and_offers_the_way_back(open_page: Open, address: str) -> None:
    page = open_page(f"{address}/workloads?q=no-such-name")
    expect(page.get_by_text("No workload matches these filters.")).to_be_visible()
    expect(page.locator("[aria-busy=true]")).to_have_count(0)
    back = page.locator(".empty").get_by_role("link", name="Clear filters")
    back.focus()
    page.keyboard.press(
        "Enter"
    )  # a panel that is drawn anew may lose half of a click, a key goes to what has the focus
    page.wait_for_url(lambda url: "no-such-name" not in url)
    settled(page)


def test_an_unknown_filter_is_named_not_ignored(open_page: Open, address: str) -> None:
    page = open_page(f"{address}/workloads?patern=daily", quiet=True)
    expect(page.get_by_text("Did you mean pattern?").first).to_be_visible()


@pytest.mark.parametrize("cpu_slowdown", [1, *full(4)])
def test_a_row_explains_itself_in_a_drawer_that_the_url_holds(
    open_page: Open, address: str, demo_results: Results
) -> None:
    page = settled(open_page(f"{address}/recommendations?severity=critical"))
    row = api(page, f"{address}/api/v1/recommendations?severity=critical&{WASTE_FIRST}")["rows"][0]
    page.locator(".ag-row[row-index='0'] .ag-cell[col-id=workload]").click()
    drawer = page.get_by_role("dialog")
    expect(drawer).to_contain_text(f"{row['namespace']} / {row['workload']} / {row['container']}")
    page.wait_for_url(re.compile("open="))
    recommendation = StoreSource(demo_results.store, support.QUICK).explain(
        row["namespace"], row["kind"], row["workload"], row["container"]
    )
    assert recommendation is not None
    for value in recommendation.values:
        expect(drawer).to_contain_text(value.formula)
    expect(drawer.locator("pre.command")).to_have_text(kubectl_command(recommendation))
    page.reload()
    expect(page.get_by_role("dialog")).to_contain_text(row["workload"])
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page).not_to_have_url(re.compile("open="))
    settled(page)


def test_the_whole_way_works_by_keyboard(open_page: Open, address: str) -> None:
    page = settled(open_page(address))
    page.keyboard.press("Tab")
    expect(page.get_by_text("Skip to content")).to_be_focused()
    page.keyboard.press("g")
    page.keyboard.press("w")
    page.wait_for_url(re.compile("/workloads$"))
    settled(page)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("search")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("g")
    page.keyboard.press("r")
    page.wait_for_url(re.compile("/recommendations$"))
    settled(page)
    page.locator(".ag-row[row-index='0'] .ag-cell[col-id=workload]").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()


def test_the_theme_is_kept_and_grid_and_charts_follow(open_page: Open, address: str) -> None:
    page = settled(open_page(address))

    def ink() -> str:
        tick = page.locator("#band-figure .ytick text").first  # waited for: a figure draws its axes in its own time
        return str(tick.evaluate("e => getComputedStyle(e).fill"))

    light = ink()
    page.keyboard.press("t")
    page.wait_for_function("document.documentElement.dataset.mantineColorScheme === 'dark'")
    assert ink() != light
    page.reload()
    settled(page)
    assert page.evaluate("document.documentElement.dataset.mantineColorScheme") == "dark"
    go_to(page, "w")
    settled(page)
    ground = page.evaluate("getComputedStyle(document.querySelector('.ag-root-wrapper')).backgroundColor")
    assert sum(map(int, re.findall(r"\d+", ground)[:3])) < 200


@pytest.mark.soak
def test_columns_can_be_chosen_and_are_remembered(open_page: Open, address: str) -> None:
    page = settled(open_page(f"{address}/workloads"))
    assert page.locator(".ag-header-cell[col-id=restarts]").count() == 0
    page.locator(".list-head .chooser > summary", has_text="Columns").click()
    page.get_by_label("Restarts", exact=True).check()
    page.get_by_label("Kind", exact=True).uncheck()
    page.keyboard.press("Escape")
    expect(page.locator(".ag-header-cell[col-id=kind]")).to_have_count(0)
    page.reload()
    settled(page)
    expect(page.locator(".ag-header-cell[col-id=kind]")).to_have_count(0)
    shown = page.evaluate("dash_ag_grid.getApi('grid-workloads').getAllDisplayedColumns().map(c => c.getColId())")
    assert "restarts" in shown


def test_scrolling_loads_rows_in_blocks(open_page: Open, address: str) -> None:
    page = settled(open_page(f"{address}/workloads?sort=workload"))
    names = [r["workload"] for r in api(page, f"{address}/api/v1/workloads?sort=workload")["rows"]]
    page.evaluate("dash_ag_grid.getApi('grid-workloads').ensureIndexVisible(79, 'bottom')")
    page.wait_for_function("document.querySelector('.ag-row[row-index=\"79\"] .ag-cell[col-id=workload]')?.textContent")
    assert column(page, "workload")[-1] == names[-1]


def test_newer_results_appear_on_an_open_page(open_page: Open, tmp_path: Path) -> None:
    results = support.results(tmp_path)
    overview = results.store.read_document("overview", Overview)
    assert overview is not None
    with support.served(support.app_of(results)) as address:
        page = settled(open_page(address))
        page.locator("#home-numbers > summary").click()
        expect(page.locator(".lead")).to_be_visible()
        page.locator("#card-waste .more > summary").click()  # one without an id of its own
        expect(page.locator("#card-waste .card-detail")).to_be_visible()
        drawn = page.locator("#card-waste").element_handle()
        newer = replace(overview, nodes=123, computed_seconds=overview.computed_seconds + 60)
        results.store.write_document("overview", newer)
        expect(page.locator(".lead").get_by_text("123 nodes")).to_be_visible()  # what was unfolded stays so
        expect(page.locator(".home-more[open]")).to_have_count(1)
        assert not drawn.evaluate("it => it.isConnected")
        expect(page.locator("#overview-body .more[open]")).to_have_count(1)
        expect(page.locator("#card-waste .card-detail")).to_be_visible()


@pytest.mark.soak
def test_old_data_carry_a_banner(open_page: Open, tmp_path: Path) -> None:
    results = support.results(tmp_path, demo=False)
    with support.served(support.app_of(results, age_seconds=2 * 3600)) as address:
        page = settled(open_page(address))
        expect(page.locator(".chip.tone-red", has_text="data 2 h old")).to_be_visible()
        expect(page.locator(".banner")).to_contain_text("Stale.")
        expect(page.get_by_text("DEMO data")).to_have_count(0)


LIVE = {"/enforcement": "cotenant node enforcement gather", "/changes": "cotenant dashboard --act"}
"""Pages that need no scan, and the command that helps there."""


@pytest.mark.parametrize("path", [PAGES["overview"], *full(*FURTHER)])
def test_an_empty_store_says_which_command_fills_it(open_page: Open, tmp_path: Path, path: str) -> None:
    source = StoreSource(Store(tmp_path.as_uri(), "c"), support.QUICK)
    with support.served(support.app_on(source)) as address:
        page = open_page(address + path)
        expect(page.get_by_text(LIVE.get(path, "cotenant scan --prometheus URL")).first).to_be_visible()


@pytest.mark.parametrize("path", [PAGES["overview"], *full(*FURTHER)])
def test_a_broken_store_is_an_error_in_words_not_a_traceback(open_page: Open, tmp_path: Path, path: str) -> None:
    store = Store(tmp_path.as_uri(), "c")
    source = StoreSource(store, support.QUICK)
    (tmp_path / "c" / "results").mkdir(parents=True)
    (tmp_path / "c" / "results" / "overview.json").mkdir()  # a folder where a file should be
    with support.served(support.app_on(source)) as address:
        page = open_page(address + path, quiet=True)
        expect(page.locator(".failed").first).to_be_visible()
        assert "Traceback" not in page.content()


@pytest.mark.soak
def test_names_from_the_cluster_are_text_whatever_they_hold(open_page: Open, tmp_path: Path) -> None:
    from cotenant.base.table import Table

    nasty = "<img src=x onerror=alert(1)>"
    results = support.results(tmp_path)
    rows = [{**row, "namespace": nasty, "workload": nasty} for row in results.store.read_table(RECOMMENDATIONS).rows()]
    results.store.write_table(Table.from_rows(RECOMMENDATIONS, rows))
    with support.served(support.app_of(results)) as address:
        page = settled(open_page(f"{address}/recommendations"))
        assert column(page, "workload")[0] == nasty
        unfold(page, ".facet")
        expect(page.locator(".facet-word", has_text=nasty)).to_be_visible()
        assert page.locator("img[src=x]").count() == 0


@pytest.mark.soak
def test_dash_s_own_bundle_stands_in_for_the_small_one(
    open_page: Open, demo_results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    import cotenant.dashboard.app

    assets = tmp_path / "assets"
    shutil.copytree(cotenant.dashboard.app.ASSETS, assets, ignore=shutil.ignore_patterns("plotly-cartesian*"))
    monkeypatch.setattr(cotenant.dashboard.app, "ASSETS", assets)
    with support.served(support.app_of(demo_results)) as address:
        page = settled(open_page(address))
        assert "plotly-cartesian" not in page.content()
        unfold(page)
        expect(page.locator("#heat-figure .main-svg").first).to_be_visible()


@pytest.mark.parametrize("name", ["overview", *full(*sorted(PAGES.keys() - {"overview"}))])
def test_the_small_bundle_and_no_enterprise_grid_are_loaded(
    open_page: Open, address: str, chromium: Any, name: str
) -> None:
    from cotenant.dashboard.app import ASSETS

    if not (ASSETS / "plotly-cartesian.min.js").exists():
        pytest.skip("the small plotly bundle was not fetched")
    page = chromium.new_page(bypass_csp=True)
    loaded: list[str] = []
    page.on("request", lambda request: loaded.append(request.url))
    for path in ("/workloads", PAGES[name]):
        page.goto(address + path)
        settled(page)
    page.close()
    assert any("plotly-cartesian" in url for url in loaded)
    assert not any("async-enterprise" in url or "package_data/plotly.min" in url for url in loaded)
    assert all(url.startswith((address, "data:", "blob:")) for url in loaded)
