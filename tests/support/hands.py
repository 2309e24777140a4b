"""A person at a page who counts what they do."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from playwright.sync_api import Locator, Page, expect


def ways_to(page: Page, letter: str) -> list[Locator]:
    """What a mouse clicks to reach the page of a letter: its link, where that is folded its place before."""
    link = page.locator(f"#nav-{letter}")
    link.wait_for(state="attached")
    if link.is_visible():
        return [link]
    return [page.locator(f".place:has(#nav-{letter}) > .nav-link"), link]


def go_to(page: Page, letter: str) -> None:
    """Click the way to the page of a letter."""
    first, *rest = ways_to(page, letter)
    first.click()
    for way in rest:
        # A place opens its first page: before that is there its link is not marked, and a click on it would be a second
        # entry of the history.
        expect(first).to_have_class(re.compile(r"\bcurrent\b"))
        if "current" not in (way.get_attribute("class") or ""):
            way.click()


@dataclass
class Hands:
    """A click, a key, or a shortcut that the help lists as one is one action."""

    page: Page
    actions: int = 0
    presses: int = 0
    did: list[str] = field(default_factory=list)

    def click(self, what: Locator) -> None:
        what.click()
        self._count("click", 1)

    def press(self, shortcut: str) -> None:
        keys = shortcut.split(" ")
        for key in keys:
            self.page.keyboard.press(key)
        self._count(shortcut, len(keys))

    def _count(self, what: str, presses: int) -> None:
        self.actions += 1
        self.presses += presses
        self.did.append(what)
