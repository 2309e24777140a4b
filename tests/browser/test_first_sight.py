"""What a person sees on a laptop before the first click: few figures, whole cards, ten rows, none of which moves."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from cotenant.dashboard import pages
from cotenant.dashboard.pages import recommendations
from cotenant.recommender.model.todo import ORDERS, TodoList
from tests.browser.conftest import Open
from tests.browser.test_pages import settled
from tests.support import first_sight
from tests.support.first_sight import LAPTOP

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.xdist_group("browser")]
TOP_BAR = 52
COLUMNS = ("severity", "workload", "cpu_request", "memory_request", "saving_month", "ready")

CUT_OFF = """(names) => [...document.querySelectorAll('.ag-cell')]
  .filter((c) => names.includes(c.getAttribute('col-id')) && c.scrollWidth > c.clientWidth + 1)
  .map((c) => c.textContent)"""


def inside(page: Page, selector: str) -> bool:
    """Whether all of an element is in the window, with the page not scrolled."""
    box = page.locator(selector).bounding_box()
    assert box is not None
    return box["y"] >= 0 and box["y"] + box["height"] <= LAPTOP["height"] and page.evaluate("scrollY") == 0


@pytest.mark.parametrize("path", [entry.path for entry in pages.ALL])
def test_a_page_says_few_figures_on_first_sight_and_no_sentence_has_more_than_three(
    open_page: Open, address: str, path: str
) -> None:
    page = settled(open_page(f"{address}/{path}", size=LAPTOP))
    expect(page.locator("main .skeleton")).to_have_count(0)
    sayings = first_sight.sayings(page)
    most = first_sight.MOST_FIGURES if path else first_sight.MOST_OF_HOME
    assert sum(entry["count"] for entry in sayings) <= most, sayings
    assert [entry for entry in sayings if entry["count"] > first_sight.MOST_OF_A_SENTENCE] == []


def test_the_first_screen_of_home_has_the_three_cards_whole_and_the_day_below_them(
    open_page: Open, address: str
) -> None:
    page = settled(open_page(address, size=LAPTOP))
    for name in ("#card-risk", "#card-waste", "#card-lend", "#way-risk", "#way-waste", "#way-lend", "#band-figure"):
        assert inside(page, name), name
    assert page.locator("#band-figure .legend .traces").count() <= 5


@pytest.mark.parametrize("name", ["risk", "waste"])
def test_the_first_button_of_a_card_opens_the_list_whose_first_row_the_card_names(
    open_page: Open, address: str, name: str
) -> None:
    page = settled(open_page(address, size=LAPTOP))
    subject_name = page.locator(f"#card-{name} .card-line strong").inner_text()
    page.locator(f"#way-{name}").click()
    settled(page)
    row = page.locator(".ag-center-cols-container [row-index='0'], .ag-pinned-left-cols-container [row-index='0']")
    subject = row.locator("[col-id=workload]").first
    expect(subject.locator("[data-part=workload]")).to_have_text(subject_name.partition("/")[2])
    expect(subject.locator("[data-part=namespace]")).to_have_text(subject_name.partition("/")[0])


def test_a_list_of_risks_begins_with_the_worst() -> None:
    assert ORDERS[TodoList.RAISE][0] == "-severity"
    assert all(tab.order == ORDERS.get(tab.value, ORDERS[""]) for tab in recommendations.LIST.tabs)


def test_to_do_shows_ten_rows_high_up_with_nothing_cut_off_and_no_row_moves_when_one_is_ticked(
    open_page: Open, address: str
) -> None:
    page = settled(open_page(f"{address}/recommendations", size=LAPTOP))
    frame = page.locator("#frame-recommendations").bounding_box()
    rows = page.locator(".ag-pinned-left-cols-container .ag-row")
    first = rows.first.bounding_box()
    assert frame is not None and first is not None
    assert first["y"] - TOP_BAR <= 200
    visible_rows = [
        box for box in (row.bounding_box() for row in rows.all())
        if box and box["y"] + box["height"] <= frame["y"] + frame["height"]
    ]  # fmt: skip
    assert len(visible_rows) >= 10
    for column in COLUMNS:
        head = page.locator(f".ag-header-cell[col-id={column}]").bounding_box()
        assert head is not None and head["x"] + head["width"] <= frame["x"] + frame["width"], column
    assert page.evaluate(CUT_OFF, ["severity", "cpu_request", "memory_request", "saving_month"]) == []
    rows.first.locator("input[type=checkbox]").click()
    expect(page.locator("#selection-count")).to_have_text("1 selected")
    after = rows.first.bounding_box()
    assert after is not None and after["y"] == first["y"]
    assert page.locator("#frame-recommendations").bounding_box() == frame
