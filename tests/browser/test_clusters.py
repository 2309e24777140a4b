"""Several clusters in a browser: from the table of all to one, and by the top bar to the same page of another."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec
import pytest
from playwright.sync_api import expect

from cotenant.dashboard.commands.dashboard import ServedCluster, application
from cotenant.settings import Settings
from tests.browser.conftest import Open
from tests.browser.test_narrow import TELEPHONE, off_telephone
from tests.browser.test_pages import settled
from tests.support.clusters import copies
from tests.support.dashboard import QUICK, served
from tests.support.page_sweep import SIDEWAYS

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]


@pytest.fixture
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = Settings(dashboard=msgspec.structs.replace(QUICK, base_path="/"))
    stores = copies(tmp_path_factory.mktemp("clusters"), "east", "west")
    with served(application([ServedCluster(store, settings, {}) for store in stores])) as address:
        yield address


def test_a_telephone_reaches_every_button_beside_the_switch_and_the_table_of_all(url: str, open_page: Open) -> None:
    page = open_page(f"{url}/", size=TELEPHONE)
    expect(page.get_by_role("link", name="west")).to_be_in_viewport()
    assert page.evaluate(SIDEWAYS) == []
    page.goto(f"{url}/clusters/west/")
    assert off_telephone(settled(page)) == []
    switch, unfold = (page.locator(name).bounding_box() for name in ("#clusters summary", "#unfold"))
    assert switch and unfold
    assert 0 < switch["x"] + switch["width"] <= unfold["x"], "its name is drawn over the next button"
    expect(page.locator("#clusters summary")).to_have_text("west")
    page.locator("#clusters summary").click()
    expect(page.get_by_role("link", name="east", exact=True)).to_be_in_viewport()


def test_the_switch_keeps_the_page_and_its_filters_in_the_address(url: str, open_page: Open) -> None:
    page = open_page(f"{url}/")
    page.get_by_role("link", name="west").click()
    expect(page).to_have_url(f"{url}/clusters/west/")
    page.get_by_role("link", name="Explore", exact=True).click()
    page.get_by_role("link", name="Workloads").first.click()
    expect(page).to_have_url(re.compile("/clusters/west/workloads"))
    page.evaluate("window.cotenant.go('/clusters/west/workloads?ns=shop')")
    page.locator("#clusters summary").click()
    page.get_by_role("link", name="east", exact=True).click()
    expect(page).to_have_url(f"{url}/clusters/east/workloads?ns=shop")
    expect(page.locator("#clusters summary")).to_have_text("east")
    page.locator("#clusters summary").click()
    page.get_by_role("link", name="All clusters").click()
    expect(page).to_have_url(f"{url}/")
