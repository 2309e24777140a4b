"""A page that lists a table: facets on the side, chips of active filters, totals, export links and the grid.

Everything that narrows the list is a link: the URL holds the state, so it can be shared and reloaded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import dash_mantine_components as dmc
from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html
from dash.development.base_component import Component

from cotenant.model.errors import UsageError
from cotenant.model.table import Schema
from cotenant.model.text import visible
from dashboard import display, filters, grid, panels
from dashboard.filters import Query
from dashboard.source import Snapshot
from dashboard.view import View

FACET_VALUES: Final = 40
PATCHES: Final = "What applies the recommendations of these rows, as YAML to review and apply elsewhere"


@dataclass(frozen=True, slots=True)
class Listing:
    """What distinguishes one list from another."""

    schema: Schema
    path: str
    noun: str
    shown: tuple[str, ...]
    facets: tuple[tuple[str, str], ...]
    """(filter key, title)."""
    order: str
    """The sort of a fresh page, in the grammar of the URL."""
    totals: Callable[[Snapshot, Query], Sequence[Component]] = lambda _snapshot, _query: ()
    shape: Callable[[Sequence[dict[str, Any]]], None] = lambda _definitions: None
    """Last touches on the column definitions."""
    patches: bool = False
    """Whether its rows can be exported as YAML that applies them."""

    def query(self, search: str) -> Query:
        """The URL's query, in the list's own order unless the URL says another."""
        parsed = filters.parse(search, self.schema)
        return parsed if parsed.sort else filters.parse(f"{search.lstrip('?')}&sort={self.order}", self.schema)


def body(listing: Listing, view: View, search: str) -> Component:
    """The page below its heading."""
    name = listing.schema.name
    if view.source.snapshot().overview is None:
        return panels.no_results()
    try:
        query = listing.query(search)
    except UsageError:
        query = listing.query("")
    shown = _columns(listing, search)
    table = grid.component(listing.schema, shown, query, view.settings.page_rows)
    listing.shape(table.columnDefs)
    frame = html.Div(
        [table, html.Div(id=f"trouble-{name}", className="trouble", role="alert", hidden=True)],
        className="grid-frame",
        id=f"frame-{name}",
        **{
            "data-path": listing.path,
            "data-order": listing.order,
            "data-columns": ",".join(listing.shown),
            "data-key": ",".join(listing.schema.key),
            "data-shown": "",
        },
    )
    side = html.Aside(panels.skeleton(160, 160), id=f"facets-{name}", className="facets", **{"aria-label": "Filters"})
    tools = html.Div(panels.skeleton(34), id=f"tools-{name}", className="tools")
    head = html.Div([tools, _chooser(listing, shown)], className="list-head")
    return html.Div([side, html.Div([head, frame], className="list-main")], className="list")


def _columns(listing: Listing, search: str) -> tuple[str, ...]:
    """The columns of the URL, else the list's own."""
    try:
        return filters.columns(search, listing.schema) or listing.shown
    except UsageError:
        return listing.shown


def _chooser(listing: Listing, shown: Sequence[str]) -> Component:
    """Which columns the grid shows: in the URL, and remembered by the browser."""
    name = listing.schema.name
    boxes = [dmc.Checkbox(label=c.title, value=c.name, size="xs") for c in listing.schema.columns]
    group = dmc.CheckboxGroup(
        children=html.Div(boxes, className="column-boxes"),
        id=f"columns-{name}",
        value=list(shown),
        persistence=True,
        persistence_type="local",
        **{"aria-label": "Columns"},
    )
    return html.Details([html.Summary("Columns", className="button"), html.Div(group)], className="chooser")


def register(app: Dash, view: View, listing: Listing) -> None:
    """Callbacks of the list: facets and tools follow the URL; the grid is fed by the browser from the API."""
    name = listing.schema.name

    @app.callback(
        Output(f"facets-{name}", "children"),
        Output(f"tools-{name}", "children"),
        Input("url", "search"),
        Input("version", "data"),
    )
    def _follow(search: str | None, _version: str) -> tuple[Component, Component]:
        text = search or ""
        side = panels.guarded(lambda: facets(listing, view.source.snapshot(), text))
        return side, panels.guarded(lambda: tools(listing, view, text))

    app.clientside_callback(
        ClientsideFunction("cotenant", "feed"),
        Output(f"frame-{name}", "data-shown"),
        Input("url", "search"),
        Input("version", "data"),
        Input(f"grid-{name}", "getRowsRequest"),
        State(f"grid-{name}", "id"),
    )
    app.clientside_callback(
        ClientsideFunction("cotenant", "columns"),
        Input(f"columns-{name}", "value"),
        Input(f"grid-{name}", "getRowsRequest"),
        State(f"grid-{name}", "id"),
    )


