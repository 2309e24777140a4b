"""A page that had nothing to show draws itself once there is something: first results, or a source that works again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from playwright.sync_api import expect

from cotenant.base.store import Store
from cotenant.dashboard.sources.source import StoreSource
from cotenant_lab.simulation.demo import CLUSTER
from tests.browser.conftest import Open
from tests.browser.test_pages import settled
from tests.support import dashboard as support
from tests.support.dashboard import Results

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]
LISTS = ("/", "/workloads", "/nodes")


def arrive(demo_results: Results, folder: Path) -> None:
    """The results of a finished run come into the folder, what names the run last, as a run writes them."""
    from_ = Path(demo_results.store.url.removeprefix("file://")) / CLUSTER
    shutil.copytree(from_, folder / CLUSTER, dirs_exist_ok=True, ignore=shutil.ignore_patterns("current.json"))
    shutil.copy(from_ / "results" / "current.json", folder / CLUSTER / "results" / "current.json")


def test_first_results_appear_by_themselves_on_open_pages_and_lists(
    open_page: Open, demo_results: Results, tmp_path: Path
) -> None:
    source = StoreSource(Store(tmp_path.as_uri(), CLUSTER), support.QUICK)
    with support.served(support.app_on(source, now_seconds=demo_results.end_seconds)) as address:
        opened = {path: open_page(address + path) for path in LISTS}
        for page in opened.values():
            expect(page.get_by_text("No results yet.")).to_be_visible()
        arrive(demo_results, tmp_path)
        for page in opened.values():
            expect(page.get_by_text("No results yet.")).to_have_count(0)
            settled(page)


@pytest.mark.soak
def test_a_page_that_failed_draws_itself_once_the_store_can_be_read(
    open_page: Open, demo_results: Results, tmp_path: Path
) -> None:
    source = StoreSource(Store(tmp_path.as_uri(), CLUSTER), support.QUICK)
    blocked = tmp_path / CLUSTER / "results" / "current.json"
    blocked.mkdir(parents=True)  # a folder where a file should be
    with support.served(support.app_on(source, now_seconds=demo_results.end_seconds)) as address:
        page = open_page(f"{address}/workloads", quiet=True)
        expect(page.locator(".failed").first).to_be_visible()
        blocked.rmdir()
        arrive(demo_results, tmp_path)
        expect(page.locator(".failed")).to_have_count(0)
        settled(page)
