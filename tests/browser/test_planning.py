"""The planning pages in a browser: a plan from the row to its commands, a job from the form to its windows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from cotenant.base.table import Table
from cotenant.recommender.model.views import PLANS
from tests.browser.conftest import Open
from tests.browser.test_browsing import serious
from tests.browser.test_pages import THEMES, settled
from tests.dashboard.test_reservations_page import plan
from tests.support import dashboard as support
from tests.support import first_sight
from tests.support.dashboard import Results
from tests.support.extent import full

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.xdist_group("browser")]


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Results with plans of every state, among them names that try to be markup."""
    results: Results = support.results(tmp_path_factory.mktemp("planned"))
    rows: list[dict[str, Any]] = [
        plan("checkout", 10, 20, 6),
        plan("web", 14, 22, 900, namespace="shop"),
        plan("<img src=x onerror=alert(1)>", 30, 44, 4, reason="no-skill"),
        plan("even", 0, 0, 0, reason="no-window", start=None, end=None),
    ]
    results.store.write_table(Table.from_rows(PLANS, rows))
    with support.served(support.app_of(results)) as address:
        yield address


def test_a_plan_is_reached_by_keyboard_and_its_commands_stand_there(open_page: Open, planned: str) -> None:
    page = settled(open_page(planned))
    page.keyboard.press("g")
    page.keyboard.press("v")
    page.wait_for_url(f"{planned}/reservations")
    settled(page)
    expect(page.locator("#plan-hand h2").first).to_have_text("pay/Deployment/checkout")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/reservations?open=shop%2FDeployment%2Fweb")
    expect(page.locator("#plan-commands")).to_contain_text("cotenant reservations approve shop/deployment-web --yes")
    # Another browser opens the same plan from the address.
    other = settled(open_page(page.url))
    expect(other.locator("#plan-hand h2").first).to_have_text("shop/Deployment/web")


@pytest.mark.soak
def test_a_plan_leads_to_its_forecast_and_its_portrait_and_back(open_page: Open, address: str) -> None:
    page = settled(open_page(f"{address}/reservations"))
    name = page.locator("#plan-hand h2").first.text_content() or ""
    page.locator("#to-portrait").click()
    expect(page.locator("h1")).to_have_text(name.split("/")[-1])
    page.locator("#back").click()
    page.wait_for_url(f"{address}/reservations")
    settled(page)
    page.locator("#to-forecast").click()
    page.wait_for_url("**/forecast?open=*")
    expect(page.locator("#foreseen h2").first).to_have_text(f"{name}, CPU")


@pytest.mark.soak
def test_filters_reach_the_day_and_markup_stays_text(open_page: Open, planned: str) -> None:
    page = settled(open_page(f"{planned}/reservations"))
    expect(page.locator("#plans-figure")).to_contain_text("4 pods, no better than last week")
    first_sight.unfold(page, "#plan-day .more")
    # 900 pods of two cores are more than the eight nodes have free.
    expect(page.locator("#lane-figure")).to_contain_text("conflict")
    expect(page.locator("#withheld")).to_contain_text("no-window")
    assert page.locator("img[src=x]").count() == 0
    page.get_by_role("link", name="no-skill").first.click()
    expect(page.locator("#plan-day figcaption").first).to_contain_text("0 proposed, 1 not proposed")
    expect(page.locator("#plan-hand")).to_contain_text("not proposed: no better than last week")


@pytest.mark.soak
def test_the_day_reads_as_a_table(open_page: Open, planned: str) -> None:
    page = settled(open_page(f"{planned}/reservations"))
    page.locator(".as-table[data-figure=plans-figure] summary").click()
    table = page.locator(".as-table[data-figure=plans-figure] table")
    expect(table.locator("th[scope=row]")).to_have_text(
        ["pay/checkout", "shop/web", "pay/<img src=x onerror=alert(1)>"]
    )
    expect(table.locator("tbody tr").first).to_contain_text("Thu 19 Nov 17:00")


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("path", ["reservations", *full("batch?cores=4000")])
def test_full_pages_and_refusals_have_no_serious_accessibility_fault(
    open_page: Open, planned: str, axe: str, theme: str, path: str
) -> None:
    page = settled(open_page(f"{planned}/{path}", theme=theme))
    for details in page.locator("details.more summary").all():
        details.evaluate("it => { it.parentElement.open = true; }")
    assert serious(page, axe) == []


def windows(page: Page) -> list[str]:
    return page.locator("#fit-windows tbody th").all_text_contents()


def test_a_job_is_fitted_as_its_size_is_typed_and_the_address_holds_it(open_page: Open, planned: str) -> None:
    page = settled(open_page(f"{planned}/batch"))
    expect(page.locator("#fit-verdict")).to_contain_text("such pods, on")
    before = page.locator("#fit-verdict").inner_text()
    page.get_by_label("Cores of a pod").fill("20")
    page.keyboard.press("Tab")
    expect(page.locator("#fit-verdict")).not_to_have_text(before)
    assert "cores=20" in page.url
    texts = windows(page)
    assert texts
    shared = settled(open_page(page.url))
    expect(shared.get_by_label("Cores of a pod")).to_have_value("20")
    assert windows(shared) == texts
    page.get_by_label("Cores of a pod").fill("4000")
    page.keyboard.press("Tab")
    expect(page.locator("#fit-verdict")).to_contain_text("No node can take")


@pytest.mark.soak
def test_a_charted_day_follows_units_and_zone(open_page: Open, planned: str, tmp_path: Path) -> None:
    page = settled(open_page(f"{planned}/reservations"))
    page.locator("#display-button").click()
    page.locator("#zone").get_by_text("this browser's").click()
    page.keyboard.press("Escape")
    page.locator(".as-table[data-figure=plans-figure] summary").click()
    # Tokyo is nine hours ahead of 17:00 UTC.
    row = page.locator(".as-table[data-figure=plans-figure] tbody tr").first
    expect(row).to_contain_text("Fri 20 Nov 02:00")
    page.screenshot(path=tmp_path / "reservations.png")
    assert (tmp_path / "reservations.png").stat().st_size > 10_000
