"""Parts of pages that are redrawn when their URL, the results, or the data read from a cluster change."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from dash import Dash, Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component

from cotenant.base.errors import CotenantError
from cotenant.dashboard.frame import panels
from cotenant.dashboard.frame.shell import path_of
from cotenant.dashboard.frame.view import View

LiveState = Callable[[View, str], Any]
"""Returns everything that a page shows at a query string, except the time, for msgspec; None without a cluster."""


@dataclass(frozen=True, slots=True)
class LivePart:
    """A part of a page: the title shown above an error, and the function that draws it from the query string."""

    title: str
    draw: Callable[[View, str], Component]

    def panel_of(self, view: View, search: str) -> Component:
        """Return the drawn part, or why it could not be drawn."""
        return panels.render_guarded(lambda: self.draw(view, search), self.title)


def redraw(app: Dash, view: View, path: str, parts: Mapping[str, LivePart], news: str = "version") -> None:
    """Register the callback that redraws a page's `parts`, by element id, when its URL or the store `news` changes.

    `news` is the id of the store that changes with newer results.
    """

    @app.callback(
        *[Output(id_, "children") for id_ in parts],
        Input("url", "search"),
        Input(news, "data"),
        State("url", "pathname"),
    )
    def _redraw(search: str | None, _news: str | None, pathname: str | None) -> Any:
        here = path_of(pathname or "", view.settings) == path
        drawn = [part.panel_of(view, search or "") if here else no_update for part in parts.values()]
        return drawn if len(drawn) > 1 else drawn[0]


@dataclass(frozen=True, slots=True)
class LivePage:
    """A page's parts by the suffix of their element ids; `acted` is the store written after an action on the page."""

    path: str
    state: LiveState
    parts: Mapping[str, LivePart]
    acted: str = ""

    def part(self, name: str, view: View, search: str) -> Component:
        """Return the drawn element of one part."""
        return html.Div(self.parts[name].panel_of(view, search), id=f"{self.path}-{name}")

    def store(self, view: View, search: str) -> Component:
        """Return the store that signals to the page's callback whether anything has changed."""
        return dcc.Store(id=f"{self.path}-mark", data=self.mark(view, search))

    def mark(self, view: View, search: str) -> str:
        """Return a string that changes whenever anything on the page except the time does."""
        try:
            state = self.state(view, search)
        except CotenantError as error:
            state = error.message
        return search if state is None else f"{zlib.crc32(msgspec.json.encode(state)):08x}{search}"

    def register(self, app: Dash, view: View) -> None:
        """Register the callback that redraws the parts when the state or the URL changes."""
        acted = [Input(self.acted, "data")] if self.acted else []

        @app.callback(
            *[Output(f"{self.path}-{name}", "children") for name in self.parts],
            Output(f"{self.path}-mark", "data"),
            Input("tick", "n_intervals"),
            Input("url", "search"),
            *acted,
            State(f"{self.path}-mark", "data"),
            State("url", "pathname"),
        )
        def _follow(_ticks: int | None, search: str | None, *rest: Any) -> list[Any]:
            *_acted, shown, pathname = rest
            text = search or ""
            here = path_of(pathname or "", view.settings) == self.path
            mark = self.mark(view, text) if here else shown
            if mark == shown:
                return [no_update] * (len(self.parts) + 1)
            return [*(part.panel_of(view, text) for part in self.parts.values()), mark]
