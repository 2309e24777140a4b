"""The Enforcement page in a browser: chart and rows together, by mouse and keyboard, in both themes, in every state."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import expect

from cotenant.base.store import Store
from cotenant.dashboard.settings import DashboardSettings
from cotenant.dashboard.sources.source import Snapshot, StoreSource
from cotenant.enforcer.model.enforcement import EnforcementHistory, Gathering
from cotenant.enforcer.model.enforcement_tables import Retention
from cotenant.profiler.enforcement.collected import keep
from tests.browser.conftest import Open
from tests.browser.test_browsing import serious
from tests.browser.test_narrow import misfits
from tests.browser.test_pages import THEMES, chart_of, column, settled, wait_for_column
from tests.dashboard.test_states import Changed
from tests.support import dashboard as support
from tests.support.dashboard import Results
from tests.support.enforcement import NASTY, fill, quota
from tests.support.pictures import pictured

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.xdist_group("browser")]
END = 1_795_089_600.0


@pytest.fixture(scope="module")
def acted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Results]]:
    """An analysed cluster whose agents have told something."""
    results = support.results(tmp_path_factory.mktemp("acted"))
    fill(results.store, results.end_seconds)
    with support.served(support.app_of(results)) as address:
        yield address, results


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[tuple[str, Store]]:
    """A store in which agents alone have told something: nothing was ever analysed."""
    store = Store(tmp_path.as_uri(), "c1")
    fill(store, END)
    source = StoreSource(store, support.QUICK)
    with support.served(support.app_on(source, now_seconds=END + 60)) as address:
        yield address, store


def at(acted: tuple[str, Results], path: str = "enforcement") -> str:
    return f"{acted[0]}/{path}"


@pytest.mark.soak
@pytest.mark.parametrize(("node", "theme"), [("node-000", "light"), ("node-001", "dark")])
def test_a_node_is_drawn_without_a_serious_accessibility_fault(
    open_page: Open, acted: tuple[str, Results], axe: str, node: str, theme: str, tmp_path: Path
) -> None:
    page = settled(open_page(f"{at(acted)}?open={node}", theme=theme))
    page.locator(".more summary", has_text="lanes and reasons").click()
    expect(page.locator("#enforcement-hand h2").first).to_have_text(node)
    assert serious(page, axe) == []
    pictured(page, f"enforcement-acts-{theme}", tmp_path)
    assert misfits(page) == []


@pytest.mark.soak
def test_the_page_is_reached_and_a_node_opened_by_keyboard_alone(open_page: Open, acted: tuple[str, Results]) -> None:
    page = settled(open_page(f"{acted[0]}/"))
    page.keyboard.press("g")
    page.keyboard.press("e")
    page.wait_for_url(at(acted))
    settled(page)
    expect(page.locator("#enforcement-hand h2").first).to_have_text("node-000")
    # The newest rows are node-002's, then a dry run's.
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/enforcement?open=node-001")
    expect(page.locator("#enforcement-hand h2").first).to_have_text("node-001")
    expect(page.locator("#enforcement-hand figcaption")).to_contain_text("all actions in a dry run")
    with page.expect_download() as download:
        page.keyboard.press("e")
    assert download.value.suggested_filename.endswith("-enforcement.csv")


def test_a_dry_run_is_hatched_in_the_chart_and_marked_in_the_rows(open_page: Open, acted: tuple[str, Results]) -> None:
    page = settled(open_page(f"{at(acted)}?open=node-001&mode=dry-run"))
    wait_for_column(page, "mode", "t === 'dry-run'")
    expect(page.locator(".ag-row .chip.dry").first).to_be_visible()
    expect(page.locator("#enforcement-figure")).to_contain_text("dry run (hatched)")
    filled = f"{chart_of(page, 'enforcement-figure')}.data.find(t => t.fill === 'toself')"
    assert page.evaluate(f"{filled}.fillpattern.shape") == "/"


def test_filters_by_mouse_narrow_chart_rows_and_address_together(open_page: Open, acted: tuple[str, Results]) -> None:
    page = settled(open_page(at(acted)))
    page.get_by_role("link", name="eviction").first.click()
    page.wait_for_url("**/enforcement?lane=eviction*")
    wait_for_column(page, "reason", "t === 'Evicting' || t === 'WouldEvict'")
    expect(page.locator("#enforcement-hand figcaption")).to_contain_text("1 action (1 eviction)")
    page.get_by_role("link", name="node-001 (1)").click()
    expect(page.locator("#enforcement-hand h2").first).to_have_text("node-001")
    # Another browser shows the same from the address.
    other = settled(open_page(page.url))
    expect(other.locator("#enforcement-hand h2").first).to_have_text("node-001")
    assert column(other, "time") and column(other, "time") == column(page, "time")


@pytest.mark.soak
def test_a_span_is_chosen_shown_as_a_chip_and_taken_off_again(open_page: Open, acted: tuple[str, Results]) -> None:
    page = settled(open_page(f"{at(acted)}?open=node-000"))
    page.get_by_role("link", name="15 min").click()
    page.wait_for_url("**since=*")
    expect(page.locator("#tools-enforcement .active")).to_contain_text("since 2026-11-")
    page.locator("#tools-enforcement .active").click()
    expect(page.locator("#tools-enforcement .active")).to_have_count(0)
    expect(page.locator("#count-enforcement")).to_have_text("14 actions")


@pytest.mark.soak
def test_the_chart_reads_as_a_table_with_seconds(open_page: Open, acted: tuple[str, Results]) -> None:
    page = settled(open_page(f"{at(acted)}?open=node-000"))
    page.locator(".as-table[data-figure=enforcement-figure] summary").click()
    table = page.locator(".as-table[data-figure=enforcement-figure] table")
    expect(table.locator("thead th")).to_contain_text(["UTC", "Best effort uses", "All others use"])
    expect(table.locator("tbody th").first).to_contain_text(":")
    assert len(table.locator("tbody th").first.text_content().split(":")) == 3  # type: ignore[union-attr]


@pytest.mark.soak
def test_markup_from_a_cluster_stays_text(open_page: Open, acted: tuple[str, Results]) -> None:
    page = settled(open_page(f"{at(acted)}?open=node-002&node=node-002"))
    wait_for_column(page, "why", f"t === {json.dumps(NASTY)}")
    assert page.locator("img[src=x]").count() == 0


def test_a_node_s_page_shows_its_lanes_and_leads_to_all_of_it(open_page: Open, acted: tuple[str, Results]) -> None:
    page = open_page(at(acted, "nodes/node-000"))
    expect(page.locator("#node-lanes .main-svg").first).to_be_visible()
    expect(page.locator("#node-enforcement figcaption")).to_contain_text("6 suppressions")
    page.locator("#to-enforcement").click()
    page.wait_for_url("**/enforcement?node=node-000&open=node-000")
    expect(page.locator("#enforcement-hand h2").first).to_have_text("node-000")
    settled(page)
    assert set(column(page, "node")) == {"node-000"}


def test_news_of_agents_appear_by_themselves(open_page: Open, alone: tuple[str, Store]) -> None:
    address, store = alone
    page = settled(open_page(f"{address}/enforcement?open=node-000"))
    expect(page.locator("#count-enforcement")).to_have_text("14 actions")
    keep(
        store,
        EnforcementHistory((quota(END + 5, "node-000", 3, 2),), gathering=Gathering(END + 5, agents=3)),
        Retention(END + 5),
    )
    expect(page.locator("#count-enforcement")).to_have_text("15 actions", timeout=60_000)
    expect(page.locator("#enforcement-hand figcaption")).to_contain_text("10 actions", timeout=60_000)
    page.wait_for_function("document.querySelector('.ag-row[row-index=\"0\"]').textContent.includes('2 cores')")


@pytest.mark.soak
def test_an_old_gathering_is_called_old(open_page: Open, tmp_path: Path) -> None:
    store = Store(tmp_path.as_uri(), "c1")
    fill(store, END)
    with support.served(support.app_on(StoreSource(store, support.QUICK), now_seconds=END + 7200)) as address:
        page = settled(open_page(f"{address}/enforcement"))
        expect(page.locator("#enforcement-told .banner")).to_contain_text("The agents' actions were collected 2 h ago")


STATES = {
    "nobody asked": (None, "The node agents' actions have not been collected yet."),
    "no agents": (Gathering(END, agents=0), "No node agent runs."),
    "quiet": (Gathering(END, agents=4), "Healthy and quiet."),
    "forbidden": (
        Gathering(END, trouble="may not list events", fix="Allow it.", forbidden=True),
        "may not list events",
    ),
    "not reached": (Gathering(END, trouble="c1 does not answer", fix="Start it."), "c1 does not answer"),
}


@pytest.mark.soak
@pytest.mark.parametrize("theme", THEMES)
def test_every_empty_state_is_told_without_a_serious_accessibility_fault(
    open_page: Open, tmp_path: Path, axe: str, theme: str
) -> None:
    now = [Snapshot.empty()]
    source = Changed(StoreSource(Store(tmp_path.as_uri(), "c1"), support.QUICK), lambda _: now[0])
    still = DashboardSettings(port=0, reload_seconds=0.0, poll_seconds=3600)
    with support.served(support.app_on(source, still, now_seconds=END)) as address:
        page = open_page(f"{address}/enforcement", theme=theme)
        for gathering, phrase in STATES.values():
            now[0] = replace(Snapshot.empty(), gathering=gathering)
            page.reload()
            expect(page.locator("#page .empty")).to_contain_text(phrase)
            assert serious(page, axe) == []


@pytest.mark.soak
def test_an_empty_page_fills_by_itself(open_page: Open, tmp_path: Path) -> None:
    store = Store(tmp_path.as_uri(), "c1")
    with support.served(support.app_on(StoreSource(store, support.QUICK), now_seconds=END)) as address:
        page = open_page(f"{address}/enforcement")
        expect(page.locator("#page .empty")).to_contain_text("The node agents' actions have not been collected yet.")
        fill(store, END)
        expect(page.locator("#count-enforcement")).to_have_text("14 actions", timeout=60_000)
