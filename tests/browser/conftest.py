"""Real Chromium on a dashboard of real results; a test that leaves a console error fails."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Literal

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, ViewportSize, expect, sync_playwright

from tests.support import chromium as chromium_program
from tests.support import dashboard as support
from tools import fetch_plotly

ROOT = Path(__file__).resolve().parents[2]
BRIEF: Final = "--js-flags=--no-opt --no-maglev"
"""A page lives for seconds here: to optimise its program costs a tenth of its opening and pays for nothing."""
SIZE: Final[ViewportSize] = {"width": 1440, "height": 900}
PATIENCE_MS: Final = 60_000
"""How long anything may take to appear: on a loaded machine a page needs half a minute."""
CALLBACKS: Final = re.compile("/_dash-update-component")
"""Addresses at which the page's callbacks are asked; a pattern to their end would leave out the query that follows."""
Open = Callable[..., Page]

expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="session")
def demo_results(tmp_path_factory: pytest.TempPathFactory) -> support.Results:
    return support.results(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="session")
def address(demo_results: support.Results) -> Iterator[str]:
    with support.served(support.app_of(demo_results)) as url:
        yield url


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    path = chromium_program.installed()
    if path is None:
        pytest.fail("Chromium is missing: apt-get install chromium, or name it in COTENANT_CHROMIUM")
    with sync_playwright() as playwright:
        browser = chromium_program.launched(playwright, path, BRIEF)
        yield browser
        browser.close()


@pytest.fixture
def cpu_slowdown() -> int:
    """How many times slower than this machine a page's own program runs; a test asks for more by ON_A_SLOW_MACHINE."""
    return 1


ON_A_SLOW_MACHINE: Final = pytest.mark.parametrize("cpu_slowdown", [4])


@pytest.fixture
def open_page(chromium: Browser, cpu_slowdown: int) -> Iterator[Open]:
    """Open an address in a browser profile of its own; console errors and page errors fail the test at its end."""
    errors: list[str] = []
    contexts = []

    def note(message: ConsoleMessage) -> None:
        if message.type == "error":
            record(message.text)

    def record(text: str) -> None:
        # A test that had a server of its own ends it before the page: what the page still asks is refused, rightly.
        disconnects = (
            "ERR_CONNECTION_REFUSED",
            "ERR_CONNECTION_RESET",
            "Failed to fetch",
            "the server did not respond",
        )
        part_of_ended = "Loading chunk" in text and any(address in text for address in support.ENDED_ADDRESSES)
        if not part_of_ended and not any(phrase in text for phrase in disconnects):
            errors.append(text)

    def opened(
        url: str,
        *,
        theme: Literal["light", "dark"] = "light",
        size: ViewportSize = SIZE,
        quiet: bool = False,
        policed: bool = False,
    ) -> Page:
        # Waiting for a function is done by eval, which the pages' own policy forbids: test_access has it in force.
        context = chromium.new_context(
            color_scheme=theme, viewport=size, locale="en-US", timezone_id="Asia/Tokyo", bypass_csp=not policed
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        if cpu_slowdown > 1:
            context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": cpu_slowdown})
        if not quiet:
            page.on("console", note)
            page.on("pageerror", lambda error: record(str(error)))
        page.goto(url)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert errors == []


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core, by version and integrity; skipped where it is neither cached nor to be had."""
    try:
        return fetch_plotly.fetch(Path(__file__).with_name("axe.lock.json")).read_text()
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        pytest.skip(f"axe-core cannot be fetched: {error}")
