"""What a newcomer meets on demos of 2, 60 and 500 nodes: clicks and seconds to three answers, faults of every page.

    .venv/bin/python -m bench.dashboard.dashboard_sizes [NODES...]

Real demos and real Chromium with scrollbars. A first visit begins with the address in a browser that was never there,
and ends when the change is applied, the plan approved, the answer drawn: once by mouse and once by keys alone. Then
every page is opened in windows of 1366 x 768 light, 1440 x 900 dark and 390 pixels. Seconds are the product's alone:
nobody reads between two clicks.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Browser, Page, expect, sync_playwright

from bench.record import ROOT, Row, below, record
from cotenant.dashboard import pages
from cotenant.dashboard.home import answers
from tests.support.chromium import installed, launched
from tests.support.hands import Hands
from tests.support.page_sweep import READY, WINDOWS, Fault, faults_of, visit
from tools import fetch_plotly

COTENANT: Final = Path(sys.executable).with_name("cotenant")
WORKLOADS: Final = {2: 30, 60: 900, 500: 7500}
"""Nodes of a demo -> its workloads."""
DAYS: Final = 16
"""A replay of the risk needs 14 days of history and at least one after them."""
MOST_CLICKS, MOST_SECONDS = 5, 60
PATIENCE_MS: Final = 120_000
START_SECONDS: Final = 3600
LAPTOP: Final = WINDOWS[0]


def main() -> None:
    sizes = [int(word) for word in sys.argv[1:]] or list(WORKLOADS)
    axe = fetch_plotly.fetch(ROOT / "tests" / "browser" / "axe.lock.json").read_text()
    expect.set_options(timeout=PATIENCE_MS)
    rows: list[Row] = []
    with sync_playwright() as driver:
        path = installed()
        if path is None:
            raise SystemExit("Chromium is missing: make system")
        browser = launched(driver, path)
        for nodes in sizes:
            with demo(nodes, WORKLOADS.get(nodes, 15 * nodes)) as url:
                rows += [*swept(browser, url, nodes, axe), *first_visits(browser, url, nodes)]
        browser.close()
    command = " ".join([".venv/bin/python -m bench.dashboard.dashboard_sizes", *sys.argv[1:]])
    record("dashboard_sizes", command, rows, is_kept=sizes == list(WORKLOADS))


@contextmanager
def demo(nodes: int, workloads: int) -> Iterator[str]:
    """A running demo of this size; its address with its token."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "demo.log"
        flags = ["--nodes", str(nodes), "--workloads", str(workloads), "--days", str(DAYS), "--port", "0"]
        env = {**os.environ, "HOME": folder, "TMPDIR": folder, "XDG_STATE_HOME": folder}
        with log.open("w") as out:
            command = [str(COTENANT), "demo", "--no-browser", *flags]
            process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=out, stderr=out)
        try:
            yield opened(process, log)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(120)


