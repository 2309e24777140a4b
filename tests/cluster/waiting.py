"""Waiting for a condition of a cluster, instead of sleeping."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

CEILING_SECONDS = 120.0
T = TypeVar("T")


def wait_for(what: str, look: Callable[[], T], seconds: float = CEILING_SECONDS, every: float = 0.05) -> T:
    """The first true answer of `look`; AssertionError that says what was waited for and what was seen last."""
    deadline = time.monotonic() + seconds
    while not (seen := look()):
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}; last seen: {seen!r}"
        time.sleep(every)
    return seen
