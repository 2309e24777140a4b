"""A page that lists a table: facets at the side, chips of active filters, totals, export links and the grid.

Everything that filters the list is a link: the URL has the state, so it can be shared and reloaded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, dcc, html
from dash.development.base_component import Component

from cotenant.base import measures
from cotenant.base.errors import UsageError
from cotenant.base.table import Schema, unit_of
from cotenant.base.tables import filters, queries, time_span
from cotenant.base.tables.filters import FilterCondition, Query
from cotenant.base.tables.quantity import Unit
from cotenant.base.text import visible
from cotenant.dashboard.figures import display
from cotenant.dashboard.figures.display import label
from cotenant.dashboard.frame import carried, panels
from cotenant.dashboard.frame.callbacks import in_browser
from cotenant.dashboard.frame.view import View
from cotenant.dashboard.sources.namespace_filter import OF_THESE
from cotenant.dashboard.sources.source import Snapshot
from cotenant.dashboard.tables import grid

PAGE_ROWS: Final = 100
"""Rows that a grid fetches at once by scrolling; it changes no result."""
FACET_VALUES: Final = 40
FACET_FIRST: Final = 8
"""Values of a facet that are visible before "more" is opened."""
REVEALED_AT: Final = 4
CELL_BYTES: Final = 100
"""Approximate memory of a cached text or number."""
PATCHES: Final = "The recommendations of these rows as YAML, to review and apply elsewhere"


@dataclass(frozen=True, slots=True)
class ListTab:
    """One of the lists that a table is divided into: the rows with one value of a filter key, in their own order.

    `value` "" means all rows; `order` has columns in the grammar of the URL, empty for the list's own order.
    """

    key: str
    value: str
    title: str
    order: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Listing:
    """The definition of one list page: its table, columns, facets, order and texts."""

    schema: Schema
    path: str
    noun: str
    shown: tuple[str, ...]
    facets: tuple[tuple[str, str], ...]
    """The filters to offer, each as (filter key, title)."""
    order: str
    """The default order, in the grammar of the URL's `sort`; commas separate several columns."""
    opens: str = ""
    """What a click on a row opens: an address below the base, or "?open=..." for a panel; {column}: the row's value."""
    totals: Callable[[Snapshot, Query, str], Sequence[Component]] = lambda _snapshot, _query, _currency: ()
    widths: Mapping[str, int] = field(default_factory=dict)
    """Widths in pixels by column name, for columns without the default width."""
    shape: Callable[[Sequence[dict[str, Any]]], None] = lambda _definitions: None
    """Changes the finished column definitions of the grid in place."""
    patches: bool = False
    """True if the rows can be exported as YAML that applies them."""
    news: str = "version"
    """Id of the page store whose change means that the rows have changed."""
    alone: bool = False
    """True if the list is shown even before the first analysis."""
    nothing: Callable[[View], Component | None] = lambda _view: None
    """Returns why the list has no rows at all; None: the default text."""
    hidden: str = ""
    """A filter that applies unless the URL has one with the same key; only for tables with that column."""
    revealed: tuple[str, ...] = ()
    """Columns that are shown only if the URL replaces the filter `hidden`."""
    subject: tuple[str, ...] = ()
    """The column of the name, then those below it (such as the namespace): drawn as one column with two lines."""
    pinned: tuple[str, ...] = ()
    """The first of the `shown` columns: in a wide window they stay visible while the others scroll."""
    bar: Callable[[], Sequence[Component]] = tuple
    """Components below the grid; their height is fixed, so that no row moves while rows are selected."""
    tabs: tuple[ListTab, ...] = ()
    """The lists that this one is divided into, with links above the tools; commas separate several values."""
    among: bool = False
    """True if the page has other parts beside the list: the page scrolls, so the list turns its pages instead."""

    def query(self, search: str, schema: Schema | None = None) -> Query:
        """Return the query in the URL, in the list's own order unless the URL sets another order."""
        full_schema = schema or self.schema
        parsed = self.parsed(search, full_schema)
        order = self.order.replace(",", "&sort=")
        return parsed if parsed.sort else filters.parse(f"{filters.encode(parsed)}&sort={order}", full_schema)

    def parsed(self, search: str, schema: Schema) -> Query:
        """Return the query in the URL with the list's default condition, without what does not apply to this table."""
        return filters.parse(carried.about(self.hiding(search, schema), schema), schema)

    def hiding(self, search: str, schema: Schema) -> str:
        """Return the query string with the condition `hidden`, unless the string sets its key or the table lacks it."""
        key = self.hidden.partition("=")[0]
        if not key or key not in filters.keys_of(schema) or filters.names(search, key):
            return search
        return f"{search.lstrip('?')}&{self.hidden}"


