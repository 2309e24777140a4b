"""Chromium as tests and benches launch it."""

from __future__ import annotations

import os
import shutil
from typing import Final

from playwright.sync_api import Browser, Playwright

_BROWSERS: Final = ("chromium-headless-shell", "chromium", "chromium-browser")
"""The first that is installed is used: without its windows Chromium takes half the processor time."""
_FLAGS: Final = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-software-rasterizer",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-features=OverlayScrollbar",
)


def installed() -> str | None:
    """The program's path; None where there is none."""
    return os.environ.get("COTENANT_CHROMIUM") or next(filter(None, map(shutil.which, _BROWSERS)), None)


def launched(driver: Playwright, path: str, *flags: str) -> Browser:
    """A browser with scrollbars, 15 pixels wide, as people on Linux and Windows have them: Playwright hides them."""
    return driver.chromium.launch(
        executable_path=path, args=[*_FLAGS, *flags], ignore_default_args=["--hide-scrollbars"]
    )
