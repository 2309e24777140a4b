"""Dash whose callbacks run in threads, so that one that waits for a cluster delays no other request and no probe.

On this server Dash runs a plain callback on the event loop, which it blocks. The context is copied to the thread: the
person, what was triggered, and what `set_props` writes. What layout and callbacks return is joined (`markup.join`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, wraps
from typing import Any

from anyio.to_thread import run_sync
from dash import Dash, Output

from cotenant.dashboard.server import markup


class ThreadedDash(Dash):
    """A Dash application whose server callbacks run in threads, and whose pages have few components."""

    def __init__(self, *args: Any, set_by_name: frozenset[str] = frozenset(), **kwargs: Any) -> None:
        """Create the application; `set_by_name` has ids that `set_props` writes, beside declared outputs."""
        super().__init__(*args, **kwargs)
        self._set_by_name = set_by_name

    def set_up(self) -> None:
        """Finish Dash's setup now; the first request would otherwise do it on the event loop and log no error.

        This calls the layout function, whose errors are raised. That function must need no request and read no results.
        """
        self._setup_server()

    def joined(self, part: Any) -> Any:
        """Return a page part joined to few components (`markup.join`); all callbacks have to be registered before."""
        return markup.join(part, self._addressed_ids)

    def _part(self, output: Output, part: Any) -> Any:
        """Join what a callback returns for an output; children that are removed become an empty list.

        The renderer forgets the positions of components below only when it gets children. Otherwise a pending response
        to a removed component would be written to its old position, and fail there.
        """
        is_empty = output.component_property == "children" and (part is None or part == "")
        return [] if is_empty else self.joined(part)

    @cached_property
    def _addressed_ids(self) -> frozenset[str]:
        return self._set_by_name | markup.addressed_ids(self.callback_map)

    def callback(self, *args: Any, **kwargs: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Register a Dash callback that runs in a thread and whose returned page parts are joined (`markup.join`)."""
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
    """Return the function as a coroutine that runs it in a thread; it keeps the function's attributes."""

    @wraps(function)
    async def run_in_thread(*args: Any) -> Any:
        return await run_sync(function, *args)

    return run_in_thread
