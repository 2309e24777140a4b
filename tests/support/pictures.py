"""Pictures of pages for README and docs, made by the browser tests, so that they cannot part from the product."""

from __future__ import annotations

import fcntl
import json
import os
import re
from pathlib import Path
from typing import Final

from playwright.sync_api import Page

IMAGES: Final = Path(__file__).resolve().parents[2] / "docs" / "images"
PAGES: Final = (
    "overview", "workloads", "portrait", "recommendations", "changes", "nodes", "node", "pods", "forecast",
    "reservations", "autopilot", "queues", "rebalance", "batch", "what-if", "enforcement-acts", "findings", "health",
)  # fmt: skip
"""Every page, in both themes."""
HEIGHTS: Final = {
    **{f"{page}-{theme}": 0 for page in PAGES for theme in ("light", "dark")},
    "overview-light": 1060,
    "overview-dark": 1060,
    "explanation-light": 0,
    "portrait-light": 1290,
    "portrait-dark": 1290,
    "demo-tour": 0,
    "demo-review": 0,
    "demo-reservations": 0,
    "demo-enforcement": 0,
    "demo-changes": 0,
}
"""Pictures that are kept, and the height of the window they are taken in; 0 = as it is."""
LIMIT_BYTES: Final = 320_000
RECORD: Final = IMAGES / "pictures.json"
"""What the headings and tiles of each kept picture said when it was taken."""
SIGNS: Final = "h1, h2, .stat-label"


def pictured(page: Page, name: str, elsewhere: Path) -> None:
    """Take a picture if it is kept and missing, or if COTENANT_PICTURES asks: of what is not kept, one `elsewhere`.

    An ordinary run takes none: a window drawn anew and encoded costs as much as a fifth of a page's opening.
    """
    picture, is_taking = IMAGES / f"{name}.png", bool(os.environ.get("COTENANT_PICTURES"))
    page_signs = signs_of(page) if name in HEIGHTS else []
    if not is_taking and (name not in HEIGHTS or picture.exists()):
        if name in HEIGHTS:
            assert picture.stat().st_size < LIMIT_BYTES
            assert recorded().get(name) == page_signs, (
                f"{picture.name} is older than its page: run with COTENANT_PICTURES=1"
            )
        return
    target = picture if name in HEIGHTS else elsewhere / picture.name
    target.parent.mkdir(parents=True, exist_ok=True)
    if HEIGHTS.get(name):
        page.set_viewport_size({"width": 1440, "height": HEIGHTS[name]})
        page.wait_for_timeout(300)  # charts fit themselves to the new size
    page.screenshot(path=target)
    assert target.stat().st_size < LIMIT_BYTES
    if name in HEIGHTS:
        record(name, page_signs)


def signs_of(page: Page) -> list[str]:
    """Headings and names of tiles on a page, each once, without their numbers: what a change of the page changes."""
    shown = page.evaluate("css => [...document.querySelectorAll(css)].map(it => it.textContent)", SIGNS)
    return sorted({re.sub(r"\d[\d,.:]*", "#", text).strip() for text in shown} - {""})


def recorded() -> dict[str, list[str]]:
    """By the name of the picture."""
    return json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}


def record(name: str, page_signs: list[str]) -> None:
    """Note what a picture shows, beside those that other processes take at the same time."""
    with (IMAGES / ".pictures.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        text = json.dumps({**recorded(), name: page_signs}, indent=1, sort_keys=True, ensure_ascii=False)
        RECORD.write_text(f"{text}\n", encoding="utf-8")
