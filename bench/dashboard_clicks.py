"""What a person waits for at 100,000 rows: a page after a click in the menu, a drawer after one on a row, a filter.

    .venv/bin/python -m bench.dashboard_clicks

A real server over the store of bench.dashboard and real Chromium at 1366 x 768. The page measures itself: from the
click to the frame in which what was asked for is there.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench.dashboard import FLAGS, ROWS, Process, results
from bench.record import Row, below, record

TIMES = 12
GOAL_MS = 300
SIZE = {"width": 1366, "height": 768}
FIRST_ROW = "document.querySelector('.ag-center-cols-container [row-index=\"0\"] .ag-cell')?.textContent"
CLICKED = """([selector, done]) => new Promise(resolve => {
    const there = new Function(`return ${done}`), start = performance.now();
    const look = () => there() ? resolve(performance.now() - start) : requestAnimationFrame(look);
    document.querySelector(selector).click(); look(); })"""
"""Milliseconds from a click on `selector` to the frame in which `done` holds."""
PAGES = {"w": "Workloads", "r": "Recommendations", "n": "Nodes", "p": "Pods", "f": "Forecast", "o": "Overview"}
"""Key of the menu's entry -> the page's heading."""
COUNT = "document.querySelector('#count-recommendations').textContent"
OPENED = "document.querySelector('[role=dialog] .explain .value') !== null"


def main() -> None:
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, Process(results(Path(folder))) as server, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        page = browser.new_page(viewport=SIZE, bypass_csp=True)
        page.goto(server.url)
        rows = [
            row("page after a click in the menu", switched(page), "heading and panels; without the rows of lists"),
            row("drawer after a click on a row", drawers(page, server.url), "with its reasons and formulas"),
            row("filter after a click on its value", filtered(page, server.url), "count and first row"),
        ]
        browser.close()
    record("dashboard_clicks", ".venv/bin/python -m bench.dashboard_clicks", rows)


def row(what: str, milliseconds: Iterator[float], note: str) -> Row:
    measured = np.array(list(milliseconds))
    note = f"{len(measured)} clicks at {ROWS:,} rows, p50 {np.median(measured):.0f} ms; {note}"
    return below(f"{what}, p95", float(np.percentile(measured, 95)), "ms", GOAL_MS, note)


def clicked(page: Any, selector: str, done: str) -> float:
    return float(page.evaluate(CLICKED, [selector, done]))


def switched(page: Any) -> Iterator[float]:
    """From page to page; the first round fills the browser's caches and does not count."""
    for turn in range(1 + TIMES // 2):
        for key, heading in PAGES.items():
            shown = f"document.querySelector('#page h1')?.textContent === '{heading}'"
            page.wait_for_selector(f"#nav-{key}")
            taken = clicked(page, f"#nav-{key}", shown)
            page.wait_for_load_state("networkidle")
            if turn:
                yield taken


def drawers(page: Any, url: str) -> Iterator[float]:
    """One row after the other."""
    page.goto(f"{url}/recommendations")
    page.wait_for_function(FIRST_ROW)
    for place in range(1 + TIMES):
        taken = clicked(page, f".ag-row[row-index='{place % 8}'] .ag-cell[col-id=workload]", OPENED)
        page.wait_for_load_state("networkidle")
        page.keyboard.press("Escape")
        page.wait_for_function(f"!({OPENED})")
        if place:
            yield taken


def filtered(page: Any, url: str) -> Iterator[float]:
    """Values of filters, each on the whole list."""
    for place in range(1 + TIMES):
        page.goto(f"{url}/recommendations")
        page.wait_for_function(FIRST_ROW)
        page.wait_for_load_state("networkidle")
        shown = f"{COUNT} !== {page.evaluate(COUNT)!r} && {FIRST_ROW}"
        taken = clicked(page, f".facet:nth-of-type({1 + place % 3}) .facet-row:nth-child(2) .facet-link", shown)
        if place:
            yield taken


if __name__ == "__main__":
    main()
