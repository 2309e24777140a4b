"""The top bar's two choices, namespaces and time range: their options, and notes where a page does not apply them.

Both are part of the URL in the grammar of every filter (`ns=shop&range=7d`), so links, exports, saved views and the API
have them too; `assets/extent.js` writes them there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component

from cotenant.base.errors import CotenantError, UsageError
from cotenant.base.tables import filters, time_span
from cotenant.base.text import visible
from cotenant.base.usage.usage import DAY_SECONDS
from cotenant.dashboard.figures import display
from cotenant.dashboard.frame import carried
from cotenant.dashboard.frame.callbacks import in_browser
from cotenant.dashboard.frame.view import Obeyed, View
from cotenant.dashboard.sources.source import Snapshot
from cotenant.recommender.model.views import Overview

USUAL: Final = "usual"
RANGES: Final = (
    ("24h", "Last 24 hours"),
    ("7d", "Last 7 days"),
    ("14d", "Last 14 days"),
    (time_span.WHOLE, "All history"),
    (time_span.AHEAD, "Next 24 hours"),
)
OPTIONS_SHOWN: Final = 50
"""Namespaces in the open list at once; the others are found by typing."""
ALMOST_DAYS: Final = 0.1
"""Days of a range that a history may lack and still offer the range, because it ends at a scrape, not at midnight."""
NO_FORECAST: Final = "Time range: this page has no forecast, so it cannot show only the next 24 hours."
EVERY: Final = "All namespaces"


def controls() -> Component:
    """Return the top bar's fields for namespaces and time range, with the stores that fill them."""
    namespaces = dmc.MultiSelect(
        id="namespaces",
        data=[],
        value=[],
        placeholder=EVERY,
        searchable=True,
        clearable=True,
        hidePickedOptions=True,
        limit=OPTIONS_SHOWN,
        nothingFoundMessage="No such namespace in the results",
        size="xs",
        clearButtonProps={"aria-label": EVERY},
        **{"aria-label": "Namespaces"},
    )
    time_range = dmc.Select(
        id="range", data=range_options(None, Obeyed(forecast=True), ""), value=USUAL, allowDeselect=False, size="xs",
        comboboxProps={"width": 290, "position": "bottom-end"}, **{"aria-label": "Time range"},
    )  # fmt: skip
    stores = [dcc.Store(id="extent"), dcc.Store(id="namespace-names")]
    return html.Div([namespaces, time_range, *stores], className="extent")


def names(snapshot: Snapshot) -> list[dict[str, str]]:
    """Return every namespace in the results as an option of a select: its filter pattern and its displayed name."""
    distinct = {name for table in snapshot.tables.values() for name in table.texts("namespace")}
    return [{"value": filters.literal(name), "label": visible(name)} for name in sorted(distinct - {""})]


def chosen_namespaces(search: str) -> list[str]:
    """Return the URL's namespaces as patterns, with "!" before excluded ones; empty if the filter is invalid."""
    try:
        query = carried.namespace_query(search)
    except UsageError:
        return []
    # The same pattern, of which the field does not read a first "!" as an exclusion.
    return [
        f"!{value}" if condition.negated else (f"\\{value}" if value.startswith("!") else value)
        for condition in query.conditions
        for value in condition.values
    ]


def range_options(overview: Overview | None, obeyed: Obeyed, search: str) -> list[dict[str, Any]]:
    """Return the ranges as options; one that exceeds the history, or that the page cannot show, says why instead."""
    options: list[dict[str, Any]] = [{"value": USUAL, "label": "Usual range"}]
    for value, label in RANGES:
        if value == time_span.AHEAD:
            why = "" if obeyed.forecast else "no forecast on this page"
        else:
            why = _too_long(time_span.range_seconds(value), overview)
        options.append({"value": value, "label": f"{label}: {why}" if why else label, "disabled": bool(why)})
    present = carried.range_of(search) or USUAL
    if any(option["value"] == present for option in options):
        return options
    return [*options, {"value": present, "label": visible(present)}]


def _too_long(back_seconds: float, overview: Overview | None) -> str:
    """Return why a finite range exceeds the history; "" if it does not."""
    if overview is None or not overview.window_days + ALMOST_DAYS < back_seconds / DAY_SECONDS < math.inf:
        return ""
    return f"the history is {display.duration(overview.window_days * DAY_SECONDS)} long"


def notes(overview: Overview | None, obeyed: Obeyed, search: str) -> list[str]:
    """Return a sentence for each present choice that the page does not apply."""
    present, sentences = carried.range_of(search), []
    if chosen_namespaces(search) and obeyed.namespace:
        sentences.append(f"Namespace: {obeyed.namespace}")
    if not obeyed.spans:
        parts = map(filters.read, filters.query_parts(search))
        unread = ", ".join(f"{key}={visible(value)}" for key, value, _ in parts if key in time_span.KEYS)
        instead = f"since and until filter lists; charts use the parameter {time_span.RANGE}. {time_span.RANGE_FIX}"
        sentences += [f"{unread} has no effect on this page: {instead}"] if unread else []
    if not present:
        return sentences
    try:
        back_seconds = time_span.range_seconds(present)
    except UsageError as error:
        return [*sentences, f"{visible(error.message)} {error.fix}"]
    if not back_seconds and not obeyed.forecast:
        sentences.append(NO_FORECAST)
    elif obeyed.time_range:
        sentences.append(f"Time range: {obeyed.time_range}")
    elif why := _too_long(back_seconds, overview):
        sentences.append(f"Time range: {why}; the whole history is shown.")
    return sentences


def state(overview: Overview | None, obeyed: Obeyed, search: str) -> Mapping[str, Any]:
    """Return the values and options of both fields, and the query string for which they were computed."""
    patterns = chosen_namespaces(search)
    return {
        "search": search,
        "namespaces": patterns,
        "labels": [visible(pattern) for pattern in patterns],
        "range": carried.range_of(search) or USUAL,
        "ranges": range_options(overview, obeyed, search),
    }


def overview_of(view: View) -> Overview | None:
    """Return the present overview; None without results, or if they cannot be read, which the page itself reports."""
    try:
        return view.source.snapshot().overview
    except CotenantError:
        return None


def register(app: Dash, view: View) -> None:
    """Register the callbacks between the results, the URL and the fields for namespaces and time range."""

    @app.callback(Output("namespace-names", "data"), Input("version", "data"))
    def _names(_version: str) -> Any:
        try:
            return names(view.source.snapshot())
        except CotenantError:
            return no_update

    in_browser(
        app,
        "extentShown",
        Output("namespaces", "data"),
        Output("namespaces", "value"),
        Output("range", "data"),
        Output("range", "value"),
        Input("extent", "data"),
        Input("namespace-names", "data"),
        State("namespaces", "data"),
        State("namespaces", "value"),
        State("range", "data"),
        State("range", "value"),
    )
    in_browser(app, "extentChosen", Input("namespaces", "value"), Input("range", "value"), State("extent", "data"))
    in_browser(app, "extentUnfolded", Input("unfold", "n_clicks"))
