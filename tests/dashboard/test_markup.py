"""Few components a page: HTML that no callback addresses is one component, and is the same HTML."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dash import dcc, html
from dash.development.base_component import Component
from hypothesis import given
from hypothesis import strategies as st

from cotenant.dashboard import pages
from cotenant.dashboard.frame import callbacks, shell
from cotenant.dashboard.frame.view import View
from cotenant.dashboard.pages import recommendations
from cotenant.dashboard.server.markup import Markup, addressed_ids, join
from cotenant.dashboard.sources.source import StoreSource
from cotenant.dashboard.tables import list_page
from tests.support import dashboard as support

CALLED = frozenset({"called", "sum"})
MOST_COMPONENTS = 180
"""Of the frame with its search and the list of recommendations with its filters: 600 before they were joined."""


def unjoined(part: Any) -> Any:
    """The parts as JSON as if nothing had been joined; children always as one flat list."""
    if isinstance(part, list | tuple):
        return [piece for child in part for piece in unjoined(child)]
    if isinstance(part, Markup):
        return unjoined(part.content)
    if not isinstance(part, Component):
        return [] if part is None else [part]
    plotly = part.to_plotly_json()
    return [{**plotly, "inside": unjoined(plotly["props"].pop("children", None))}]


def components(part: Any) -> Iterator[Component]:
    """What Dash's renderer keeps an entry for."""
    if isinstance(part, list | tuple):
        for child in part:
            yield from components(child)
    elif isinstance(part, Component):
        yield part
        yield from components(getattr(part, "children", None))


def elements(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    inside = st.lists(children, max_size=4)
    names = st.sampled_from([{}, {}, {"id": "called"}, {"id": "aside"}, {"id": {"type": "called"}}])
    return st.one_of(
        st.builds(lambda kids, name: html.Div(kids, className="x", **name), inside, names),
        st.builds(lambda kid: html.Span(kid, title="t"), children),
        st.builds(lambda kids: dcc.Link(kids, href="?q=a"), inside),
        st.builds(dcc.Loading, inside),
    )


PARTS = st.recursive(st.one_of(st.none(), st.text(max_size=3), st.integers(0, 9)), elements, max_leaves=14)


def stays(component: Component) -> bool:
    """Whether a callback or Dash's own code needs the component itself."""
    return getattr(component, "id", None) not in (None, "aside") or isinstance(component, dcc.Loading)


@given(PARTS)
def test_what_is_joined_says_the_same_and_callbacks_reach_what_they_address(part: Any) -> None:
    before = unjoined(part)
    joined = join(part, CALLED)
    assert unjoined(joined) == before == unjoined(part)
    reached = [[type(c) for c in components(tree) if stays(c)] for tree in (part, joined)]
    assert reached[0] == reached[1]


def test_neighbours_are_one_component_and_the_one_between_stays() -> None:
    called = html.Div([html.B("1"), html.B("2")], id="called")
    joined = join(html.Div([html.P("a"), html.P("b"), called, "c", html.P(html.B("d"))]), CALLED)
    assert [type(c) for c in joined.children] == [Markup, html.Div, Markup]
    assert isinstance(called.children, list) and isinstance(joined.children[1].children, Markup)
    assert isinstance(join(html.P("alone"), CALLED), html.P)


def test_a_page_has_few_components_and_callbacks_reach_theirs(demo_results: support.Results) -> None:
    dash = support.app_of(demo_results).state.dash
    source = StoreSource(demo_results.store, support.QUICK)
    view, snapshot = View(source, support.QUICK, lambda: demo_results.end_seconds), source.snapshot()
    parts = [
        shell.layout(view, pages.ALL),
        recommendations.render(view, ""),
        list_page.facets(recommendations.LIST, snapshot, ""),
        list_page.tools(recommendations.LIST, view, ""),
    ]
    joined = [dash.joined(part) for part in parts]
    assert unjoined(joined) == unjoined(parts)
    called = addressed_ids(dash.callback_map) | {callbacks.SAID}
    ids = [[c.id for c in components(tree) if getattr(c, "id", None) in called] for tree in (parts, joined)]
    assert ids[0] == ids[1] and {"page", "nav", "selection", callbacks.SAID} <= set(ids[1])
    assert sum(1 for _ in components(joined)) <= MOST_COMPONENTS < sum(1 for _ in components(parts)) / 3
