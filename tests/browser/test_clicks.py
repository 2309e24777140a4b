"""What a click waits for: rows that come with their page, rows that stay until others are here, words before charts."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import Open
from tests.browser.test_pages import WASTE_FIRST, column, settled, texts_of
from tests.support.extent import full
from tests.support.first_sight import unfold
from tests.support.hands import go_to

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.xdist_group("browser")]
LISTS = (("w", "workloads", "workload", "sort=-cpu_request"), ("r", "recommendations", "workload", WASTE_FIRST))
FIRST_CELL = ".ag-row[row-index='0'] .ag-cell[col-id=workload]"
SKELETON = ".grid .ag-row:not([row-id]) .ag-cell:empty"


class Held:
    """Requests to an address, with `what` in their body, that wait until the test lets them go on."""

    def __init__(self, page: Page, address: str, what: str = "") -> None:
        self._what, self._open = what, False
        self._waiting: list[Route] = []
        page.route(address, self._handle)

    def _handle(self, route: Route) -> None:
        if self._open or self._what not in (route.request.post_data or ""):
            route.fallback()
        else:
            self._waiting.append(route)

    def let_go(self) -> None:
        self._open = True
        for route in self._waiting:
            route.continue_()


@pytest.mark.parametrize(("letter", "path", "name", "order"), LISTS)
def test_a_list_comes_with_the_rows_that_the_api_gives_and_asks_for_none(
    open_page: Open, address: str, letter: str, path: str, name: str, order: str
) -> None:
    page = settled(open_page(address))
    texts: list[str] = []
    page.on("request", lambda request: texts.append(request.url) if f"/api/v1/{path}" in request.url else None)
    go_to(page, letter)
    settled(page)
    rows = page.request.get(f"{address}/api/v1/{path}?{order}&limit=5").json()["rows"]
    assert [row[name] for row in rows] == column(page, name)[:5]
    assert texts == []


def test_rows_stay_until_those_of_a_new_filter_are_here_and_a_skeleton_says_when_that_takes_long(
    open_page: Open, address: str
) -> None:
    page = settled(open_page(f"{address}/recommendations"))
    rows = Held(page, "**/api/v1/recommendations?*")
    unfold(page, ".facet")
    page.locator(".facet", has_text="Kind").locator(".facet-link").first.click()
    page.wait_for_selector(SKELETON)
    rows.let_go()
    page.wait_for_selector(SKELETON, state="detached")
    kind = page.locator(".active").first.inner_text().split(":")[1].split("×")[0].strip()
    expected = page.request.get(f"{address}/api/v1/recommendations?kind={kind}&{WASTE_FIRST}&limit=5").json()
    assert [row["workload"] for row in expected["rows"]] == column(page, "workload")[:5]


FIRST_TEXTS = """([texts, expected]) => {
    const place = (cell) => Number(cell.closest('.ag-row').getAttribute('row-index'));
    const cells = [...document.querySelectorAll(texts)].sort((a, b) => place(a) - place(b));
    return expected.length && expected.every((text, at) => cells[at]?.textContent === text); }"""
"""The cells of a column begin with these texts, top down."""
MEANWHILE = {
    "the same rows are asked for again": "feed(search)",
    "another order is chosen": """cotenant.grid().api.applyColumnState({
        state: [{ colId: 'workload', sort: 'desc' }], defaultState: { sort: null } })""",
}


@pytest.mark.parametrize(("event", "order"), [*zip(MEANWHILE, (WASTE_FIRST, "sort=-workload"), strict=True)])
def test_rows_of_a_new_filter_are_shown_in_the_order_of_now_though_something_happens_while_they_are_waited_for(
    open_page: Open, address: str, event: str, order: str
) -> None:
    page = settled(open_page(f"{address}/recommendations"))
    api = f"{address}/api/v1/recommendations?ns=pay&{order}&limit=5"
    rows = Held(page, "**/api/v1/recommendations?*")
    page.evaluate(f"""() => {{
        const search = "?ns=pay", id = "grid-recommendations";
        const feed = (search) => dash_clientside.cotenant.feed(search, undefined, null, id);
        window.fed = feed(search);
        setTimeout(() => {{ {MEANWHILE[event]}; }}, 40); }}""")
    page.wait_for_selector(SKELETON)
    rows.let_go()
    page.evaluate("() => window.fed")
    page.wait_for_selector(SKELETON, state="detached")
    expected = [row["workload"] for row in page.request.get(api).json()["rows"]]
    page.wait_for_function(FIRST_TEXTS, arg=[texts_of("workload"), expected])
    assert column(page, "workload")[:5] == expected


def test_a_filter_that_is_left_while_its_rows_are_waited_for_is_asked_no_more_and_says_nothing_of_the_next_rows(
    open_page: Open, address: str
) -> None:
    page = settled(open_page(f"{address}/recommendations"))
    Held(page, "**/api/v1/recommendations?*q=nosuch*")
    page.evaluate("() => cotenant.go(cotenant.withParam('q', 'nosuch'))")
    page.wait_for_selector(SKELETON)
    with page.expect_event("requestfailed", lambda request: "q=nosuch" in request.url):
        page.evaluate("() => cotenant.go(cotenant.withParam('q', ''))")
    page.wait_for_selector(SKELETON, state="detached")
    expect(page.locator("#frame-recommendations")).to_be_visible()
    expect(page.locator("#trouble-recommendations")).to_be_hidden()


def test_another_order_does_not_wait_for_the_rows_of_the_order_before(open_page: Open, address: str) -> None:
    page = settled(open_page(f"{address}/recommendations"))
    Held(page, "**/api/v1/recommendations?*sort=workload*")
    for order, text in (("asc", "sort=workload"), ("desc", "sort=-workload")):
        with page.expect_request(f"**/api/v1/recommendations?*{text}&*"):
            page.evaluate(
                """sort => cotenant.grid().api.applyColumnState({
                    state: [{ colId: 'workload', sort }], defaultState: { sort: null } })""",
                order,
            )
    expected = page.request.get(f"{address}/api/v1/recommendations?sort=-workload&limit=5").json()["rows"]
    page.wait_for_function(FIRST_TEXTS, arg=[texts_of("workload"), [row["workload"] for row in expected]])


SORTED = """() => {
    const { api } = cotenant.grid();
    const column = api.getAllDisplayedColumns().find(c => c.getColDef().sortable !== false && !c.getSort());
    api.applyColumnState({ state: [{ colId: column.getColId(), sort: 'asc' }], defaultState: { sort: null } }); }"""
"""Another order than the list's own: all of its rows are asked for."""
BLANK = """() => {
    const rows = [...document.querySelectorAll('.ag-center-cols-container .ag-row')];
    return rows.length > 1 && !rows.some(row => row.textContent); }"""
