"""What people take with them: views kept under a name, and charts as pictures."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Open
from tests.browser.test_browsing import serious
from tests.browser.test_pages import THEMES, settled

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]
HOSTILE = "<img src=x onerror=alert(1)> 6 pm"


def saved(page: Page, name: str) -> None:
    page.get_by_text("Views", exact=True).click()
    page.locator("#view-name").fill(name)
    page.keyboard.press("Enter")
    expect(page.locator("#views-said")).to_have_text(f"Saved: {name}")


def test_a_saved_view_brings_back_page_filters_order_and_columns(open_page: Open, address: str) -> None:
    where = "recommendations?ns=pay&sort=-cpu_request&columns=namespace,workload,container,cpu_request"
    page = settled(open_page(f"{address}/{where}"))
    before = page.url
    saved(page, HOSTILE)
    page.goto(f"{address}/health")
    settled(page)
    page.get_by_text("Views", exact=True).click()
    page.get_by_role("button", name=f"Open the view {HOSTILE}").click()
    page.wait_for_url(before)
    settled(page)
    headers = "dash_ag_grid.getApi(document.querySelector('.grid').id).getAllDisplayedColumns().map(c => c.getColId())"
    # the name and what the rows are sorted by stay in sight: they are pinned before the others, which keep their order
    assert [name for name in page.evaluate(headers) if not name.startswith("ag-Grid-")] == [
        "workload",
        "cpu_request",
        "namespace",
        "container",
    ]
    # It is still there after a reload, and gone when it is forgotten.
    page.reload()
    settled(page)
    page.get_by_text("Views", exact=True).click()
    page.get_by_role("button", name=f"Forget the view {HOSTILE}").click()
    expect(page.locator("#views-said")).to_contain_text("None yet.")
    assert page.evaluate("localStorage.getItem('cotenant-views')") == "[]"


@pytest.mark.soak
def test_a_view_without_a_name_is_asked_for_one(open_page: Open, address: str) -> None:
    page = settled(open_page(f"{address}/workloads"))
    page.get_by_text("Views", exact=True).click()
    page.locator("#view-save").click()
    expect(page.locator("#views-said")).to_have_text("Give the view a name first.")
    assert page.evaluate("localStorage.getItem('cotenant-views')") is None


@pytest.mark.soak
@pytest.mark.parametrize("theme", THEMES)
def test_the_open_menu_of_views_has_no_serious_accessibility_fault(
    open_page: Open, address: str, axe: str, theme: str
) -> None:
    page = settled(open_page(f"{address}/workloads", theme=theme))
    saved(page, "mine")
    assert serious(page, axe) == []


def test_a_chart_leaves_as_a_picture_of_what_is_shown(open_page: Open, address: str) -> None:
    page = settled(open_page(address))
    chart = page.locator("#band-figure .js-plotly-plot").first
    expect(chart).to_be_visible()
    with page.expect_download() as download:
        page.locator(".png[data-figure=band-figure]").click()
    assert download.value.suggested_filename == "band-figure.png"
    data = Path(download.value.path()).read_bytes()
    width, height = struct.unpack(">II", data[16:24])
    box = chart.bounding_box()
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and box is not None
    # Twice as many pixels as on the screen: it is pasted into slides.
    assert (width, height) == pytest.approx((2 * box["width"], 2 * box["height"]), abs=2)