def facets(listing: Listing, snapshot: Snapshot, search: str) -> Component:
    """The side: each key's values with counts, as links that switch them."""
    try:
        query = filters.parse(search, listing.schema)
    except UsageError as error:
        clear = dcc.Link("Clear filters", href=_href(Query()), className="button")
        return html.Div([html.P(f"{error.message} {error.fix}"), clear], className="panel", role="alert")
    indexed = snapshot.tables[listing.schema.name]
    groups = [_facet(query, key, title, filters.facet(indexed, query, key)) for key, title in listing.facets]
    return html.Div(groups)


def _facet(query: Query, key: str, title: str, counts: Sequence[tuple[str, int]]) -> Component:
    shown, rest = counts[:FACET_VALUES], len(counts) - FACET_VALUES
    rows = [_facet_value(query, key, value, count) for value, count in shown]
    more = [html.Li(f"and {rest} more: use the search", className="facet-more")] if rest > 0 else []
    return html.Section(
        [html.H2(title), html.Ul([*rows, *more], **{"aria-label": f"{title} filter"}, tabIndex=0)], className="facet"
    )


def _facet_value(query: Query, key: str, value: str, count: int) -> Component:
    chosen, excluded = value in query.values(key), value in query.values(key, negated=True)
    state = "chosen" if chosen else "excluded" if excluded else ""
    pick = dcc.Link(
        [html.Span(visible(value), className="facet-word"), html.Span(f"{count:,}", className="facet-count")],
        href=_href(filters.toggled(query, key, value, negated=excluded)),
        className=f"facet-link {state}",
        title=f"{'Remove' if state else 'Show only'} {key}{'!' if excluded else ''}={visible(value)}",
    )
    drop = (
        html.Span(className="facet-not")
        if state
        else dcc.Link(
            "≠",
            href=_href(filters.toggled(query, key, value, negated=True)),
            className="facet-not",
            title=f"Leave out {key}={visible(value)}",
        )
    )
    return html.Li([pick, drop], className="facet-row")


def tools(listing: Listing, view: View, search: str) -> Component:
    """The line above the grid: how many rows, active filters, totals of what is shown, and its exports."""
    try:
        query = filters.parse(search, listing.schema)
    except UsageError as error:
        return html.Div(f"{error.message} {error.fix}", role="alert")
    snapshot = view.source.snapshot()
    count, of = len(snapshot.rows(listing.schema.name, query)), len(snapshot.tables[listing.schema.name])
    words = display.counted(of, listing.noun) if count == of else f"{count:,} of {display.counted(of, listing.noun)}"
    line = [html.Strong(words, id=f"count-{listing.schema.name}", role="status"), *_active(query)]
    if not count:
        return html.Div([html.Div(line, className="tool-line"), _nothing(listing, query)])
    totals = listing.totals(snapshot, query)
    exports = _exports(listing, view, filters.encode(listing.query(search)))
    return html.Div([html.Div([*line, exports], className="tool-line"), html.Div([*totals], className="totals")])


def _nothing(listing: Listing, query: Query) -> Component:
    """Why the list is empty: filtered out, or not enough history."""
    if query.filtered:
        clear = ("Clear filters", _href(filters.cleared(query)))
        return panels.empty(f"No {listing.noun} matches these filters.", link=clear)
    why = "The history is too short, or the source showed nothing. Coverage and notes are on the overview."
    return panels.empty(f"The analysis holds no {listing.noun}.", why=why, command="cotenant doctor")


def _active(query: Query) -> list[Component]:
    made = []
    for condition in query.conditions:
        for value in condition.values:
            href = _href(filters.toggled(query, condition.key, value, negated=condition.negated))
            sign = "≠" if condition.negated else "="
            made.append(
                dcc.Link(f"{condition.key} {sign} {visible(value)}  ×", href=href, className="active", title="Remove")
            )
    if query.text:
        rest = Query(query.conditions, "", query.sort)
        made.append(dcc.Link(f"“{visible(query.text)}”  ×", href=_href(rest), className="active", title="Remove"))
    if query.filtered:
        made.append(dcc.Link("Clear filters", href=_href(filters.cleared(query)), className="quiet-link"))
    return made


def _exports(listing: Listing, view: View, encoded: str) -> Component:
    name = listing.schema.name
    base = f"{view.settings.base_path}api/v1/{name}"
    forms = ("csv", "json", "yaml") if listing.patches else ("csv", "json")
    words = {"csv": "These rows and columns as CSV", "json": "These rows and columns as JSON", "yaml": PATCHES}
    links = [
        html.A(
            form.upper(),
            href=f"{base}?{encoded}&format={form}",
            className="quiet-link export",
            download=f"{name}.{form}",
            title=words[form],
            id=f"export-{form}-{name}",
            **{"data-grid": name},
        )
        for form in forms
    ]
    address = html.A("API", href=f"{base}?{encoded}", className="quiet-link export", title="The same rows for scripts",
                     id=f"export-api-{name}", target="_blank", **{"data-grid": name})  # fmt: skip
    picked = html.Span(id=f"picked-{name}", className="picked", role="status")
    return html.Span([picked, "Export ", *links, address], className="exports")


def _href(query: Query) -> str:
    encoded = filters.encode(query)
    return f"?{encoded}" if encoded else "?"