"""Rows are there, and none has content."""


@pytest.mark.parametrize("path", ["recommendations", *full("workloads", "nodes", "pods")])
def test_rows_on_their_way_are_blank_and_keys_do_no_harm(open_page: Open, address: str, path: str) -> None:
    page = open_page(f"{address}/{path}")
    for _ in range(20):  # from before the grid is ready on
        page.keyboard.press("j")
    settled(page)
    routes: list[Route] = []

    def hold(route: Route) -> None:
        routes.append(route)

    page.route(f"**/api/v1/{path}?*", hold)
    with page.expect_request(f"**/api/v1/{path}?*"):
        page.evaluate(SORTED)
        for _ in range(20):
            page.keyboard.press("j")
    page.wait_for_function(BLANK)
    cells = page.locator(".ag-center-cols-container .ag-cell")
    bar = "e => getComputedStyle(e, '::after').height"  # in the place of the text
    assert cells.first.evaluate(bar) == "10px"
    page.keyboard.press("Enter")
    for route in routes:
        route.continue_()
    page.unroute_all()
    page.evaluate("cotenant.grid().api.ensureIndexVisible(0)")  # the keys have walked down
    settled(page)
    assert cells.first.evaluate(bar) == "auto"
    assert page.url == f"{address}/{path}"


def test_a_drawer_opens_before_its_words_are_here_and_has_its_charts_in_the_end(open_page: Open, address: str) -> None:
    page = settled(open_page(f"{address}/recommendations"))
    explanation = Held(page, "**/_dash-update-component", '"explanation.children"')
    page.click(FIRST_CELL)
    drawer = page.get_by_role("dialog", name="Recommendation")
    expect(drawer.locator("[aria-busy=true] .skeleton").first).to_be_visible()
    explanation.let_go()
    expect(drawer.locator(".explain .value").first).to_be_visible()
    expect(drawer.locator("#drawer-charts .main-svg").first).to_be_visible()
