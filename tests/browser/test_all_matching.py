"""What is chosen by one word is exported whole, however little of it the grid has loaded."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import PATIENCE_MS, Open
from tests.browser.test_pages import api, export_of, settled
from tests.support import dashboard as support
from tests.support.many_rows import with_rows

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.xdist_group("browser")]
ROWS = 998
MOST = 100_000


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with with_rows(tmp_path_factory.mktemp("many"), ROWS) as results, support.served(support.app_of(results)) as url:
        yield url


@pytest.mark.soak
def test_a_hundred_thousand_that_match_leave_as_csv_whole(open_page: Open, tmp_path: Path) -> None:
    with with_rows(tmp_path, MOST) as results, support.served(support.app_of(results)) as url:
        page = settled(open_page(f"{url}/recommendations"))
        page.set_default_timeout(10 * PATIENCE_MS)  # the rows take a minute where four others work on two processors
        page.locator("#select-all").click()
        expect(page.locator("#selection-count")).to_have_text(f"All {MOST:,} matching", timeout=10 * PATIENCE_MS)
        assert len({(row["namespace"], row["workload"], row["container"]) for row in rows_of_export(page)}) == MOST


def rows_of_export(page: Page) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(export_of(page, "recommendations"))))


def test_all_that_match_leave_as_csv_whole_and_a_few_ticked_rows_alone(open_page: Open, many: str) -> None:
    page = settled(open_page(f"{many}/recommendations"))
    page.locator("#select-all").click()
    expect(page.locator("#selection-count")).to_have_text(f"All {ROWS} matching")
    expect(page.locator("#picked-recommendations")).to_have_text("all matching · ")
    # 998 rows were written, each under a name of its own.
    assert len({(row["namespace"], row["workload"], row["container"]) for row in rows_of_export(page)}) == ROWS
    # One row less than all that is loaded is a choice of rows by name: what the line says is what leaves.
    page.locator(".ag-center-cols-container [role=row]").first.wait_for()
    page.locator("[col-id=ag-Grid-SelectionColumn] input").nth(1).click()
    locator = page.locator("#picked-recommendations")
    expect(locator).to_contain_text(" selected · ")
    count = int((locator.text_content() or "").split()[0])
    assert len(rows_of_export(page)) == count < ROWS


def test_all_that_match_a_filter_leave_as_csv_and_nothing_else(open_page: Open, many: str) -> None:
    page = settled(open_page(f"{many}/recommendations?kind=Deployment"))
    matching = api(page, f"{many}/api/v1/recommendations?kind=Deployment&limit=0")["total"]
    assert 100 < matching < ROWS  # more than one block of the grid, and not everything
    page.locator("#select-all").click()
    expect(page.locator("#selection-count")).to_have_text(f"All {matching} matching")
    rows = rows_of_export(page)
    assert len(rows) == matching
    # The line is drawn anew with each answer; what it says of the choice stays.
    redraw = (
        "() => { const line = document.getElementById('picked-recommendations'); line.replaceWith(line.cloneNode()); }"
    )
    page.evaluate(redraw)
    expect(page.locator("#picked-recommendations")).to_have_text("all matching · ")
