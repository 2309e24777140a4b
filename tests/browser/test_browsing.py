"""Going round: every page by keyboard alone, links that show the same to others, names that stay text, and no leaks."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from cotenant.base.colocation.reclaim_policies import decode_terms
from cotenant.base.table import Schema, Table
from cotenant.base.text import visible
from cotenant.dashboard import pages
from cotenant.recommender.colocation.model.lendable import NODE_HISTORY
from cotenant.recommender.model.views import FINDINGS, NODES, RECLAIMABLE, RECOMMENDATIONS, WORKLOADS
from tests.browser.conftest import Open
from tests.browser.test_pages import THEMES, api, column, export_of, pictured, settled
from tests.support import dashboard as support
from tests.support.dashboard import Results
from tests.support.extent import full
from tests.support.hands import Hands

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.xdist_group("browser")]
LETTERS = {page.letter: page.title for page in pages.ALL if page.letter}
HOSTILE = {
    "script": "<script>alert(1)</script>",
    "image": "<img src=x onerror=alert(1)>",
    "direction": "pay\u202elive\u2066",
    "formula": '=HYPERLINK("http://x","y")',
    "plus": "+1+cmd|' /C calc'!A0",
    "quote": "a\"b'c,d;e\tf",
    "slash": "../../etc/passwd",
}
DRAWN_BELOW: dict[str, dict[str, tuple[str, ...]]] = {
    "recommendations": {"workload": ("namespace", "container"), "memory_observed_max": ("cpu_observed_max",)},
    "findings": {"workload": ("namespace", "container")},
    "workloads": {"workload": ("namespace",)},
    "pods": {"pod": ("namespace",)},
    "forecast": {"name": ("namespace",)},
}
"""Columns of each list that share a cell with another."""
ROUNDS = 12
HEAP_GROWTH_MB = 20
ROWS = """() => [...document.querySelectorAll('.grid .ag-row')]
    .sort((a, b) => a.getAttribute('row-index') - b.getAttribute('row-index'))
    .map(r => [...r.querySelectorAll('.ag-cell')].map(c => c.getAttribute('col-id') + '=' + c.textContent).join('|'))"""


def serious(page: Page, axe: str, part: str = "html") -> list[Any]:
    """Faults of the page, or of what a selector names: for a part that came to a page which was read whole before."""
    page.evaluate(axe)
    shown = page.evaluate("async part => (await axe.run(part)).violations", part)
    return [(v["id"], [n["html"][:200] for n in v["nodes"]]) for v in shown if v["impact"] in ("serious", "critical")]


def at_node(page: Page, name: str) -> Page:
    expect(page.get_by_role("heading", level=1, name=name)).to_be_visible()
    expect(page.locator("#hours-cpu .main-svg").first).to_be_visible()
    return page


@pytest.mark.soak
@pytest.mark.parametrize("theme", THEMES)
def test_a_node_s_page_has_no_serious_accessibility_fault(
    open_page: Open, address: str, axe: str, theme: str, tmp_path: Path
) -> None:
    page = at_node(open_page(f"{address}/nodes/node-003", theme=theme), "node-003")
    assert serious(page, axe) == []
    pictured(page, f"node-{theme}", tmp_path)


def test_a_node_s_page_says_what_the_tables_say(open_page: Open, address: str, demo_results: Results) -> None:
    page = at_node(open_page(f"{address}/nodes/node-003"), "node-003")
    terms = {
        (r["band"], r["resource"]): r for r in demo_results.store.read_table(RECLAIMABLE, {"node": "node-003"}).rows()
    }
    for title, key in (("CPU free for batch", ("batch", "cpu")), ("Memory free for a day", ("mid", "memory"))):
        panel = page.locator(".panel", has=page.get_by_role("heading", name=title, exact=True))
        expect(panel.locator("tr")).to_have_count(len(decode_terms(terms[key]["term_amounts"])) + (key[0] == "batch"))
        expect(panel.locator(".formula")).to_contain_text("at least 0 = ")
    expect(page.locator(".verdict").first).to_contain_text("No more is lent because")


@pytest.mark.soak
def test_a_dot_leads_to_its_node(open_page: Open, address: str) -> None:
    page = settled(open_page(f"{address}/nodes"))
    dot = page.locator("#balance-figure .scatterlayer .point").first
    dot.scroll_into_view_if_needed()
    box = dot.bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.click(x, y)
    page.wait_for_url(re.compile(r"/nodes/node-\d+$"))


def test_a_workload_is_two_clicks_or_three_shortcuts_from_the_first_page(
    open_page: Open, address: str, record_property: Callable[[str, object], None]
) -> None:
    mouse = Hands(settled(open_page(address)))
    mouse.click(mouse.page.locator("#place-explore"))
    settled(mouse.page)
    name = column(mouse.page, "workload")[0]
    mouse.click(mouse.page.locator(".ag-row[row-index='0'] .ag-cell[col-id=workload]"))
    expect(mouse.page.get_by_role("heading", level=1)).to_have_text(name)
    keys = Hands(mouse.page)
    keys.press("g o")
    settled(keys.page)
    keys.actions = 0
    keys.press("g w")
    settled(keys.page)
    keys.press("j")
    keys.press("Enter")
    expect(keys.page.get_by_role("heading", level=1)).to_have_text(name)
    record_property("actions by mouse", mouse.actions)
    record_property("shortcuts", keys.actions)
    assert (mouse.actions, keys.actions) == (2, 3)  # the page and the row; the page, the row, open


@pytest.mark.soak
def test_every_page_is_reached_by_two_keys(open_page: Open, address: str) -> None:
    page = settled(open_page(address))
    for letter, title in LETTERS.items():
        page.keyboard.press("g")
        page.keyboard.press(letter)
        expect(page.get_by_role("heading", level=1)).to_have_text(title)
        listed = next(listed_page for listed_page in pages.ALL if listed_page.letter == letter)
        marked = next(
            listed_page.title for listed_page in pages.ALL if listed_page.path == (listed.parent or listed.path)
        )
        expect(page.locator("#nav .nav-link.current").last).to_contain_text(marked)


@pytest.mark.parametrize("path", ["recommendations", *full("nodes", "workloads", "pods", "findings", "forecast")])
def test_rows_are_walked_selected_exported_and_opened_by_keyboard(open_page: Open, address: str, path: str) -> None:
    page = settled(open_page(f"{address}/{path}"))
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("j")
    page.keyboard.press("x")
    expect(page.locator(f"#picked-{path if path != 'forecast' else 'forecasts'}")).to_have_text("1 selected · ")
    with page.expect_download() as download:
        page.keyboard.press("e")
    exported = list(csv.reader(io.StringIO(Path(download.value.path()).read_text())))
    headers = page.evaluate(
        "cotenant.columnsOf(dash_ag_grid.getApi(document.querySelector('.grid').id)).map(c => c.getColId())"
    )
    # The heading of what is shown, what is drawn below a name as columns before it, and the one selected row.
    drawn_below = DRAWN_BELOW.get(path, {})
    assert exported[0] == [name for header in headers for name in (*drawn_below.get(header, ()), header)]
    assert len(exported) == 2
    before = page.url
    page.keyboard.press("Enter")
    page.wait_for_function("before => location.href !== before", arg=before)
    expect(page.get_by_role("heading", level=1)).to_be_visible()


def test_the_export_holds_the_chosen_columns_in_their_order(open_page: Open, address: str) -> None:
    page = settled(open_page(f"{address}/workloads?columns=workload,restarts,namespace&sort=workload"))
    assert page.evaluate("dash_ag_grid.getApi('grid-workloads').getAllDisplayedColumns().map(c => c.getColId())") == [
        "workload",
        "restarts",
        "namespace",
    ]
    lines = export_of(page, "workloads").splitlines()
    assert lines[0] == "workload,restarts,namespace"
    assert len(lines) == 1 + support.SPEC.workloads


def test_yaml_of_the_shown_rows_can_be_applied(open_page: Open, address: str) -> None:
    page = settled(open_page(f"{address}/recommendations?severity=critical"))
    saved = export_of(page, "recommendations", "yaml")
    link = page.locator("#export-yaml-recommendations").evaluate("it => it.href")
    response = page.request.get(link)
    assert "severity=critical" in link and response.text() == saved
    assert response.status == 200 and response.headers["content-type"].startswith("application/yaml")
    refused = page.request.get(f"{address}/api/v1/nodes?format=yaml")
    assert refused.status == 400 and "cannot be applied" in refused.json()["message"]


@pytest.mark.soak
@pytest.mark.parametrize(
    "link",
    [
        "/recommendations?severity in (critical,warning)&kind!=Job&sort=-memory_delta_total&columns=workload,severity",
        *full(
            "/workloads?workload=*a*&ns!=pay&sort=cpu_p95",
            "/nodes?q=node-00&sort=-batch_memory",
            "/findings?severity=warning&sort=workload",
        ),
    ],
)
def test_a_link_shows_the_same_rows_to_somebody_else(open_page: Open, address: str, link: str) -> None:
    first = settled(open_page(address + link))
    shared = first.url
    second = settled(open_page(shared, theme="dark"))
    mine = first.evaluate(ROWS)
    assert len(mine) > 1
    assert second.evaluate(ROWS) == mine


@pytest.mark.soak
def test_copy_link_copies_the_address(open_page: Open, address: str) -> None:
    page = settled(open_page(f"{address}/workloads?kind=Deployment"))
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator("#copy-link").click()
    expect(page.locator("#copy-link")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == page.url


def test_units_and_time_zone_are_switched_and_kept(open_page: Open, address: str) -> None:
    page = settled(open_page(f"{address}/nodes?sort=node&columns=node,cpu_allocatable,memory_allocatable"))
    row = api(page, f"{address}/api/v1/nodes?sort=node")["rows"][0]
    page.locator("#display-button").click()
    page.get_by_text("millicores, MiB").click()
    page.get_by_text("this browser's").click()
    page.keyboard.press("Escape")
    expected = f"{row['cpu_allocatable']:,} m"
    expect(page.locator(".ag-row[row-index='0'] .ag-cell[col-id=cpu_allocatable]")).to_have_text(expected)
    page.reload()
    settled(page)
    expect(page.locator(".ag-row[row-index='0'] .ag-cell[col-id=cpu_allocatable]")).to_have_text(expected)
    assert "MiB" in column(page, "memory_allocatable")[0]
    page.keyboard.press("g")
    page.keyboard.press("h")
    expect(page.locator("time.moment").first).to_contain_text("GMT+9")  # the tests' browser stands in Tokyo


def hostile_rows(store: Any, schema: Schema, names: tuple[str, ...]) -> None:
    """The table with its first rows renamed to the hostile names, in every one of the columns."""
    rows = list(store.read_table(schema).rows())
    for row, nasty in zip(rows, HOSTILE.values(), strict=False):
        row.update(dict.fromkeys(names, nasty))
    store.write_table(Table.from_rows(schema, rows))


def test_hostile_names_stay_text_on_every_surface(open_page: Open, tmp_path: Path) -> None:
    results = support.results(tmp_path)
    hostile_rows(results.store, RECOMMENDATIONS, ("namespace", "workload", "container"))
    hostile_rows(results.store, WORKLOADS, ("namespace", "workload"))
    hostile_rows(results.store, FINDINGS, ("namespace", "workload", "container", "evidence"))
    for schema in (NODES, NODE_HISTORY, RECLAIMABLE):
        hostile_rows(results.store, schema, ("node",))
    with support.served(support.app_of(results)) as address:
        page = open_page(address)
        for path in ("recommendations", "workloads", "findings", "nodes"):
            page.goto(f"{address}/{path}")
            settled(page)
            rows = api(page, f"{address}/api/v1/{path}")["rows"]
            name = "node" if path == "nodes" else "workload"
            assert set(HOSTILE.values()) <= {row[name] for row in rows} or len(rows) < len(HOSTILE)
            text = page.locator("body").inner_text()
            assert "\u202e" not in text and "\u2066" not in text
            exported = page.request.get(f"{address}/api/v1/{path}?format=csv").text()
            cells = [cell for row in csv.reader(io.StringIO(exported)) for cell in row]
            assert not [cell for cell in cells if re.match(r"[=+@]|-[^\d.]", cell)]
            assert "\u202e" not in exported and "\\u202e" in exported
        for kind, nasty in HOSTILE.items():
            if kind == "slash":  # what the server and proxies before it make of it
                page.goto(f"{address}/nodes/{quote(nasty, safe='')}")
            else:
                page.evaluate("node => cotenant.go(cotenant.base() + 'nodes/' + encodeURIComponent(node))", nasty)
            expect(page.get_by_role("heading", level=1)).to_have_text(visible(nasty))
        assert page.locator("img[src=x]").count() == 0
        assert page.evaluate("[...document.scripts].every(s => !s.textContent.includes('alert(1)'))")


def heap_mb(page: Page) -> float:
    """Bytes that JavaScript holds after a garbage collection."""
    wire = page.context.new_cdp_session(page)
    wire.send("HeapProfiler.collectGarbage")
    return float(wire.send("Runtime.getHeapUsage")["usedSize"]) / 1e6


@pytest.mark.soak
def test_going_round_does_not_pile_up_memory(open_page: Open, address: str) -> None:
    page = settled(open_page(address))
    letters = [*LETTERS]

    def walk(times: int) -> None:
        for k in range(times):
            letter = letters[k % len(letters)]
            page.keyboard.press("g")
            page.keyboard.press(letter)
            expect(page.get_by_role("heading", level=1)).to_have_text(LETTERS[letter])
            page.wait_for_timeout(150)

    walk(len(letters))  # everything is loaded once
    before = heap_mb(page)
    walk(ROUNDS)
    assert heap_mb(page) - before < HEAP_GROWTH_MB
