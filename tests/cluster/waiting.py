"""Waiting for a condition of a cluster, instead of sleeping."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

CEILING_SECONDS = 120.0
T = TypeVar("T")


def wait_for(
    what: str, look: Callable[..., T | None], seconds: float = CEILING_SECONDS, every: float | None = None
) -> T:
    """The first true answer of `look`; AssertionError that says what was waited for and what was seen last.

    look: called without arguments; a lambda in a loop has its variables as defaults.
    every: seconds between two looks, for what is there only for a moment. None: 0.05 at first and 0.2 after 3 s,
    because looks of tests side by side take the processor from what is waited for.
    """
    start = time.monotonic()
    while not (t := look()):
        waited = time.monotonic() - start
        assert waited < seconds, f"not within {seconds:g} s: {what}; last seen: {t!r}"
        time.sleep(min(0.05 + waited / 20, 0.2) if every is None else every)
    return t
