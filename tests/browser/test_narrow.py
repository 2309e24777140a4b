"""The pages on a telephone and on a laptop: what is drawn fits, and every button of the bar can be reached."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, ViewportSize, expect
from playwright.sync_api import TimeoutError as NotInTime

from cotenant.base.reasons import Reason
from cotenant.dashboard import pages
from cotenant.dashboard.figures.band import IN_LEGEND
from cotenant.dashboard.figures.display import label
from tests.browser.conftest import Open
from tests.browser.test_browsing import serious
from tests.browser.test_pages import STILL, api, settled, wait_for_column
from tests.browser.test_stories import drawn
from tests.support.extent import full
from tests.support.first_sight import unfold
from tests.support.page_sweep import MISFITS, SIDEWAYS
from tests.support.pictures import pictured

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.xdist_group("browser")]
TELEPHONE: ViewportSize = {"width": 390, "height": 844}
OUTSIDE = """() => [...document.querySelectorAll('.top button, .top summary, .page-head > *')]
    .filter(e => e.getBoundingClientRect().right > innerWidth).map(e => e.id || e.textContent)"""
ALL_PATHS = tuple(page.path for page in pages.ALL if not page.parent)
BROKEN = """() => [...document.querySelectorAll('.facts th[scope=col]')].filter(e => {
    const range = document.createRange(); range.selectNodeContents(e);
    return range.getClientRects().length > e.textContent.trim().split(/\\s+/).length }).map(e => e.textContent)"""
"""Headings drawn on more lines than they have words."""
SHREDDED = """() => [...document.querySelectorAll('.terms td')].filter(e => {
    const range = document.createRange(); range.selectNodeContents(e);
    const lines = new Set([...range.getClientRects()].map(box => box.top));
    return lines.size > e.textContent.trim().split(/\\s+/).length }).map(e => `shredded: ${e.textContent}`)"""
"""Amounts of a formula that are broken within a word."""


LAPTOPS = ((1366, 768), (1440, 900))
PAGES_OF_LAPTOPS = (
    "/workloads", "/nodes", "/pods", "/reservations", "/batch", "/enforcement", "/findings", "/health", "/forecast",
    "/workload/pay/Deployment/checkout",
)  # fmt: skip


def misfits(page: Page) -> list[str]:
    """On either laptop: a page that scrolls sideways, filters with a scrollbar of their own, headlines that are cut."""
    problems = []
    for width, height in LAPTOPS:
        page.set_viewport_size({"width": width, "height": height})
        with suppress(NotInTime):  # charts fit themselves to a new size in their own time
            page.wait_for_function(f"() => innerWidth === {width} && !({MISFITS})().length", timeout=5_000)
        problems += [f"{width}: {problem}" for problem in page.evaluate(MISFITS)]
    return problems


@pytest.mark.parametrize("theme", ["light", *full("dark")])
@pytest.mark.parametrize("path", ["/", "/recommendations", *full(*PAGES_OF_LAPTOPS)])
def test_a_laptop_with_scrollbars_shows_a_page_whole(address: str, open_page: Open, path: str, theme: str) -> None:
    page = open_page(f"{address}{path}", theme=theme)
    drawn(page) if path.startswith("/workload/") else settled(page)
    assert misfits(page) == []
    if path == "/":  # it is longer than the window, and its scrollbar takes room as people's do
        page.wait_for_function("innerWidth - document.documentElement.clientWidth > 0")
    if path == "/recommendations":
        page.set_viewport_size(SMALL_LAPTOP)
        assert cut_headings(page) == []


def test_filters_that_are_longer_than_the_window_give_the_page_no_scrollbar(address: str, open_page: Open) -> None:
    width, height = LAPTOPS[0]
    page = settled(open_page(f"{address}/recommendations", size={"width": width, "height": height}))
    unfold(page, ".facet")
    filters = page.locator("#facets-recommendations")
    assert filters.evaluate("e => e.scrollHeight > e.clientHeight")
    assert page.evaluate(MISFITS) == []
    last = filters.locator(".facet-link:visible").last
    last.focus()  # by keyboard, as by the wheel, every filter can be reached
    expect(last).to_be_in_viewport()


def test_a_list_among_other_parts_turns_its_pages_by_key_and_by_button(address: str, open_page: Open) -> None:
    page = settled(open_page(f"{address}/forecast"))
    range_shown = page.locator(".ag-paging-row-summary-panel")
    total = api(page, f"{address}/api/v1/forecasts?limit=1")["total"]
    range_shown.scroll_into_view_if_needed()  # a list out of sight is not laid out: its pages hold 100 rows until then
    expect(range_shown).to_have_text(re.compile(rf"^\s*1 to (?!100 )\d+ of {total}\s*$"))
    rows = int((range_shown.text_content() or "").split()[2])
    assert 5 < rows < total
    assert page.locator(".ag-body-vertical-scroll-viewport").is_hidden()
    page.keyboard.press("j")  # stands on the first row
    focused = page.locator(".ag-row-focus").first
    expect(focused).to_have_attribute("row-index", "0")
    for row in range(1, rows + 1):  # so the last one is on the next page
        page.keyboard.press("j")
        expect(focused).to_have_attribute("row-index", str(row))
    expect(range_shown).to_have_text(re.compile(rf"^\s*{rows + 1} to"))
    page.get_by_role("button", name="Previous Page").click()
    expect(range_shown).to_have_text(re.compile(r"^\s*1 to"))


SMALL_WINDOW: ViewportSize = {"width": 1024, "height": 700}
ACROSS = """() => {
    const boxes = name => [...document.querySelectorAll(`${name} > *`)].map(e => e.getBoundingClientRect());
    const meet = (a, b) => a.right > b.left && b.right > a.left && a.bottom > b.top && b.bottom > a.top;
    return boxes('.selection-sums').some(a => boxes('.selection-acts').some(b => meet(a, b))); }"""
"""Whether a button of the bar of selected rows covers one of its texts."""


@pytest.mark.parametrize("path", ["/changes", "/recommendations"])
def test_a_small_window_cuts_no_chip_and_covers_no_text(address: str, open_page: Open, path: str) -> None:
    page = settled(open_page(f"{address}{path}", size=SMALL_WINDOW))
    assert [text for text in page.evaluate(MISFITS) if text.startswith(("page:", "cut:"))] == []
    assert page.evaluate(ACROSS) is False


@pytest.mark.parametrize("theme", ["light", *full("dark")])
def test_nothing_is_off_a_narrow_screen(address: str, open_page: Open, axe: str, theme: str) -> None:
    page = open_page(address, size=TELEPHONE, theme=theme)
    for path in ("/workload/pay/Deployment/checkout", "/nodes/node-003", "/reservations", "/"):
        page.goto(f"{address}{path}")
        assert off_telephone(drawn(page)) == [], path
        assert serious(page, axe) == [], path


PLOT_SHARE = """() => {
    const [plot, chart] = ["#band .bglayer .bg, #band .nsewdrag", "#band .js-plotly-plot"]
        .map((name) => document.querySelector(name).getBoundingClientRect());
    return plot.height / chart.height; }"""


UNSIGNED = """() => [...document.querySelectorAll('#band .chart-names li')].filter(li => {
    const sign = li.querySelector('.swatch'), style = getComputedStyle(sign), box = sign.getBoundingClientRect();
    const clear = colour => /, 0\\)$|transparent/.test(colour);
    const seen = style.borderTopStyle !== 'none' ? !clear(style.borderTopColor) : !clear(style.backgroundColor);
    return !box.width || !box.height || !seen }).map(li => li.textContent)"""
"""Names below a chart without a sign that can be seen."""


def test_a_telephone_names_a_chart_s_lines_below_it_and_a_laptop_above(
    address: str, open_page: Open, axe: str, tmp_path: Path
) -> None:
    page = drawn(open_page(f"{address}/", size=TELEPHONE))
    legend, names = page.locator("#band .js-plotly-plot .legend .traces"), page.locator("#band .chart-names")
    expect(legend).to_have_count(0)
    expect(names.locator("li")).to_have_count(len(IN_LEGEND))
    for name in IN_LEGEND:
        expect(names).to_contain_text(name)
    assert page.evaluate(UNSIGNED) == []
    chart, below = page.locator("#band .js-plotly-plot").bounding_box(), names.bounding_box()
    assert chart and below and below["y"] >= chart["y"] + chart["height"]
    assert serious(page, axe, "#band") == []
    pictured(page, "names-narrow", tmp_path)
    # Of the chart's height the margins above and below take 62 pixels, with eight names above a third was left.
    assert page.evaluate(PLOT_SHARE) > 0.6
    page.set_viewport_size({"width": 1440, "height": 900})
    expect(legend).to_have_count(len(IN_LEGEND))
    expect(names).to_be_hidden()


def off_telephone(page: Page) -> list[str]:
    """What lies outside a telephone's window, and what scrolls sideways in it."""
    expect(page.locator("#help-button")).to_be_in_viewport()
    return [*page.evaluate(OUTSIDE), *page.evaluate(SIDEWAYS), *page.evaluate(SHREDDED)]


