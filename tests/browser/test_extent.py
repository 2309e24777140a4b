"""The top bar as a person meets it: namespaces and a time range chosen, carried from page to page, shared."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Open
from tests.browser.test_browsing import serious
from tests.browser.test_narrow import OUTSIDE, TELEPHONE
from tests.browser.test_pages import STILL, THEMES, chart_of, column, settled, wait_for_column
from tests.browser.test_stories import drawn
from tests.browser.test_views import saved
from tests.support.hands import go_to

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.xdist_group("browser")]


def choose(page: Page, name: str) -> None:
    """By keyboard: type a part of a namespace and take the first that fits."""
    page.get_by_label("Namespaces", exact=True).first.focus()
    page.keyboard.type(name)
    option = page.get_by_role("option", name=name, exact=True)
    expect(option).to_be_visible()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")


def ranged(page: Page, label: str) -> None:
    page.locator("#range").click()
    page.get_by_role("option", name=label).click()


def test_a_choice_is_in_the_address_and_holds_from_page_to_page_and_back(open_page: Open, address: str) -> None:
    page = settled(open_page(f"{address}/workloads"))
    choose(page, "pay")
    page.wait_for_url(f"{address}/workloads?ns=pay")
    wait_for_column(page, "namespace", "t === 'pay'")
    ranged(page, "Last 7 days")
    page.wait_for_url(f"{address}/workloads?ns=pay&range=7d")
    expect(page.locator("#extent-notes")).to_have_text("Time range: the figures cover the whole history.")
    # Another page, which has no namespaces, says so and lists all of its rows; the choice waits.
    go_to(page, "n")
    page.wait_for_url(f"{address}/nodes?ns=pay&range=7d")
    settled(page)
    expect(page.locator("#extent-notes")).to_contain_text("Namespace: nodes have no namespace")
    expect(page.locator("#count-nodes")).to_have_text("8 nodes")
    expect(page.locator("#trouble-nodes")).to_be_hidden()
    page.locator(".ag-row[row-index='0'] .ag-cell[col-id=node]").click()
    page.wait_for_url(re.compile(r"/nodes/[\w-]+\?ns=pay&range=7d$"))
    expect(page.locator("#hours-cpu .main-svg").first).to_be_visible()
    go_to(page, "r")
    page.wait_for_url(f"{address}/recommendations?ns=pay&range=7d")
    settled(page)
    assert set(column(page, "namespace")) == {"pay"}
    # A second namespace joins the first, and Back takes it away again, in the field as well as from the rows.
    choose(page, "shop")
    page.wait_for_url(f"{address}/recommendations?ns=pay&ns=shop&range=7d")
    wait_for_column(page, "namespace", "['pay', 'shop'].includes(t)")
    expect(page.locator(".extent .mantine-Pill-root")).to_have_text(["pay", "shop"])
    page.go_back()
    page.wait_for_url(f"{address}/recommendations?ns=pay&range=7d")
    expect(page.locator(".extent .mantine-Pill-root")).to_have_text(["pay"])
    wait_for_column(page, "namespace", "t === 'pay'")
    # The facet is the same fact: its link is chosen, and removing it there empties the field.
    chosen = page.locator(".facet-link.chosen", has_text="pay")
    expect(chosen).to_be_visible()
    chosen.click()
    page.wait_for_url(re.compile(r"/recommendations\?sort=[\w%-]+&range=7d$|/recommendations\?range=7d$"))
    expect(page.locator(".extent .mantine-Pill-root")).to_have_count(0)
    # A page about one workload has no rows to narrow: its list has, without what was of that page alone.
    page.goto(f"{address}/workload/pay/Deployment/checkout?show=memory&range=24h")
    drawn(page)
    choose(page, "shop")
    page.wait_for_url(f"{address}/workloads?ns=shop&range=24h")


def test_a_link_a_view_and_an_export_carry_the_choice(open_page: Open, address: str) -> None:
    page = settled(open_page(f"{address}/?ns=pay&range=24h"))
    expect(page.locator(".lead")).to_contain_text("of the chosen namespaces")
    expect(page.locator("#range")).to_have_value("Last 24 hours")
    shown = f"{chart_of(page, 'band-figure')}.data.find(t => t.name === 'Usage').x.length"
    assert page.evaluate(shown) == 24  # a day of hourly means
    saved(page, "pay today")
    page.keyboard.press("Escape")
    ranged(page, "Next 24 hours")
    page.wait_for_url(f"{address}/?ns=pay&range=next")
    page.wait_for_function(f"() => {shown} === 0")
    page.goto(f"{address}/workloads?ns!=pay")
    settled(page)
    expect(page.locator(".extent .mantine-Pill-root")).to_have_text("!pay")
    href = page.locator("#export-csv-workloads").get_attribute("href") or ""
    rows = page.request.get(f"{address}{href}").text().splitlines()[1:]
    assert rows and not [row for row in rows if row.startswith("pay,")]
    page.get_by_text("Views", exact=True).click()
    page.get_by_role("button", name="Open the view pay today").click()
    page.wait_for_url(f"{address}/?ns=pay&range=24h")
    expect(page.locator(".extent .mantine-Pill-root")).to_have_text("pay")


@pytest.mark.parametrize("theme", THEMES)
def test_on_a_telephone_the_bar_unfolds_without_a_serious_fault(
    open_page: Open, address: str, axe: str, theme: str
) -> None:
    page = settled(open_page(f"{address}/nodes?ns=pay&range=7d", size=TELEPHONE, theme=theme))
    expect(page.locator(".extent")).to_be_hidden()
    unfold = page.get_by_role("button", name="Filter")
    unfold.click()
    expect(unfold).to_have_attribute("aria-expanded", "true")
    expect(page.locator("#search")).to_be_in_viewport()
    page.locator("#range").click()
    expect(page.get_by_role("option", name="Next 24 hours: no forecast on this page")).to_be_visible()
    page.wait_for_function(STILL)  # contrast is judged where the list stands
    assert serious(page, axe) == []
    assert page.evaluate(OUTSIDE) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= TELEPHONE["width"]
