"""The pages on a telephone and on a laptop: what is drawn fits, and every button of the bar can be reached."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Open
from tests.browser.test_pages import settled
from tests.support.extent import full

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.xdist_group("browser")]
TELEPHONE = {"width": 390, "height": 844}
OUTSIDE = """() => [...document.querySelectorAll('.top button, .top summary, .page-head > *')]
    .filter(e => e.getBoundingClientRect().right > innerWidth).map(e => e.id || e.textContent)"""
BROKEN = """() => [...document.querySelectorAll('.facts th[scope=col]')].filter(e => {
    const range = document.createRange(); range.selectNodeContents(e);
    return range.getClientRects().length > e.textContent.trim().split(/\\s+/).length }).map(e => e.textContent)"""
"""Headings drawn on more lines than they have words."""


LAPTOPS = ((1440, 900), (1366, 768))
FITS = "() => document.documentElement.scrollWidth <= document.documentElement.clientWidth"


@pytest.mark.parametrize("path", ["/", "/recommendations", *full("/nodes", "/reservations", "/batch", "/enforcement")])
def test_nothing_is_off_a_narrow_screen_and_no_page_scrolls_sideways_on_a_laptop(
    address: str, open_page: Open, path: str
) -> None:
    page = settled(open_page(f"{address}{path}", size=TELEPHONE))
    expect(page.locator("#help-button")).to_be_in_viewport()
    assert page.evaluate(OUTSIDE) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= TELEPHONE["width"]
    for width, height in LAPTOPS:
        page.set_viewport_size({"width": width, "height": height})
        assert page.wait_for_function(FITS).json_value()
    if path == "/recommendations":
        page.set_viewport_size(SMALL_LAPTOP)
        assert cut_headings(page) == []


def test_no_word_of_a_heading_is_broken_in_two(address: str, open_page: Open) -> None:
    page = settled(open_page(f"{address}/batch", size=TELEPHONE))
    expect(page.locator(".facts th[scope=col]").first).to_be_visible()
    assert page.evaluate(BROKEN) == []
    page.set_viewport_size({"width": 1440, "height": 900})
    assert page.evaluate(BROKEN) == []


SMALL_LAPTOP = {"width": 1280, "height": 800}
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