@pytest.mark.soak
def test_no_other_page_scrolls_sideways_on_a_telephone(address: str, open_page: Open) -> None:
    page = open_page(address, size=TELEPHONE)
    for text in (path for path in ALL_PATHS if path not in ("", "reservations")):
        page.goto(f"{address}/{text}")
        assert off_telephone(settled(page)) == [], text


@pytest.mark.parametrize("theme", ["light", *full("dark")])
def test_filters_of_a_list_unfold_on_a_telephone_and_filter(
    address: str, open_page: Open, axe: str, theme: str, tmp_path: Path
) -> None:
    page = settled(open_page(f"{address}/findings", size=TELEPHONE, theme=theme))
    filters, fold = page.locator("#facets-findings"), page.get_by_text("Filters of the list")
    expect(filters).to_be_hidden()
    fold.click()
    unfold(page, ".facet")
    warnings = filters.locator(".facet-link", has_text="warning")
    expect(warnings).to_be_visible()
    assert off_telephone(page) == []
    assert serious(page, axe) == []
    pictured(page, f"filters-narrow-{theme}", tmp_path)
    warnings.click()
    expect(page).to_have_url(re.compile("severity=warning"))
    expect(filters.locator(".facet-link.chosen")).to_contain_text("warning")
    document = api(page, f"{address}/api/v1/findings?severity=warning")
    assert 0 < document["total"] < document["of"]
    expect(page.locator("#count-findings")).to_have_text(f"{document['total']} of {document['of']} findings")
    wait_for_column(page, "severity", "t === 'warning'")
    assert off_telephone(page) == []
    fold.click()
    expect(filters).to_be_hidden()


