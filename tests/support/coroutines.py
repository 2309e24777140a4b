"""Coroutines in tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Answer = TypeVar("Answer")


def run_coroutine(ask: Callable[[], Coroutine[Any, Any, Answer]]) -> Answer:
    """Run it in a thread of its own: a test of browsers in this process leaves its event loop running."""
    with ThreadPoolExecutor(1) as other_thread:
        return other_thread.submit(lambda: asyncio.run(ask())).result()
