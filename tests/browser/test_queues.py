"""The page Queues in a browser: bars and tables at 1366 pixels, another resource by keyboard, no fault."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from cotenant.dashboard.app import create_app
from cotenant.dashboard.frame.view import DashboardContext
from cotenant.dashboard.sources.source import StoreSource
from cotenant.scheduler_ext.queues.model.report import QueueReport
from tests.browser.conftest import Open
from tests.browser.test_browsing import serious
from tests.browser.test_narrow import misfits
from tests.browser.test_pages import THEMES, settled
from tests.dashboard.test_queues_page import PAST
from tests.support import dashboard as support
from tests.support.dashboard import Results
from tests.support.pictures import pictured
from tests.support.queues import REPORT, FixedQueues

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]


@pytest.mark.parametrize("theme", THEMES)
def test_the_tree_is_read_at_1366_pixels_and_by_keyboard(
    open_page: Open, demo_results: Results, axe: str, theme: str, tmp_path: Path
) -> None:
    queues = FixedQueues(past=PAST)
    app = create_app(
        StoreSource(demo_results.store, support.QUICK), support.QUICK, context=DashboardContext(queues=queues)
    )
    with support.served(app) as address:
        page = settled(open_page(f"{address}/queues", theme=theme, size={"width": 1366, "height": 768}))
        expect(page.locator("#quota-figure")).to_contain_text("shop")
        expect(page.get_by_role("img", name="3 quotas use 46 cores of the 60")).to_be_visible()
        rows = page.get_by_role("table", name="Quotas").locator("tbody tr")
        expect(rows).to_have_count(len(REPORT.quotas))
        expect(rows.nth(1)).to_contain_text("research")
        assert misfits(page) == []
        assert serious(page, axe) == []
        pictured(page, f"queues-{theme}", tmp_path)
        page.get_by_role("link", name="memory", exact=True).focus()
        page.keyboard.press("Enter")
        page.wait_for_url("**/queues?show=memory")
        expect(page.get_by_role("heading", name="The last day of research, memory")).to_be_visible()
        queues.replace(QueueReport(REPORT.at_seconds))
        expect(page.get_by_text("No quota is defined.")).to_be_visible()