def test_no_word_of_a_heading_is_broken_in_two(address: str, open_page: Open) -> None:
    page = settled(open_page(f"{address}/batch", size=TELEPHONE))
    expect(page.locator(".facts th[scope=col]").first).to_be_visible()
    assert page.evaluate(BROKEN) == []
    page.set_viewport_size({"width": 1440, "height": 900})
    assert page.evaluate(BROKEN) == []


SMALL_LAPTOP: ViewportSize = {"width": 1280, "height": 800}
CUT = """() => [...document.querySelectorAll('.grid .ag-header-cell-text')].filter(e => e.offsetWidth &&
    (e.scrollWidth > e.clientWidth + 1 || e.scrollHeight > e.closest('.ag-header-cell').clientHeight))
    .map(e => e.textContent)"""
"""Headings of a list that lose their end."""


def cut_headings(page: Page) -> list[str]:
    expect(page.locator(".grid .ag-header-cell-text").filter(has_text=re.compile(r"\w")).first).to_be_visible()
    headings: list[str] = page.evaluate(CUT)
    return headings


@pytest.mark.parametrize("path", full("/workloads", "/nodes", "/pods"))
def test_no_heading_of_a_list_is_cut(address: str, open_page: Open, path: str) -> None:
    assert cut_headings(settled(open_page(f"{address}{path}", size=SMALL_LAPTOP))) == []