def opened(process: subprocess.Popen[bytes], log: Path) -> str:
    """The address that is printed once the demo is whole."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if match := re.search(r"open (http://\S+)", log.read_text()):
            return match[1]
        time.sleep(0.2)
    raise RuntimeError(log.read_text())


# --- every page in every window --------------------------------------------------------------------------------------
def swept(browser: Browser, url: str, nodes: int, axe: str) -> Iterator[Row]:
    """One row for each kind of fault, with the first of them in its note."""
    faults: list[Fault] = []
    for window in WINDOWS:
        page = visit(browser, window, url)
        paths = paths_of(page)
        faults += faults_of(page, window, paths, axe)
        page.context.close()
    for fault in faults:
        print(fault, file=sys.stderr)
    counts = Counter(fault.kind for fault in faults)
    kinds: dict[Any, str] = {
        "axe": "serious or critical by axe",
        "console": "errors in the console",
        "fit": "cut, off screen or sideways",
    }
    for kind, title in kinds.items():
        first = next((f"; first: {fault}" for fault in faults if fault.kind == kind), "")
        note = f"{len(paths)} pages in {len(WINDOWS)} windows{first}"
        yield below(f"{nodes} nodes: {title}", counts[kind], "faults", 0, note)


def paths_of(page: Page) -> list[str]:
    """Every page of the navigation, and of each page that is of one object the first one."""
    paths = [top_page.path for top_page in pages.ALL if not top_page.parent]
    workload, node = first_row(page, "workloads"), first_row(page, "nodes")
    return [
        *paths,
        f"workload/{workload['namespace']}/{workload['kind']}/{workload['workload']}",
        f"nodes/{node['node']}",
    ]


def first_row(page: Page, table: str) -> dict[str, Any]:
    script = "async table => (await (await fetch(`/api/v1/${table}?limit=1`)).json()).rows[0]"
    row: dict[str, Any] = page.evaluate(script, table)
    return row


# --- first visits -----------------------------------------------------------------------------------------------------
def first_visits(browser: Browser, url: str, nodes: int) -> Iterator[Row]:
    """Clicks, and seconds from the address to the answer, each way in a browser of its own."""
    replayed(browser, url)
    for what, ways in WAYS.items():
        for hand, way in ways.items():
            start = time.monotonic()
            page = visit(browser, LAPTOP, url)
            hands = way(page)
            seconds = time.monotonic() - start
            page.context.close()
            note = "; ".join(hands.did)
            yield below(f"{nodes} nodes: {what} by {hand}", hands.actions, "actions", MOST_CLICKS, note)
            yield below(f"{nodes} nodes: {what} by {hand}, from the address on", seconds, "s", MOST_SECONDS)


def replayed(browser: Browser, url: str) -> None:
    """Wait for the replay that the demo runs in the background, as one who comes the day after a scan finds it."""
    page = visit(browser, LAPTOP, url)
    expect(page.locator("#home-try .stats")).to_be_attached(timeout=1000 * START_SECONDS)  # its part is folded
    page.context.close()


def change_by_mouse(page: Page) -> Hands:
    """Accept the first row that To do leads with."""
    hands = Hands(page)
    hands.click(page.get_by_role("link", name="Right-size", exact=True))
    listed(page)
    hands.click(page.locator(".ag-pinned-left-cols-container .ag-row[row-index='0'] input"))
    expect(page.locator("#selection-count")).to_have_text("1 selected")
    hands.click(page.locator("#review-selected"))
    stepped(page, "Proposed changes")
    hands.click(page.locator("#review-last"))
    stepped(page, "Confirm")
    hands.click(page.locator("#review-accept"))
    return applied(hands)


def change_by_keys(page: Page) -> Hands:
    hands = Hands(page)
    hands.press("g r")
    listed(page)
    hands.press("j")
    hands.press("r")
    stepped(page, "Proposed changes")
    hands.press("c")
    stepped(page, "Confirm")
    hands.press("Control+Enter")
    return applied(hands)


def listed(page: Page) -> None:
    """To do is there with its rows."""
    expect(page.get_by_role("heading", level=1)).to_have_text("To do")
    page.wait_for_function(READY)


def stepped(page: Page, title: str) -> None:
    expect(page.locator("#review-title")).to_have_text(title)
    expect(page.locator("#review-frame")).not_to_have_class(re.compile("waiting"))


def applied(hands: Hands) -> Hands:
    stepped(hands.page, "Result")
    expect(hands.page.locator("#review-outcome-words")).to_contain_text(re.compile(r"\b1 applied"))
    return hands


def plan_by_mouse(page: Page) -> Hands:
    hands = Hands(page)
    hands.click(page.locator("#place-peaks"))
    expect(page.locator("#plan-next")).to_be_visible()
    # The plan that was approved by keys before may stand open: it is not the first visit that it would be.
    if "Waiting for approval." not in page.locator("#plan-next").inner_text():
        hands.click(page.locator("#live-plans tbody tr", has_text="Proposed").locator("a").first)
    expect(page.locator("#plan-next")).to_contain_text("Waiting for approval.")
    hands.click(page.get_by_role("button", name="Approve", exact=True))
    hands.click(page.get_by_role("button", name="Approve now", exact=True))
    return approved(hands)


def plan_by_keys(page: Page) -> Hands:
    hands = Hands(page)
    hands.press("g v")
    expect(page.locator("#plan-next")).to_contain_text("Waiting for approval.")
    page.wait_for_function(READY)
    hands.press("a")
    expect(page.locator("#plan-approve-now")).to_be_focused()
    hands.press("Enter")
    return approved(hands)


def approved(hands: Hands) -> Hands:
    expect(hands.page.locator("#plan-done")).to_contain_text(re.compile("^Approved "))
    return hands


def risk_by_mouse(page: Page) -> Hands:
    hands = Hands(page)
    hands.click(page.get_by_text(answers.TITLE))
    hands.click(page.get_by_role("link", name="What would more risk lend me?"))
    return answered(hands)


def risk_by_keys(page: Page) -> Hands:
    hands = Hands(page)
    hands.press("g t")
    return answered(hands)


def answered(hands: Hands) -> Hands:
    expect(hands.page.locator("#what-if-outcome .stat-value").first).to_contain_text("cores")
    hands.page.wait_for_function(READY)
    return hands


WAYS: Final[dict[str, dict[str, Callable[[Page], Hands]]]] = {
    "a change applied": {"keys": change_by_keys, "mouse": change_by_mouse},
    "a plan approved": {"keys": plan_by_keys, "mouse": plan_by_mouse},
    "what a risk of 1 % would lend": {"keys": risk_by_keys, "mouse": risk_by_mouse},
}


if __name__ == "__main__":
    main()
