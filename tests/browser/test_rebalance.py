"""The page Rebalance in a browser: maps and tables at 1366 pixels, and a move from its approval to its end."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from cotenant.dashboard.app import create_app
from cotenant.dashboard.frame.view import DashboardContext
from cotenant.dashboard.sources.source import StoreSource
from tests.browser.conftest import Open
from tests.browser.test_browsing import serious
from tests.browser.test_narrow import misfits
from tests.browser.test_pages import THEMES, settled
from tests.support import dashboard as support
from tests.support import moves
from tests.support.dashboard import Results
from tests.support.moves import APPROVER, FixedMoves
from tests.support.pictures import pictured
from tests.support.redraws import redraw_always

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.xdist_group("browser")]
SIZE = {"width": 1366, "height": 768}
ROUND = (("rebalance-mark", "data"), ("tick", "n_intervals"))
"""What draws the round anew."""


@pytest.mark.parametrize("theme", THEMES)
def test_the_round_is_read_at_1366_pixels_and_by_keyboard(
    open_page: Open, demo_results: Results, axe: str, theme: str, tmp_path: Path
) -> None:
    context = DashboardContext(moves=FixedMoves(), current_user=lambda: APPROVER)
    app = create_app(StoreSource(demo_results.store, support.QUICK), support.QUICK, context=context)
    with support.served(app) as address:
        page = settled(open_page(f"{address}/rebalance", theme=theme, size=SIZE))
        expect(page.get_by_role("img", name="CPU now: 1 of 3 nodes above their threshold")).to_be_visible()
        expect(page.locator("#rebalance-now")).to_contain_text("90▲")
        expect(page.get_by_role("table", name="Jobs").locator("tbody tr")).to_have_count(4)
        assert misfits(page) == []
        assert serious(page, axe) == []
        pictured(page, f"rebalance-{theme}", tmp_path)
        page.get_by_role("link", name="Memory", exact=True).focus()
        page.keyboard.press("Enter")
        page.wait_for_url("**/rebalance?show=memory")
        expect(page.get_by_role("img", name="Memory now: 0 of 3 nodes above their threshold")).to_be_visible()


def test_a_person_approves_every_move_follows_one_to_its_end_and_withdraws_the_other(
    open_page: Open, demo_results: Results, tmp_path: Path
) -> None:
    with moves.embedded(tmp_path) as cluster:
        context = DashboardContext(moves=cluster.service(), current_user=lambda: APPROVER)
        app = create_app(StoreSource(demo_results.store, support.QUICK), support.QUICK, cluster.clock, context)
        with support.served(app) as address:
            page = settled(open_page(f"{address}/rebalance", size=SIZE))
            redraw_always(page, *ROUND)
            page.get_by_role("button", name="Approve all 2").click()
            confirm = page.get_by_role("button", name="Make 2 jobs")
            expect(confirm).to_be_focused()
            assert (cluster.jobs(), cluster.rows()) == ([], []), "so far a dry run"
            page.get_by_label("Reason (for later readers)").fill("sale tonight")
            confirm.click()
            expect(page.locator("#moves-done")).to_contain_text("Made 2 jobs.")
            jobs = page.get_by_role("table", name="Jobs").locator("tbody tr")
            expect(jobs).to_have_count(2)
            running, waiting = (job["spec"]["podRef"]["name"] for job in cluster.jobs())
            cluster.say(cluster.jobs()[0]["metadata"]["name"], "Running", status="Evicting")
            cluster.clock.seconds += 60  # the service reads again
            expect(jobs.filter(has_text=running)).to_contain_text("Evicting")
            page.get_by_role("button", name=f"Withdraw the move of shop/{waiting}").click()
            expect(page.locator("#moves-done")).to_contain_text(f"Withdrew the move of shop/{waiting}")
            expect(jobs).to_have_count(1)
            expect(page.get_by_role("table", name="Who did what")).to_contain_text("sale tonight")
        events = [event for event, _, _ in cluster.events()]
        assert events == ["move-asked", "move-approved"] * 2 + ["move-asked", "move-withdrawn"]


def test_a_person_empties_a_node_and_gives_it_back(
    open_page: Open, demo_results: Results, tmp_path: Path, axe: str
) -> None:
    with moves.embedded(tmp_path) as cluster:
        # the hot node carries all that is used, the cold one is under-used and empty
        args = {"lowThresholds": {"cpu": 35, "memory": 50}, "highThresholds": {"cpu": 100, "memory": 100}}
        cluster.configure({"name": "HighNodeLoad", "args": args})
        context = DashboardContext(moves=cluster.service(), current_user=lambda: APPROVER)
        app = create_app(StoreSource(demo_results.store, support.QUICK), support.QUICK, cluster.clock, context)
        with support.served(app) as address:
            page = settled(open_page(f"{address}/rebalance", size=SIZE))
            page.get_by_role("link", name="Empty", exact=True).click()
            page.wait_for_url("**/rebalance?plugin=HighNodeLoad")
            table = page.get_by_role("table", name="Nodes to be emptied")
            expect(table).to_contain_text("under-used")
            assert serious(page, axe) == []
            redraw_always(page, *ROUND)
            page.get_by_role("button", name=f"Empty: {moves.COLD}").click()
            confirm = page.get_by_role("button", name="Taint 1 node")
            expect(confirm).to_be_focused()
            assert cluster.rows() == [], "so far a dry run"
            confirm.click()
            expect(page.locator("#moves-done")).to_contain_text("Tainted 1 node.")
            expect(table).to_contain_text("a person")
            page.get_by_role("button", name=f"Remove the emptying taint of node {moves.COLD}").click()
            expect(page.locator("#moves-done")).to_contain_text(f"Removed the emptying taint of node {moves.COLD}")
            expect(table).not_to_contain_text("a person")
        events = [event for event, _, _ in cluster.events()]
        assert events == ["emptying-asked", "emptying-approved", "emptying-asked", "emptying-withdrawn"]
