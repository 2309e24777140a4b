"""What a person waits for at 100,000 rows: a page after its link, a drawer after a click on a row, a filter.

    .venv/bin/python -m bench.dashboard.dashboard_clicks

A real server over the store of bench dashboard and real Chromium at 1366 x 768. The page measures itself: from the
click to the frame in which what was asked for is there. Between clicks it waits for the rest of the page: a quiet
network never comes, as Playwright sees no end of the request for the script of Dash's worker.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench.dashboard.dashboard import CHARTS_SHOWN, FLAGS, ROWS, Process, results
from bench.record import Row, below, record
from cotenant.base.store import Store
from cotenant.base.table import Table
from cotenant.recommender.model.recommendation import Recommendation
from cotenant.recommender.model.todo import ORDERS
from cotenant.recommender.model.views import RECOMMENDATIONS
from cotenant_lab.synthetic import SyntheticSpec

TIMES = 15
GOAL_MS = 300
SIZE: Any = {"width": 1366, "height": 768}
SEED_ROWS = SyntheticSpec(24, 200, 14, 7)
"""What is repeated to 100,000 rows: a smaller cluster than the demo's is analysed sooner."""
FIRST_ROW = "document.querySelector('.ag-center-cols-container [row-index=\"0\"] .ag-cell')?.textContent"
FACETS = "document.querySelector('.facet') !== null"
CLICKED = """([selector, done]) => new Promise((resolve, reject) => {
    const there = new Function(`return ${done}`), start = performance.now();
    setTimeout(() => reject(new Error(`after a click on ${selector} there is no ${done}`)), 30000);
    const look = () => there() ? resolve(performance.now() - start) : requestAnimationFrame(look);
    document.querySelector(selector).click(); look(); })"""
"""Milliseconds from a click on `selector` to the frame in which `done` holds."""
PAGES = {
    "w": ("Workloads", FIRST_ROW, FACETS),
    "r": ("To do", FIRST_ROW, FACETS),
    "n": ("Nodes", FIRST_ROW, FACETS),
    "p": ("Pods", FIRST_ROW, FACETS),
    "f": ("Forecast", FIRST_ROW, FACETS),
    "o": ("Home", "document.querySelector('#page .home-cards') !== null", CHARTS_SHOWN),
}
"""Letter of the page -> its heading, what else a person waits for, and what shows that all is drawn."""
COUNT = "document.querySelector('#count-recommendations')?.textContent"
FED = "document.querySelector('#frame-recommendations')?.dataset.shown"
OPENED = "document.querySelector('[role=dialog] .explain .value') !== null"


def main() -> None:
    from playwright.sync_api import sync_playwright

    with (
        tempfile.TemporaryDirectory() as folder,
        Process(analysed_first(results(Path(folder), SEED_ROWS))) as server,
        sync_playwright() as driver,
    ):
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        page = browser.new_page(viewport=SIZE, bypass_csp=True)
        page.goto(server.url)
        rows = [
            row("page after its link or key", switched(page), "to its heading, and its first row or headline"),
            row("drawer after a click on a row", drawers(page, server.url), "to its reasons and formulas"),
            row("filter after a click on its value", filtered(page, server.url), "to the count and the first row"),
        ]
        browser.close()
    record("dashboard_clicks", ".venv/bin/python -m bench.dashboard.dashboard_clicks", rows)


def analysed_first(store: Store) -> Store:
    """The same with the rows that were analysed on top of the list: their copies have no explanation to open."""
    table = store.read_table(RECOMMENDATIONS)
    places = list(zip(table.columns["namespace"], table.columns["workload"], strict=True))
    explained = {
        (namespace, recommendation.container.workload.name)
        for namespace in {place[0] for place in places}
        for recommendation in store.read_document(f"explain@{namespace}", list[Recommendation]) or []
    }
    copied = np.array([place not in explained for place in places])
    first = ORDERS[""][0].removeprefix("-")
    amounts = np.where(copied, table.columns[first] / 1000, table.columns[first])
    store.write_table(Table(RECOMMENDATIONS, {**table.columns, first: amounts}))
    return store


def row(what: str, milliseconds: Iterator[float], note: str) -> Row:
    measured = np.array(list(milliseconds))
    note = f"{len(measured)} clicks at {ROWS:,} rows, p50 {np.median(measured):.0f} ms; {note}"
    return below(f"{what}, p95", float(np.percentile(measured, 95)), "ms", GOAL_MS, note)


def clicked(page: Any, selector: str, done: str) -> float:
    page.wait_for_selector(selector, state="attached")  # a folded page's link is pressed by its key, `g` and a letter
    return float(page.evaluate(CLICKED, [selector, done]))


def switched(page: Any) -> Iterator[float]:
    """From page to page; the first round fills the browser's caches and does not count."""
    for turn in range(1 + TIMES // 3):
        for key, (heading, condition, complete) in PAGES.items():
            done = f"document.querySelector('#page h1')?.textContent === '{heading}' && {condition}"
            taken = clicked(page, f"#nav-{key}", done)
            page.wait_for_function(complete)
            if turn:
                yield taken


def drawers(page: Any, url: str) -> Iterator[float]:
    """One row after the other."""
    page.goto(f"{url}/recommendations")
    page.wait_for_function(f"{FIRST_ROW} && {FACETS}")
    for index in range(1 + TIMES):
        taken = clicked(page, f".ag-row[row-index='{index % 8}'] .ag-cell[col-id=workload]", OPENED)
        page.keyboard.press("Escape")
        page.wait_for_function(f"!({OPENED}) && !location.search")
        if index:
            yield taken


def filtered(page: Any, url: str) -> Iterator[float]:
    """Values of five filters, each on the whole list."""
    page.goto(f"{url}/recommendations")
    page.wait_for_function(f"{FIRST_ROW} && {FACETS} && {COUNT}")
    everything, fed = page.evaluate(COUNT), page.evaluate(FED)
    places = [
        f".facet:nth-of-type({facet}) .facet-row:nth-child({row}) .facet-link"
        for row in (1, 2, 3)
        for facet in range(1, 6)
    ]
    places = [place for place in places if page.locator(place).count()]
    for index in range(1 + TIMES):
        taken = clicked(
            page, places[index % len(places)], f"{COUNT} !== {everything!r} && {FED} !== {fed!r} && {FIRST_ROW}"
        )
        page.click("text=Clear filters")
        page.wait_for_function(f"{COUNT} === {everything!r} && {FED} === {fed!r} && {FIRST_ROW}")
        if index:
            yield taken


if __name__ == "__main__":
    main()