def page(listing: Listing, view: View, search: str, head: Sequence[Component], *unseen: Component) -> Component:
    """Return a page with one list below its heading; `unseen` are its stores, drawers and dialogs."""
    table = panels.render_guarded(lambda: body(listing, view, search))
    return html.Div([html.Div(head, className="page-head"), table, *unseen], className="page list-page")


def body(listing: Listing, view: View, search: str) -> Component:
    """Return the list page below its heading."""
    name, snapshot = listing.schema.name, view.source.snapshot()
    if snapshot.overview is None and not listing.alone:
        return panels.no_results()
    schema = snapshot.tables[name].schema
    try:
        query = listing.query(search, schema)
        first = grid.FirstRows(search, _first(snapshot, name, query, PAGE_ROWS))
    except UsageError:
        query, first = listing.query("", schema), None
    try:
        shown = filters.columns(search, schema) or listing.shown
    except UsageError:
        shown = listing.shown
    table = grid.component(schema, shown, query, PAGE_ROWS, first)
    if listing.subject:
        grid.subject(table.columnDefs, listing.subject[0], listing.subject[1:])
    for column_def in table.columnDefs:
        column_def["width"] = listing.widths.get(column_def["field"], column_def["width"])
        if unit_of(schema.column(column_def["field"])) in (Unit.MONTHLY, Unit.DAILY):
            column_def["headerName"] = column_def["headerName"].replace("/", f", {view.currency}/")
    listing.shape(table.columnDefs)
    # Columns that may be revealed stand behind the name, where they are in sight.
    revealed = [column_def for column_def in table.columnDefs if column_def["field"] in listing.revealed]
    rest = [column_def for column_def in table.columnDefs if column_def["field"] not in listing.revealed]
    table.columnDefs = [*rest[:REVEALED_AT], *revealed, *rest[REVEALED_AT:]]
    for has, options in ((listing.subject, grid.TWO_LINES), (listing.bar(), grid.BOXES), (listing.among, grid.PAGED)):
        table.dashGridOptions = {**table.dashGridOptions, **(options if has else {})}
    data = {
        "data-path": listing.path,
        "data-order": listing.order,
        "data-columns": ",".join(listing.shown),
        "data-key": ",".join(listing.schema.key),
        "data-opens": listing.opens,
        "data-pinned": ",".join(listing.pinned),
        "data-hidden": listing.hidden if listing.hiding("", schema) else "",
        "data-revealed": ",".join(listing.revealed),
        "data-idle": ",".join(key for key in carried.KEYS if key not in filters.keys_of(schema)),
        "data-shown": "",
    }
    trouble = html.Div(id=f"trouble-{name}", className="trouble", role="alert", hidden=True)
    frame = html.Div([table, trouble], className="grid-frame", id=f"frame-{name}", **data)
    side = html.Aside(panels.skeleton(160, 160), id=f"facets-{name}", className="facets", **{"aria-label": "Filters"})
    tools = html.Div(panels.skeleton(34), id=f"tools-{name}", className="tools")
    head = html.Div([tools, _chooser(listing, schema, shown)], className="list-head")
    fold = html.Details(html.Summary("Filters of the list", className="button"), className="facets-fold")
    main = html.Div([head, frame, *listing.bar()], className="list-main")
    return html.Div([fold, side, main], className="list" + " list-among" * listing.among)


