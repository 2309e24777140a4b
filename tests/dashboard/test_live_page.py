"""A page that is read live is drawn again when what it shows or its address changes, and left alone otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dash import Dash, html, no_update

from cotenant.base.errors import ClusterUnreachable
from cotenant.dashboard.frame.live_page import LivePage, LivePart
from cotenant.dashboard.frame.view import DashboardContext, View
from tests.support import dashboard as support


@dataclass
class Rows:
    """What the page shows; None: there is no cluster."""

    rows: list[str] | None

    def read(self, _view: View, _search: str) -> list[str] | None:
        if self.rows == ["away"]:
            raise ClusterUnreachable("no answer")
        return self.rows

    def draw(self, _view: View, search: str) -> html.Div:
        return html.Div(f"{self.rows} {search}")


VIEW = View(None, support.QUICK, lambda: 0.0, DashboardContext())  # type: ignore[arg-type]


def page_of(rows: Rows, acted: str = "") -> tuple[LivePage, Callable[..., list[Any]]]:
    page = LivePage("stock", rows.read, {"body": LivePart("Stock", rows.draw)}, acted)
    app = Dash(__name__)
    page.register(app, VIEW)
    (callback,) = app.callback_map.values()
    return page, callback["callback"].__wrapped__


def test_it_is_drawn_again_when_rows_or_address_change() -> None:
    rows = Rows(["a"])
    page, follow = page_of(rows)
    shown = page.mark(VIEW, "")
    assert follow(1, "", shown, "/stock") == [no_update, no_update]
    body, other = follow(1, "?show=b", shown, "/stock")
    assert body.children == "['a'] ?show=b" and other == page.mark(VIEW, "?show=b") != shown
    rows.rows = ["a", "b"]
    body, newer = follow(2, "", shown, "/stock")
    assert body.children == "['a', 'b'] " and newer not in (shown, other)


def test_after_an_act_it_looks_at_once() -> None:
    rows = Rows(["a"])
    page, follow = page_of(rows, "stock-acted")
    shown = page.mark(VIEW, "")
    rows.rows = []
    assert follow(1, "", 12.0, shown, "/stock")[0].children == "[] "


def test_another_page_stays_as_it_is() -> None:
    _, follow = page_of(Rows(["a"]))
    assert follow(1, "", "an old mark", "/nodes") == [no_update, no_update]


def test_an_error_is_a_state_like_any_other() -> None:
    rows = Rows(["away"])
    page, follow = page_of(rows)
    away = page.mark(VIEW, "")
    assert follow(1, "", away, "/stock") == [no_update, no_update]
    rows.rows = ["a"]
    assert follow(1, "", away, "/stock")[1] != away
    assert page_of(Rows(None))[0].mark(VIEW, "?show=b") == "?show=b"
