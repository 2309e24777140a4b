"""Under the zone "this browser's" no part of a page says another one: chip, lead, tiles, captions, the demo's clock."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from playwright.sync_api import expect

from cotenant.recommender.model.views import Overview
from tests.browser.conftest import Open
from tests.browser.test_pages import settled
from tests.browser.test_units import TOKYO_HOURS, switched
from tests.support.dashboard import Results

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.xdist_group("browser")]
UTC_MOMENT = re.compile(r"\d\d:\d\d UTC")
PAGES = ("", "forecast", "batch", "health")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path or "overview")
def test_no_text_of_a_page_says_utc_while_others_say_the_browser_s_zone(
    open_page: Open, address: str, path: str
) -> None:
    page = settled(open_page(f"{address}/{path}"))
    before = UTC_MOMENT.findall(page.locator("body").inner_text())
    assert before, "the page says no time of day: it shows nothing about zones"
    switched(page)
    page.wait_for_function("!/\\d\\d:\\d\\d UTC/.test(document.body.innerText)")
    assert "GMT+9" in page.locator("body").inner_text()
    switched(page, back=True)
    assert UTC_MOMENT.findall(page.locator("body").inner_text()) == before


def test_the_lead_and_the_chip_of_the_data_name_the_newest_sample_in_that_zone(
    open_page: Open, address: str, demo_results: Results
) -> None:
    page = settled(open_page(address))
    overview = demo_results.store.read_document("overview", Overview)
    assert overview is not None
    utc = datetime.fromtimestamp(overview.time_seconds, UTC).strftime("%a %d %b %H:%M UTC")
    expect(page.locator(".lead")).to_contain_text(f"until {utc}.")
    switched(page)
    # Tokyo is nine hours ahead of UTC all year.
    tokyo_time = datetime.fromtimestamp(overview.time_seconds + TOKYO_HOURS * 3600, UTC).strftime(
        "%a %d %b %H:%M GMT+9"
    )
    expect(page.locator(".lead")).to_contain_text(f"until {tokyo_time}.")
    page.reload()  # the browser keeps the choice, and what is drawn anew follows it
    expect(page.locator(".lead")).to_contain_text(f"until {tokyo_time}.")