def _first(snapshot: Snapshot, name: str, query: Query, most: int) -> str:
    """Return the first visible rows as JSON, which come with the page and save a request."""

    def read() -> str:
        total = snapshot.count(name, query)
        page = queries.page(snapshot.tables[name], query, slice(0, min(most, total)))
        return b"".join(queries.json_rows({"total": total}, [page])).decode()

    return snapshot.kept(("first", name, query, most), read, lambda text: len(text) // CELL_BYTES)


def _chooser(listing: Listing, schema: Schema, shown: Sequence[str]) -> Component:
    """Return the menu of the grid's columns; the choice is in the URL and stored by the browser."""
    name = listing.schema.name
    boxes = [dmc.Checkbox(label=c.title, value=c.name, size="xs") for c in schema.columns]
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
    """Register the list's callbacks: facets and tools follow the URL; the browser feeds the grid from the API."""
    name = listing.schema.name

    @app.callback(
        Output(f"facets-{name}", "children"),
        Output(f"tools-{name}", "children"),
        Input("url", "search"),
        Input(listing.news, "data"),
        prevent_initial_call=False,
    )
    def _follow(search: str | None, _version: str) -> tuple[Component, Component]:
        text = search or ""
        side = panels.render_guarded(lambda: facets(listing, view.source.snapshot(), text))
        return side, panels.render_guarded(lambda: tools(listing, view, text))

    in_browser(
        app,
        "feed",
        Output(f"frame-{name}", "data-shown"),
        Input("url", "search"),
        Input(listing.news, "data"),
        Input(f"grid-{name}", "getRowsRequest"),
        State(f"grid-{name}", "id"),
        prevent_initial_call=False,
    )
    in_browser(
        app, "columns", Input(f"columns-{name}", "value"), State(f"grid-{name}", "id"), prevent_initial_call=False
    )


def facets(listing: Listing, snapshot: Snapshot, search: str) -> Component:
    """Return the side bar: the values of each filter key with counts, as links that add or remove the filter."""
    relation = snapshot.tables[listing.schema.name]
    try:
        query = listing.parsed(search, relation.schema)
    except UsageError as error:
        clear = dcc.Link("Clear filters", href=_href(Query()), className="button")
        return html.Div([html.P(f"{error.message} {error.fix}"), clear], className="panel", role="alert")
    link = _links(search, relation.schema)
    counts = snapshot.facets(listing.schema.name, query, tuple(key for key, _ in listing.facets))
    # Each group folds, open where it is the first or chosen from: its most frequent values, then the others.
    groups: list[Component] = []
    for key, title in listing.facets:
        values = counts[key]
        rows = [_facet_value(link, query, (key, title), value, count) for value, count in values[:FACET_VALUES]]
        chosen = {*query.values(key), *query.values(key, negated=True)}
        parts = [html.Summary(html.H2(title)), _facet_list(title, rows[:FACET_FIRST])]
        if rest := rows[FACET_FIRST:]:
            left_out = measures.left_out_count(len(values), FACET_FIRST)
            more = [html.Summary(f"{left_out} more", className="facet-more"), _facet_list(f"More {title}", rest)]
            is_open = any(value in chosen for value, _ in values[FACET_FIRST:FACET_VALUES])
            parts.append(html.Details(more, open=is_open))
            if len(values) > FACET_VALUES:
                parts.append(html.P("For other values use the search", className="facet-more"))
        groups.append(html.Details(parts, open=not groups or bool(chosen), className="facet"))
    return html.Div(groups)


def _facet_list(title: str, rows: Sequence[Component]) -> Component:
    return html.Ul(rows, **{"aria-label": f"{title} filter"})


def _facet_value(link: Href, query: Query, of: tuple[str, str], value: str, count: int) -> Component:
    """Return a value as two links: show only its rows, or exclude them; the first undoes a chosen value.

    `of` has the facet's key and title; `count` is the number of its rows under all other conditions.
    """
    key, name = of
    value_text = f"{name}: {visible(label(value))}"
    chosen, excluded = value in query.values(key), value in query.values(key, negated=True)
    state = "chosen" if chosen else "excluded" if excluded else ""
    number = html.Span(f"{count:,}", className="facet-count")
    inside = [html.Span(visible(label(value)), className="facet-word"), number]
    href = link(filters.toggle_pattern(query, key, value, negated=excluded))
    title = f"{'Remove' if state else 'Show only'} {value_text}"
    pick = dcc.Link(inside, href=href, className=f"facet-link {state}", title=title)
    drop = html.Span(className="facet-not")
    if not state:
        without = link(filters.toggle_pattern(query, key, value, negated=True))
        drop = dcc.Link("≠", href=without, className="facet-not", title=f"Leave out {value_text}")
    return html.Li([pick, drop], className="facet-row")


def tools(listing: Listing, view: View, search: str) -> Component:
    """Return the line above the grid: number of rows, active filters, totals of the shown rows, and exports."""
    snapshot = view.source.snapshot()
    schema = snapshot.tables[listing.schema.name].schema
    try:
        query = listing.parsed(search, schema)
    except UsageError as error:
        return html.Div(f"{error.message} {error.fix}", role="alert")
    count, of = snapshot.count(listing.schema.name, query), len(snapshot.tables[listing.schema.name])
    count_text = ("" if count == of else f"{count:,} of ") + display.counted(of, listing.noun)
    hidden_note, link = _put_off(listing, snapshot, search), _links(search, schema)
    lists = tabs(listing, snapshot, query, link)
    count_line = html.Strong(count_text, id=f"count-{listing.schema.name}", role="status")
    line = [count_line, *hidden_note, *_active(listing, query, link)]
    if not count:
        return html.Div([*lists, html.Div(line, className="tool-line"), _empty_state(listing, view, query)])
    totals = [*listing.totals(snapshot, query, view.currency)]
    if totals and view.given.current_user().reads is not None:
        totals.append(html.Span(OF_THESE, className="total-parts"))
    exports = _exports(listing, view, snapshot, filters.encode(listing.query(search, schema)))
    sums = [html.Div(totals, className="totals")] if totals else []
    if lists:
        return html.Div([html.Div(parts, className="tool-line") for parts in ([*lists, exports], [*line, *sums])])
    return html.Div([html.Div([*line, exports], className="tool-line"), *sums])


def tabs(listing: Listing, snapshot: Snapshot, query: Query, link: Href) -> list[Component]:
    """Return a link to each tab of the listing, with its number of rows under all other filters; empty without tabs."""
    present = [tab for tab in listing.tabs if tab.key in filters.keys_of(snapshot.tables[listing.schema.name].schema)]
    items = []
    for tab in present:
        rest = tuple(c for c in query.conditions if c.key != tab.key)
        values = tuple(filter(None, tab.value.split(",")))
        own = (FilterCondition(tab.key, values),) if values else ()
        narrowed = replace(query, conditions=tuple(sorted((*rest, *own))), sort=())
        on = query.values(tab.key) == values and not query.values(tab.key, negated=True)
        count = snapshot.count(listing.schema.name, narrowed)
        href = link(narrowed) + "".join(f"&sort={column}" for column in tab.order)
        head = [html.Span(tab.title), " ", html.Strong(display.number(count))]
        items.append(panels.choice(head, href, on, id=f"tab-{listing.schema.name}-{values[0] if values else 'all'}"))
    row = html.Nav(html.Ul(items, className="choice-list"), className="list-tabs", **{"aria-label": "Lists"})
    return [row] if items else []


def _empty_state(listing: Listing, view: View, query: Query) -> Component:
    """Return why the list is empty: everything is filtered out, or there is not enough history."""
    if query.filtered:
        return panels.no_match(listing.noun, _href(filters.clear_filters(query)))
    if state := listing.nothing(view):
        return state
    why = "The history is too short, or the source had no data. The overview shows coverage and notes."
    return panels.empty(f"The analysis holds no {listing.noun}.", why=why, command="cotenant doctor")


def _put_off(listing: Listing, snapshot: Snapshot, search: str) -> list[Component]:
    """Return a link to the rows that the list hides by default, with their count, or one that hides them again."""
    schema = snapshot.tables[listing.schema.name].schema
    key, _, value = listing.hidden.partition("=")
    if not key or key not in filters.keys_of(schema):
        return []
    query, link = listing.parsed(search, schema), _links(search, schema)
    others = replace(query, conditions=tuple(c for c in query.conditions if c.key != key))
    if FilterCondition(key, (value,)) not in query.conditions:
        return [dcc.Link("Hide them again", href=link(others), className="quiet-link", id=f"hide-{key}")]
    only = replace(query, conditions=(*others.conditions, FilterCondition(key, (value,), negated=True)))
    count = snapshot.count(listing.schema.name, only)
    label = f"{count:,} hidden rows: show them"
    return [dcc.Link(label, href=link(only), className="quiet-link", id=f"show-{key}")] if count else []


def _active(listing: Listing, query: Query, link: Href) -> list[Component]:
    removable: list[tuple[str, Query]] = []
    hidden_key, _, hidden_value = listing.hidden.partition("=")
    titles, divided = dict(listing.facets), {(tab.key, tuple(tab.value.split(","))) for tab in listing.tabs}
    for condition in query.conditions:
        marked = not condition.negated and (condition.key, condition.values) in divided  # by its tab
        if marked or condition == FilterCondition(hidden_key, (hidden_value,)):
            continue
        for value in condition.values:
            text = f"{titles.get(condition.key, condition.key)}: {'not ' * condition.negated}{visible(label(value))}"
            rest = filters.toggle_pattern(query, condition.key, value, negated=condition.negated)
            removable.append((text, rest))
    if query.text:
        removable.append((f"“{visible(query.text)}”", replace(query, text="")))
    for key, at in zip(time_span.KEYS, query.span, strict=True):
        if math.isfinite(at):
            span = (-math.inf, query.span[1]) if key == "since" else (query.span[0], math.inf)
            removable.append((f"{key} {time_span.words(at)}", replace(query, span=span)))
    if math.isfinite(query.back_seconds):
        text = f"{time_span.RANGE} = {time_span.range_text(query.back_seconds)}"
        removable.append((text, replace(query, back_seconds=math.inf)))
    links = [dcc.Link(f"{text}  ×", href=link(rest), className="active", title="Remove") for text, rest in removable]
    clear = dcc.Link("Clear filters", href=_href(filters.clear_filters(query)), className="quiet-link")
    return [*links, clear] if links else []


def _exports(listing: Listing, view: View, snapshot: Snapshot, encoded: str) -> Component:
    name = listing.schema.name
    base = f"{view.settings.base_path}api/v1/{name}"
    forms = ("csv", "json", "yaml") if listing.patches else ("csv", "json")
    titles = {"csv": "These rows and columns as CSV", "json": "These rows and columns as JSON", "yaml": PATCHES}
    style = {"className": "quiet-link export", "data-grid": name}
    links = []
    for form in forms:
        href, file = f"{base}?{encoded}&format={form}", snapshot.file_name(name, form)
        attributes = {"title": titles[form], "id": f"export-{form}-{name}", **style}
        links.append(html.A(form.upper(), href=href, download=file, **attributes))
    attributes = {"title": "The same rows for scripts", "id": f"export-api-{name}", **style}
    links.append(html.A("API", href=f"{base}?{encoded}", target="_blank", **attributes))
    picked = html.Span(id=f"picked-{name}", className="picked", role="status")
    ways = html.Details([html.Summary("Export", className="button"), html.Div(links)], className="chooser export-ways")
    return html.Span([picked, ways], className="exports")


Href = Callable[[Query], str]
"""The page's address under another query."""


def _links(search: str, schema: Schema) -> Href:
    """Return a function that builds URLs of this list which keep the parts for other pages."""
    resting = carried.idle_parts(search, schema)
    return lambda query: f"?{carried.join_queries(filters.encode(query), *resting)}"


def _href(query: Query) -> str:
    return f"?{filters.encode(query)}"