PARTED = """() => [...document.querySelectorAll('.inputs td, .facts .whole')].filter(e => {
    const range = document.createRange(); range.selectNodeContents(e);
    const tops = [...range.getClientRects()].map(box => Math.round(box.top));
    return /^[\\d.,]+ \\S+$/.test(e.textContent) && new Set(tops).size > 1; }).map(e => e.textContent)"""
"""Amounts whose number stands on another line than its unit."""


def test_an_amount_stands_on_one_line_with_its_unit(address: str, open_page: Open) -> None:
    page = drawn(open_page(f"{address}/workload/pay/Deployment/checkout"))
    expect(page.locator(".container[open] .inputs td").first).to_be_visible()
    assert page.evaluate(PARTED) == []


FORECAST_REASONS = (
    Reason.OK, Reason.NO_DATA, Reason.STALE, Reason.FROM_PORTRAIT, Reason.SHORT_RECORD, Reason.NO_PEAK,
    Reason.FEW_TESTED_DAYS,
)  # fmt: skip
WRITTEN = "(chip, text) => { chip.textContent = text; return chip.scrollWidth - chip.clientWidth; }"
"""How many pixels a chip would lack for a text."""


def test_a_forecast_s_reason_is_never_cut_whichever_it_is(address: str, open_page: Open) -> None:
    width, height = LAPTOPS[0]
    page = settled(open_page(f"{address}/forecast", size={"width": width, "height": height}))
    chip = page.locator(".ag-cell[col-id=reason] .chip").first
    lacking = {reason: chip.evaluate(WRITTEN, label(reason)) for reason in FORECAST_REASONS}
    assert lacking == dict.fromkeys(FORECAST_REASONS, 0)


DIALOGS = {"Keyboard": "#help-button", "Units and time zone": "#display-button"}
"""Those of every page: title, and the button that opens it."""
MENUS = (
    "#views > summary", ".me > summary", ".list-head .export-ways > summary",
    ".list-head .chooser:not(.export-ways) > summary",
)  # fmt: skip
"""Those above a list."""


@pytest.mark.parametrize("theme", ["light", *full("dark")])
def test_dialogs_and_menus_of_every_page_fit_and_have_no_serious_fault(
    address: str, open_page: Open, axe: str, theme: str
) -> None:
    page = settled(open_page(f"{address}/recommendations?ns=pay", theme=theme))
    for size in (TELEPHONE, {"width": LAPTOPS[0][0], "height": LAPTOPS[0][1]}):
        page.set_viewport_size({"width": size["width"], "height": size["height"]})
        for title, button in DIALOGS.items():
            page.locator(button).click()
            sound(page, page.get_by_role("dialog", name=title), axe, "[role=dialog]")
            page.keyboard.press("Escape")
            expect(page.get_by_role("dialog", name=title)).to_be_hidden()
        for menu in MENUS:
            page.locator(menu).click()
            sound(page, page.locator(menu).locator("xpath=following-sibling::*"), axe, f"{menu} + *")
            page.keyboard.press("Escape")
        page.locator(".ag-row[row-index='0'] .ag-cell[col-id=workload]").click()
        expect(page.locator(".explain .value").first).to_be_visible()
        sound(page, page.get_by_role("dialog", name="Recommendation"), axe, "html")
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog", name="Recommendation")).to_be_hidden()


def sound(page: Page, opened: Locator, axe: str, part: str) -> None:
    """What is open stands still inside of the window, and axe finds nothing serious in `part`, a selector."""
    expect(opened).to_be_visible()
    page.wait_for_function(STILL)  # contrast is judged where it stands
    box = opened.bounding_box()
    assert box is not None and box["x"] >= 0
    assert box["x"] + box["width"] <= page.evaluate("innerWidth")
    assert serious(page, axe, part) == []
