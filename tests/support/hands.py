"""A person at a page who counts what they do."""

from __future__ import annotations

from dataclasses import dataclass, field

from playwright.sync_api import Locator, Page


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
