"""Dash whose callbacks run in threads: one that waits for a cluster holds up nobody else, nor the kubelet's probes.

On this server Dash runs a plain callback on the event loop, where everything waits for it. The context is copied:
the person, what was triggered, and what `set_props` writes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from anyio.to_thread import run_sync
from dash import Dash


class ThreadedDash(Dash):
    """The same, with every callback of the server in a thread of its own."""

    def callback(self, *args: Any, **kwargs: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """As Dash's."""
        register = super().callback(*args, **kwargs)

        def registered(function: Callable[..., Any]) -> Callable[..., Any]:
            register(in_a_thread(function))
            return function

        return registered


def in_a_thread(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as a coroutine; its attributes stay readable on it."""

    @wraps(function)
    async def threaded(*args: Any) -> Any:
        return await run_sync(function, *args)

    return threaded
