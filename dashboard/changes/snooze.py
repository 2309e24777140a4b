"""Snooze and dismiss: the dialog that asks for the duration and the reason, and the buttons for one workload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component

from cotenant.base import measures
from cotenant.base.errors import CotenantError, UsageError
from cotenant.base.identity import WorkloadRef
from cotenant.base.people import Right
from cotenant.base.text import visible
from cotenant.changes.model.ledger_marks import postponement_sentence
from cotenant.dashboard.changes import review as reviewing
from cotenant.dashboard.changes import select_bar
from cotenant.dashboard.figures import display
from cotenant.dashboard.frame import callbacks, panels
from cotenant.dashboard.frame.callbacks import acts
from cotenant.dashboard.frame.view import View
from cotenant.dashboard.tables import selection as choosing
from cotenant.dashboard.tables.list_page import Listing
from cotenant.recommender.model.views import RECOMMENDATIONS

DAYS: Final = {"7": "7 days", "30": "30 days", "90": "90 days", "": "for good"}
RECALL: Final = "recall-asked"
"""Store of what the button *Show again* requests: {"ref": a workload's name}."""
MOST_WORKLOADS: Final = 1_000
"""Most workloads that are snoozed or dismissed at once."""


def dialog() -> Component:
    """Return the dialog, closed until somebody snoozes or dismisses."""
    days = dmc.RadioGroup(
        dmc.Group([dmc.Radio(label=label, value=value or "0") for value, label in DAYS.items()]),
        id="put-off-days",
        label="Hide it",
        value="7",
    )
    reason = dmc.TextInput(id="put-off-reason", label="Why", description="Stored in the ledger, shown to everybody.",
                           required=True, debounce=True, **{"data-autofocus": True})  # fmt: skip
    send = html.Button("Hide", id="put-off-send", className="button act primary")
    parts = [
        html.P(id="put-off-what"),
        days,
        reason,
        html.Div(id="put-off-said", role="alert"),
        html.Div([send], className="dialog-acts"),
        dcc.Store(id="put-off-of", data=[]),
        dcc.Store(id=select_bar.PUT_OFF),
        dcc.Store(id=RECALL),
    ]
    return panels.dialog("put-off", "Snooze or dismiss", parts, "md")


def workload_buttons(view: View, ref: WorkloadRef) -> Component:
    """Return the review, snooze and dismiss buttons of one workload, or that it is hidden and a button to show it."""
    reading, doing = select_bar.why_not(view, Right.REVIEW), select_bar.why_not(view, Right.ACCEPT)
    href = reviewing.href(view.settings.base_path, [ref])
    review = (
        html.Button("Review", id="review-open", className="button act primary", disabled=True, title=reading)
        if reading
        else dcc.Link("Review", href=href, id="review-open", className="button act primary")
    )
    sees = view.given.current_user().may(Right.READ, ref.namespace)
    postponed = view.given.changes.postponed().get(ref) if view.given.changes and sees else None
    if postponed is not None:
        asks = panels.asks(RECALL, ref=reviewing.name_of(ref))
        again = html.Button("Show again", className="button act", disabled=bool(doing), **asks)
        note = html.P([panels.chip("hidden", "violet"), " ", postponement_sentence(postponed)], className="said")
        return html.Div([review, again, note, _why(reading, doing)], className="one-acts")
    name = reviewing.name_of(ref)
    buttons = [select_bar.button(word, word.lower(), name, doing) for word in ("Snooze", "Dismiss")]
    return html.Div([review, *buttons, _why(reading, doing)], className="one-acts")


def _why(*reasons: str) -> Component:
    text = " ".join(dict.fromkeys(filter(None, reasons)))
    return html.P(text, className="panel-note") if text else html.Span()


def register(app: Dash, view: View, listing: Listing) -> None:
    """Register the callbacks that open the dialog, send it, and show a hidden workload again."""

    @app.callback(
        Output("put-off", "opened"),
        Output("put-off", "title"),
        Output("put-off-what", "children"),
        Output("put-off-of", "data"),
        Output("put-off-days", "value"),
        Output("put-off-said", "children"),
        Input(select_bar.PUT_OFF, "data"),
        State("selection", "data"),
        State("url", "search"),
        prevent_initial_call=True,
    )
    @acts(view, Right.ACCEPT)
    def _ask(request: Mapping[str, Any], data: Any, search: str | None) -> Any:
        kind, of = str(request["kind"]), str(request["of"])
        names = chosen_workload_names(view, listing, search or "", data) if of == "selection" else [of]
        refs = [visible(str(ref)) for name in names if (ref := reviewing.parse_workload(name))]
        more = f" and {measures.left_out_count(len(refs), 3):,} more" if len(refs) > 3 else ""
        what = f"{', '.join(refs[:3])}{more}" if refs else "Nothing is selected."
        title, days = ("Snooze", "7") if kind == "snooze" else ("Dismiss", "0")
        return [True, title, what, names, days, None]

    @app.callback(
        Output("put-off", "opened", allow_duplicate=True),
        Output("put-off-said", "children", allow_duplicate=True),
        Output("put-off-reason", "value"),
        Output("version", "data", allow_duplicate=True),
        Input("put-off-send", "n_clicks"),
        Input("put-off-reason", "n_submit"),
        State("put-off-of", "data"),
        State("put-off-days", "value"),
        State("put-off-reason", "value"),
        prevent_initial_call=True,
    )
    @acts(view, Right.ACCEPT)
    def _send(_clicks: Any, _submits: Any, of: list[str], days: str, reason: str | None) -> Any:
        try:
            message = snooze_workloads(view, of or [], float(days or 0) or None, (reason or "").strip())
        except CotenantError as error:
            return [no_update, panels.failure_state(error.message, error.fix), no_update, no_update]
        callbacks.announce(message)
        return [False, None, "", view.source.snapshot().version]

    @app.callback(Output("version", "data", allow_duplicate=True), Input(RECALL, "data"), prevent_initial_call=True)
    @acts(view, Right.ACCEPT)
    def _recall(request: Mapping[str, Any] | None) -> Any:
        ref = reviewing.parse_workload(str(request["ref"])) if request else None
        if ref is None or view.given.changes is None:
            return no_update
        view.given.changes.recall(view.given.current_user(), [ref])
        callbacks.announce(f"{visible(str(ref))} is shown again.")
        return _reload_results(view)


def chosen_workload_names(view: View, listing: Listing, search: str, data: Any) -> list[str]:
    """Return the `ids` values of the selected workloads; raise UsageError if more than MOST_WORKLOADS are selected."""
    advice = view.source.snapshot().tables[RECOMMENDATIONS.name]
    query = choosing.chosen_rows(listing.query(search, advice.schema), choosing.selection(data))
    refs = choosing.workloads(advice, query)
    if len(refs) > MOST_WORKLOADS:
        raise UsageError(
            f"{len(refs):,} workloads are selected; at most {MOST_WORKLOADS:,} can be hidden at once",
            fix="Narrow the filters.",
        )
    return [reviewing.name_of(ref) for ref in refs]


def snooze_workloads(view: View, names: list[str], days: float | None, reason: str) -> str:
    """Hide workloads for `days` (None: permanently); raise UsageError without workloads or reason, or for old data."""
    refs = [ref for name in names if (ref := reviewing.parse_workload(name))]
    if view.given.changes is None or not refs:
        raise UsageError("nothing is selected", fix="Tick rows first.")
    if not reason:
        raise UsageError("the reason is missing", fix="Write a short reason for the other readers.")
    if old := callbacks.too_old(view):
        raise UsageError(old)
    view.given.changes.snooze(view.given.current_user(), refs, days, reason)
    _reload_results(view)
    until = "for good" if days is None else f"for {days:g} days"
    return f"{display.counted(len(refs), 'workload')} hidden from the list {until}."


def _reload_results(view: View) -> str:
    """Discard cached results, and return the version of those that include the new snooze."""
    view.source.forget()
    return view.source.snapshot().version
