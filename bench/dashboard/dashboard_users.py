"""Ten people at once who walk, filter, sort and search: three Chromium contexts, seven that ask what a browser asks.

Part of bench.dashboard.dashboard.

    .venv/bin/python -m bench.dashboard.dashboard_users [SECONDS]    only this part, printed and not recorded

The browsers run on the machine that serves, and ten of them would measure how two cores share drawing. So the answer
that a person waits for is what is held against the goal: from the browsers' own network timing, and from the clients.
Until a page is drawn, in the browsers, is told beside it.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench.record import Row, below
from cotenant.dashboard import pages

BROWSERS: Final = 3
CLIENTS: Final = 7
THINK_SECONDS: Final = (1.5, 4.0)
CLIENT_THINK_SECONDS: Final = (0.3, 1.2)
PAGES: Final = {page.letter: page.title for page in pages.ALL if page.letter in tuple("owrnpfih")}
LISTS: Final = tuple(PAGES[letter] for letter in "wrpi")
PAGE_DRAWN: Final = """title => document.querySelector('#page h1')?.textContent === title
    && !document.querySelector('#page [aria-busy=true]')"""
ROWS_SHOWN: Final = """() => { const first = [...document.querySelectorAll('.ag-row[row-index="0"]')];
    return document.querySelector('.grid-frame.nothing') !== null
        || first.some(row => !row.classList.contains('ag-row-loading') && row.textContent.trim() !== ''); }"""
ROWS_BACK: Final = "() => document.querySelector('.grid-frame.nothing') === null && (" + ROWS_SHOWN + ")()"
WAITED: Final = """() => { const all = performance.getEntriesByType('resource')
        .filter(e => /_dash-update-component|api[/]v1/.test(e.name)).map(e => e.responseEnd - e.startTime);
    performance.clearResourceTimings(); return all; }"""


@dataclass
class Seen:
    """What the users met: ms per click until drawn, ms per request, and what went wrong."""

    clicks: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def users(url: str, seconds: float, ask: Callable[[np.random.Generator], object]) -> list[Row]:
    """Rows of the benchmark; `ask` does what one click of a client asks of the server."""
    browser_record, client_record = Seen(), Seen()
    until = time.monotonic() + seconds
    threads = [threading.Thread(target=_asking, args=(k, until, ask, client_record)) for k in range(CLIENTS)]
    for thread in threads:
        thread.start()
    asyncio.run(_all(url, until, browser_record))
    for thread in threads:
        thread.join()
    waits, errors, who = (
        browser_record.waits + client_record.waits,
        browser_record.errors + client_record.errors,
        f"{BROWSERS + CLIENTS} users clicking",
    )
    note = f"{len(waits):,} requests in {seconds:.0f} s; {BROWSERS} browsers, {CLIENTS} clients"
    p95 = [float(np.percentile(np.array(times or [np.nan]), 95)) for times in (waits, browser_record.clicks)]
    return [
        below(f"{who}, answer, p95", p95[0], "ms", 500, note),
        Row(
            f"{who}, page drawn, p95",
            p95[1],
            "ms",
            note=f"{len(browser_record.clicks):,} clicks in browsers beside the server",
        ),
        below(f"{who}, errors", len(errors), "", 0, "; ".join(errors[:2])),
    ]


def _asking(number: int, until: float, ask: Callable[[np.random.Generator], object], client_record: Seen) -> None:
    rng = np.random.default_rng(100 + number)
    while time.monotonic() < until:
        start = time.perf_counter()
        try:
            ask(rng)
        except (OSError, AssertionError) as error:
            client_record.errors.append(repr(error))
        client_record.waits.append(1000 * (time.perf_counter() - start))
        time.sleep(float(rng.uniform(*CLIENT_THINK_SECONDS)))


async def _all(url: str, until: float, browser_record: Seen) -> None:
    from playwright.async_api import async_playwright

    flags = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        opened = [await _opened(browser, url, browser_record) for _ in range(BROWSERS)]
        await asyncio.gather(*(_use(page, number, until, browser_record) for number, page in enumerate(opened)))
        await browser.close()


async def _opened(browser: Any, url: str, browser_record: Seen) -> Any:
    """A page of a user of its own; console errors, page errors and refused requests are errors."""
    context = await browser.new_context(viewport={"width": 1440, "height": 900}, bypass_csp=True)
    page = await context.new_page()
    page.set_default_timeout(60_000)
    page.on("console", lambda m: browser_record.errors.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda error: browser_record.errors.append(str(error)))
    page.on("response", lambda response: browser_record.errors.append(response.url) if response.status >= 400 else None)
    await page.goto(url)
    await page.wait_for_function(PAGE_DRAWN, arg=PAGES["o"])
    await page.evaluate("performance.setResourceTimingBufferSize(5000)")
    return page


async def _use(page: Any, number: int, until: float, browser_record: Seen) -> None:
    rng = np.random.default_rng(number)
    await page.evaluate(WAITED)
    while True:
        await asyncio.sleep(float(rng.uniform(*THINK_SECONDS)))
        if time.monotonic() >= until:
            return
        title = await page.evaluate("document.querySelector('#page h1')?.textContent")
        kind = rng.choice(["walk", "filter", "sort", "search"]) if title in LISTS else "walk"
        act: Callable[[Any, np.random.Generator], Awaitable[None]] = ACTS[str(kind)]
        start = time.perf_counter()
        try:
            await act(page, rng)
        except Exception as error:  # noqa: BLE001 whatever a person would meet counts, and the run goes on
            browser_record.errors.append(f"{kind} on {title}, now {page.url}: {error!r}"[:300])
        browser_record.clicks.append(1000 * (time.perf_counter() - start))
        browser_record.waits += await page.evaluate(WAITED)


async def walk(page: Any, rng: np.random.Generator) -> None:
    """To another page by keyboard."""
    now = await page.evaluate("document.querySelector('#page h1')?.textContent")
    letter = str(rng.choice([key for key, title in PAGES.items() if title != now]))
    await page.keyboard.press("Escape")
    await page.keyboard.press("g")
    await page.keyboard.press(letter)
    await page.wait_for_function(PAGE_DRAWN, arg=PAGES[letter])
    if PAGES[letter] in LISTS:
        await page.wait_for_function(ROWS_SHOWN)


async def narrow(page: Any, rng: np.random.Generator) -> None:
    """One value of a facet more, or one less."""
    links = page.locator(".facet-link")
    await links.nth(int(rng.integers(max(1, min(6, await links.count()))))).click()
    await page.wait_for_function(ROWS_SHOWN)


async def sort(page: Any, rng: np.random.Generator) -> None:
    """By another column; an empty list has no head to click, and says how to fill it."""
    if await page.locator(".grid-frame.nothing").count():
        await page.locator("a.button", has_text="Clear filters").click()
        await page.wait_for_function(ROWS_BACK)
    heads = page.locator(".ag-header-cell-label")
    await heads.nth(int(rng.integers(1, 5))).click()
    await page.wait_for_function(ROWS_SHOWN)


async def search(page: Any, rng: np.random.Generator) -> None:
    """For a letter, or for nothing."""
    await page.keyboard.press("/")
    await page.locator("#search").fill(str(rng.choice(["", *"abcdefghij"])))
    await page.keyboard.press("Tab")
    await page.wait_for_function(ROWS_SHOWN)


ACTS: Final[dict[str, Any]] = {"walk": walk, "filter": narrow, "sort": sort, "search": search}


def main() -> None:
    """Only the users, on the results of bench.dashboard.dashboard."""
    from bench.dashboard.dashboard import Process, click, results

    with tempfile.TemporaryDirectory() as folder, Process(results(Path(folder))) as server:
        for row in users(server.url, float(sys.argv[1]) if len(sys.argv) > 1 else 300.0, click(server)):
            print(row)


if __name__ == "__main__":
    main()
