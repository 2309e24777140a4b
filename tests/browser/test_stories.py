"""A workload's portrait and the forecasts as a person meets them: reached, read, switched, left, in both themes."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect
from playwright.sync_api import TimeoutError as NotInTime

from cotenant.base.store import Store
from cotenant.base.table import Table
from cotenant.dashboard.sources.source import StoreSource
from cotenant.recommender.model.views import FORECASTS, RECOMMENDATIONS, WORKLOADS
from tests.browser.conftest import Open
from tests.support import dashboard as support
from tests.support.dashboard import Results
from tests.support.extent import full
from tests.support.pictures import pictured

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.xdist_group("browser")]
CHECKOUT = "/workload/pay/Deployment/checkout"
PAGES = {"portrait": CHECKOUT, "portrait-memory": f"{CHECKOUT}?show=memory", "forecast": "/forecast"}
THEMES = ("light", *full("dark"))
DRAWN = """() => {
    const names = [...document.querySelectorAll('.ag-row .ag-cell:is([col-id=workload], [col-id=name])')];
    const plots = [...document.querySelectorAll('.js-plotly-plot')];
    const listed = !document.querySelector('.grid-frame') || (names.length && names.every(cell => cell.textContent));
    return listed && plots.every(plot => plot.querySelector('.main-svg'));
}"""


def drawn(page: Page) -> Page:
    """Charts drawn, rows there, nothing loading."""
    expect(page.locator("[aria-busy=true]")).to_have_count(0)
    expect(page.locator("h1")).to_have_count(1)
    page.wait_for_function(DRAWN)
    return page


def enter(page: Page, cell: str, address: str) -> None:
    """Press Enter on a cell until the address follows: a grid that loads its rows once more takes the focus away."""
    for _ in range(10):
        page.locator(cell).focus()
        page.keyboard.press("Enter")
        with suppress(NotInTime):
            page.wait_for_url(re.compile(address), timeout=3_000)
            return
    raise AssertionError(f"Enter on {cell} does not lead to {address}")


TEXTS = """name => [...document.querySelectorAll(
    `.ag-row :is(.ag-cell[col-id=${name}]:not(:has([data-part])), [data-part=${name}])`)]
    .map(c => [parseInt(c.closest('.ag-row').getAttribute('row-index')), c.textContent])
    .sort((a, b) => a[0] - b[0]).map(p => p[1])"""


def cells(page: Page, name: str) -> list[str]:
    """Texts of a column in sight, top down, once there are rows and each has its text."""
    shown = f"name => {{ const t = ({TEXTS})(name); return t.length && t.every(x => x) && t; }}"
    return list(page.wait_for_function(shown, arg=name).json_value())


def wait_for_cells(page: Page, name: str, expected: list[str]) -> None:
    """Until a column shows these texts from the top: a grid may load its rows once more."""
    shown = (
        f"([name, wanted]) => {{ const t = ({TEXTS})(name); return t.length && t.every((x, i) => x === wanted[i]); }}"
    )
    page.wait_for_function(shown, arg=[name, expected])


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", ["portrait", "forecast", *full("portrait-memory")])
def test_a_page_is_drawn_without_a_serious_accessibility_fault(
    open_page: Open, address: str, axe: str, name: str, theme: str, tmp_path: Path
) -> None:
    page = drawn(open_page(address + PAGES[name], theme=theme))
    pictured(page, f"{name}-{theme}", tmp_path)
    page.evaluate("document.querySelectorAll('details.more, details.container').forEach(it => { it.open = true; })")
    page.evaluate(axe)
    shown = page.evaluate("async () => (await axe.run()).violations")
    serious = [
        (v["id"], [n["html"][:200] for n in v["nodes"]]) for v in shown if v["impact"] in ("serious", "critical")
    ]
    assert serious == []


def test_a_row_of_workloads_leads_to_its_portrait_and_escape_back_to_the_same_rows(
    open_page: Open, address: str
) -> None:
    search = "?ns=pay&kind!=Job&sort=-cpu_p95"
    page = drawn(open_page(f"{address}/workloads{search}"))
    before = cells(page, "workload")
    row = page.locator(".ag-row[row-index='1']")
    row.locator(".ag-cell[col-id=workload]").click()
    page.wait_for_url(re.compile("/workload/pay/"))
    drawn(page)
    expect(page.locator("h1")).to_have_text(before[1])
    assert page.url.endswith(search)
    expect(page.locator("#nav .nav-link.current").last).to_contain_text("Workloads")
    page.keyboard.press("Escape")
    page.wait_for_url(f"{address}/workloads{search}")
    drawn(page)
    wait_for_cells(page, "workload", before)


@pytest.mark.soak
def test_the_drawer_leads_to_the_portrait_and_back_to_the_open_drawer(open_page: Open, address: str) -> None:
    page = drawn(open_page(f"{address}/recommendations?ns=pay"))
    page.locator(".ag-row[row-index='0'] .ag-cell[col-id=workload]").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    page.locator("#to-portrait").click()
    page.wait_for_url(re.compile("/workload/pay/"))
    drawn(page)
    expect(page.locator("#back")).to_have_text("← Recommendations")
    page.locator("#back").click()
    page.wait_for_url(re.compile(r"/recommendations\?.*open="))
    expect(page.get_by_role("dialog")).to_be_visible()
    page.go_back()
    page.wait_for_url(re.compile("/workload/pay/"))
    drawn(page)


@pytest.mark.soak
def test_the_switch_is_in_the_url_and_survives_reload_and_back(open_page: Open, address: str) -> None:
    page = drawn(open_page(address + CHECKOUT))
    caption = page.locator("#story-body figcaption").first
    expect(caption).to_contain_text("CPU: mean usage")
    page.locator("#story-resource").get_by_text("Memory").click()
    page.wait_for_url(re.compile("show=memory"))
    expect(caption).to_contain_text("Memory: mean usage")
    expect(page.locator("#story-figure .ytitle")).to_have_text("GiB")
    page.reload()
    drawn(page)
    expect(caption).to_contain_text("Memory: mean usage")
    page.locator("#to-recommendations").click()
    page.wait_for_url(re.compile("/recommendations"))
    drawn(page)
    page.go_back()
    drawn(page)
    expect(caption).to_contain_text("Memory: mean usage")
    expect(page.locator("#story-resource input:checked")).to_have_value("memory")


def test_the_portrait_says_what_the_store_says(open_page: Open, address: str, demo_results: Results) -> None:
    page = drawn(open_page(address + CHECKOUT))
    document: Any = page.request.get(f"{address}/api/v1/workloads/pay/Deployment/checkout").json()
    for recommendation in document["recommendations"]:
        shown = page.locator("details.container", has=page.get_by_text(recommendation["container"]["container"]))
        for value in recommendation["values"]:
            expect(shown.first).to_contain_text(value["formula"])
    kills = sum(event["event"] == "oom-kill" for event in document["events"])
    assert kills
    expect(page.locator(".portrait-stats")).to_contain_text(f"{kills} OOM kill")
    expect(page.locator("#story-figure .yaxislayer-above, #story-figure .y2tick").first).to_be_attached()
    expect(page.locator("#story-figure")).to_contain_text("OOM kill")
    page.locator("details.more summary", has_text="Events as a table").click()
    expect(page.locator("details.more tbody tr")).to_have_count(len(document["events"]))
    assert page.locator("#copy-patch").count() == page.locator("#copy-yaml").count() == 1


def test_links_of_the_portrait_keep_to_the_workload(open_page: Open, address: str) -> None:
    page = drawn(open_page(address + CHECKOUT))
    page.locator("#to-recommendations").click()
    page.wait_for_url(re.compile("/recommendations"))
    drawn(page)
    assert set(cells(page, "workload")) == {"checkout"}


def test_a_forecast_s_band_follows_the_row_in_hand_and_the_filters_stay(open_page: Open, address: str) -> None:
    page = drawn(open_page(f"{address}/forecast?scope=workload&resource=memory&sort=-relative_wql"))
    expect(page.locator("#foreseen h2")).to_have_text("cluster demo, CPU")
    rows: Any = page.request.get(
        f"{address}/api/v1/forecasts?scope=workload&resource=memory&sort=-relative_wql"
    ).json()["rows"]
    wait_for_cells(page, "name", [row["name"] for row in rows])
    page.locator(".ag-row[row-index='1'] .ag-cell[col-id=name]").click()
    title = f"{rows[1]['namespace']}/{rows[1]['kind']}/{rows[1]['name']}, memory"
    expect(page.locator("#foreseen h2")).to_have_text(title)
    expect(page.locator("#count-forecasts")).to_contain_text(f"{len(rows)} of ")
    page.reload()
    drawn(page)
    expect(page.locator("#foreseen h2")).to_have_text(title)
    page.locator("#to-portrait").click()
    page.wait_for_url(re.compile("/workload/"))
    drawn(page)
    expect(page.locator("h1")).to_have_text(rows[1]["name"])
    expect(page.locator("#story-body figcaption").first).to_contain_text("Memory: ")
    page.keyboard.press("Escape")
    page.wait_for_url(re.compile("/forecast"))
    drawn(page)
    expect(page.locator("#foreseen h2")).to_have_text(title)
    wait_for_cells(page, "name", [row["name"] for row in rows])


@pytest.mark.soak
def test_the_worst_forecasts_are_links_to_their_bands(open_page: Open, address: str) -> None:
    page = drawn(open_page(f"{address}/forecast?resource=cpu&scope=workload"))
    link = page.locator(".worst a").first
    name = link.text_content() or ""
    link.click()
    expect(page.locator("#foreseen h2")).to_contain_text(name.split("/")[-1])
    expect(page.locator("#foreseen h2")).to_contain_text("CPU")


@pytest.mark.soak
def test_the_whole_way_works_by_keyboard(open_page: Open, address: str) -> None:
    page = drawn(open_page(address))
    page.keyboard.press("g")
    page.keyboard.press("w")
    page.wait_for_url(re.compile("/workloads$"))
    drawn(page)
    enter(page, ".ag-row[row-index='0'] .ag-cell[col-id=workload]", "/workload/")
    drawn(page)
    page.locator("#story-resource input[value=cpu]").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_url(re.compile("show=memory"))
    expect(page.locator("main")).to_contain_text("Memory: mean usage")  # drawn anew: only now may a focus stay
    page.locator("details.container summary").first.focus()
    page.keyboard.press("Enter")
    expect(page.locator("details.container").first).not_to_have_attribute("open", "")
    page.keyboard.press("Escape")
    page.wait_for_url(re.compile("/workloads$"))
    drawn(page)
    page.keyboard.press("g")
    page.keyboard.press("f")
    page.wait_for_url(re.compile("/forecast$"))
    drawn(page)
    enter(page, ".ag-row[row-index='2'] .ag-cell[col-id=name]", "open=")
    expect(page.locator("#foreseen h2")).to_contain_text("node ")


@pytest.mark.soak
def test_search_on_a_portrait_leads_to_the_workloads(open_page: Open, address: str) -> None:
    page = drawn(open_page(address + CHECKOUT))
    page.keyboard.press("/")
    page.keyboard.type("rank")
    page.wait_for_url(re.compile(r"/workloads\?q=rank"))
    expect(page.locator("h1")).to_have_text("Workloads")


@pytest.mark.parametrize("path", full(*PAGES.values()))
def test_an_empty_store_says_which_command_fills_it(open_page: Open, tmp_path: Path, path: str) -> None:
    source = StoreSource(Store(tmp_path.as_uri(), "c"), support.QUICK)
    with support.served(support.app_on(source)) as address:
        page = open_page(address + path)
        expect(page.get_by_text("cotenant scan --prometheus URL")).to_be_visible()


@pytest.mark.parametrize("path", full(*PAGES.values()))
def test_a_broken_store_is_an_error_in_words_not_a_traceback(open_page: Open, tmp_path: Path, path: str) -> None:
    (tmp_path / "c" / "results" / "overview.json").mkdir(parents=True)  # a folder where a file should be
    with support.served(support.app_on(StoreSource(Store(tmp_path.as_uri(), "c"), support.QUICK))) as address:
        page = open_page(address + path, quiet=True)
        expect(page.locator(".failed").first).to_be_visible()
        assert "Traceback" not in page.content()


def test_a_workload_nobody_knows_offers_the_search(open_page: Open, address: str) -> None:
    page = open_page(f"{address}/workload/pay/Deployment/nobody")
    expect(page.get_by_text("The results contain no workload pay/Deployment/nobody.")).to_be_visible()
    page.get_by_role("link", name="Search for the name").click()
    page.wait_for_url(re.compile(r"/workloads\?q=nobody"))


@pytest.mark.soak
def test_names_from_the_cluster_are_text_whatever_they_hold(open_page: Open, tmp_path: Path) -> None:
    nasty = "<img src=x onerror=alert(1)>/../%2e?&#"
    results = support.results(tmp_path)
    for schema, column in ((WORKLOADS, "workload"), (RECOMMENDATIONS, "workload"), (FORECASTS, "name")):
        rows = [{**row, column: nasty} for row in results.store.read_table(schema).rows()]
        results.store.write_table(Table.from_rows(schema, rows))
    row = next(iter(results.store.read_table(WORKLOADS).rows()))
    with support.served(support.app_of(results)) as address:
        name = "/".join(quote(str(row[key]), safe="") for key in ("namespace", "kind", "workload"))
        page = drawn(open_page(f"{address}/workload/{name}"))
        expect(page.locator("h1")).to_have_text(nasty)
        page.goto(f"{address}/workloads")
        drawn(page)
        page.locator(".ag-row[row-index='0'] .ag-cell[col-id=workload]").click()
        page.wait_for_url(re.compile("/workload/"))
        expect(page.locator("h1")).to_have_text(nasty)
        page.goto(f"{address}/forecast")
        drawn(page)
        assert nasty in cells(page, "name")
        assert page.locator("img[src=x]").count() == 0


@pytest.mark.soak
def test_leaving_and_coming_back_many_times_keeps_the_heap(open_page: Open, address: str) -> None:
    page = drawn(open_page(address + CHECKOUT))
    session = page.context.new_cdp_session(page)

    def heap() -> float:
        session.send("HeapProfiler.collectGarbage")
        return float(page.evaluate("performance.memory.usedJSHeapSize")) / 1e6

    def walk(times: int) -> None:
        for _ in range(times):
            # by keys it is one entry of the history; by clicks the place before it is an entry as well
            page.keyboard.press("g")
            page.keyboard.press("f")
            page.wait_for_url(re.compile("/forecast"))
            drawn(page)
            page.go_back()
            page.wait_for_url(re.compile("/workload/"))
            drawn(page)

    walk(3)  # what is loaded once
    before = heap()
    walk(10)
    assert heap() - before < 20
