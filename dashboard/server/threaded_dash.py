"""Dash whose callbacks run in threads: one that waits for a cluster delays no other request and no probe.

On this server Dash runs a plain callback on the event loop, where everything waits for it. The context is copied:
the person, what was triggered, and what `set_props` writes. What layout and callbacks return is joined (`markup`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, wraps
from typing import Any

from anyio.to_thread import run_sync
from dash import Dash, Output

from cotenant.dashboard.server import markup


class ThreadedDash(Dash):
    """The same, with every callback of the server in a thread of its own, and few components."""

    def __init__(self, *args: Any, set_by_name: frozenset[str] = frozenset(), **kwargs: Any) -> None:
        """set_by_name: ids that `set_props` writes, beside those of the callbacks' declared outputs."""
        super().__init__(*args, **kwargs)
        self._set_by_name = set_by_name

    def set_up(self) -> None:
        """Finish once layout and callbacks are there: Dash would in the first request, on the event loop and unlogged.

        Raises what the layout raises, which must be drawn without a request and without reading results.
        """
        self._setup_server()

    def joined(self, part: Any) -> Any:
        """A component or children with as few components as the callbacks allow; all of these must be registered."""
        return markup.join(part, self._addressed_ids)

    def _part(self, output: Output, part: Any) -> Any:
        """Join what a callback returns for an output; children that go become an empty list.

        The renderer forgets the places of components below only where children come. An answer under way to one that
        is gone would be written to its old place, and fail there.
        """
        is_empty = output.component_property == "children" and (part is None or part == "")
        return [] if is_empty else self.joined(part)

    @cached_property
    def _addressed_ids(self) -> frozenset[str]:
        return self._set_by_name | markup.addressed_ids(self.callback_map)

    def callback(self, *args: Any, **kwargs: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Register a callback like Dash's, but run it in a thread and return its parts joined."""
        register = super().callback(*args, **kwargs)
        outputs = [arg for arg in args if isinstance(arg, Output)]

        def register_callback(function: Callable[..., Any]) -> Callable[..., Any]:
            @wraps(function)
            def answer(*inputs: Any) -> Any:
                result = function(*inputs)
                if len(outputs) > 1 and isinstance(result, list | tuple):
                    return tuple(map(self._part, outputs, result))
                return self._part(outputs[0], result) if len(outputs) == 1 else self.joined(result)

            register(in_a_thread(answer))
            return function

        return register_callback


def in_a_thread(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as a coroutine; its attributes stay readable on it."""

    @wraps(function)
    async def run_in_thread(*args: Any) -> Any:
        return await run_sync(function, *args)

    return run_in_thread
