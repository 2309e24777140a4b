"""The bar below the list of recommendations: the totals of the selected rows, and the actions on them.

It is always rendered, one line high, so that the rows do not shift; an unavailable action is disabled with its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final
from urllib.parse import urlencode

from dash import Dash, Input, Output, dcc, html
from dash.development.base_component import Component

from cotenant.base.errors import UsageError
from cotenant.base.people import Right
from cotenant.base.tables import filters
from cotenant.base.tables.filters import Query
from cotenant.base.text import visible
from cotenant.dashboard.changes import review as reviewing
from cotenant.dashboard.figures import display
from cotenant.dashboard.frame import callbacks, panels
from cotenant.dashboard.frame.view import View
from cotenant.dashboard.tables import savings
from cotenant.dashboard.tables import selection as choosing
from cotenant.dashboard.tables.list_page import Listing
from cotenant.dashboard.tables.selection import Selection, SelectionTotals
from cotenant.recommender.model.list_totals import NextReview, next_review
from cotenant.recommender.model.savings import When
from cotenant.recommender.model.views import RECOMMENDATIONS

PUT_OFF: Final = "put-off-asked"
"""Store of what a button requests: {"kind": "snooze" or "dismiss", "of": a workload's name, or "selection"}."""
NEW: Final = "new"
"""Value of the URL's `policy` for a policy that does not exist yet."""
NONE_YET: Final = "No row is selected: tick rows, or press x."


def bar_container() -> Sequence[Component]:
    """Return the bar's container and the browser store of the selection."""
    line = html.Div(panels.skeleton(34), id="selection-bar", className="selection-bar", role="region",
                    **{"aria-label": "Selected rows"})  # fmt: skip
    return [dcc.Store(id="selection", data={}), line]


def register(app: Dash, view: View, listing: Listing) -> None:
    """Register the callback that redraws the bar when the selection, address or results change, or in an outage."""
    register_bar(app, "selection-bar", "selection", partial(contents, view, listing))


def register_bar(app: Dash, bar: str, store: str, draw: Callable[[str, Selection], Component]) -> None:
    """Register the callback that redraws a bar when stored selection, address or results change, or in an outage."""

    @app.callback(
        Output(bar, "children"),
        Input(store, "data"),
        Input("url", "search"),
        Input("version", "data"),
        Input(callbacks.AWAY, "data"),
        prevent_initial_call=False,
    )
    def _follow(data: Any, search: str | None, *_news: str) -> Component:
        return panels.render_guarded(lambda: draw(search or "", choosing.selection(data)))


def contents(view: View, listing: Listing, search: str, chosen: Selection) -> Component:
    """Return the bar: totals on the left, actions on the right, and why some of them are unavailable."""
    snapshot = view.source.snapshot()
    advice = snapshot.tables[RECOMMENDATIONS.name]
    try:
        query = listing.query(search, advice.schema)
    except UsageError:
        return html.Div()
    matching = snapshot.count(RECOMMENDATIONS.name, query)
    of_these = choosing.chosen_rows(query, chosen)
    worth = None if of_these is None else choosing.sum_selection(advice, of_these)
    rows = worth.rows if worth else 0
    refs = [] if chosen.everything else choosing.workloads(advice, of_these)
    totals: list[Any] = [NONE_YET]
    if worth and rows:
        written = next_review(advice, choosing.workloads(advice, of_these))
        totals = _selection_summary(worth, written, chosen, matching, view.currency)
    selected = partial(reviewing.selection_href, view.settings.base_path, search, refs, chosen)
    review, bundle = selected(), selected(method="bundle", step=reviewing.CONFIRM)
    reading, doing = why_not(view, Right.REVIEW), why_not(view, Right.ACCEPT)
    none = "" if rows else NONE_YET
    buttons = [
        way("Review", "review-selected", review, reading or none, primary=True),
        *(button(word, word.lower(), "selection", doing or none) for word in ("Snooze", "Dismiss")),
        _folded("More", [way("Bundle", "bundle-selected", bundle, reading or none), _policy_way(view, query)]),
    ]
    every = []
    if matching and not chosen.everything and rows < matching:
        title = f"Select all {matching:,} rows that match the filters"
        every = [html.Button("Select all matching", id="select-all", className="quiet-button", title=title)]
    clear = [html.Button("Clear", id="clear-selection", className="quiet-button")] if rows else []
    reasons = dict.fromkeys(filter(None, (reading, doing)))
    why = [html.Span(" ".join(reasons), className="panel-note", id="selection-why")] if reasons else []
    first = first_of(len(refs), reviewing.MOST_NAMED)
    sums = html.Div([*totals, *first, *every, *clear], className="selection-sums", role="status")
    return line([sums, html.Div([*why, *buttons], className="selection-acts")], chosen)


def draft_name(namespace: str, todo: str = "") -> str:
    """Return the name under which the editor opens a new policy for a namespace, for the to-do list `todo` if given."""
    return "/".join((NEW, namespace, *([todo] if todo else [])))


def _policy_way(view: View, query: Query) -> Component:
    """Return the link that makes an autopilot policy from the filter, which must leave exactly one namespace."""
    patterns = query.values("ns")
    counts = view.source.snapshot().facets(RECOMMENDATIONS.name, query, ("ns",))["ns"]  # under the other conditions
    shown = [filters.exact(pattern) or "" for pattern in patterns] or [name for name, count in counts if count]
    why = "" if view.given.autopilot else "This dashboard reads no policies: start it with `cotenant dashboard --act`."
    if not why and (len(shown) != 1 or not shown[0]):
        why = "A policy belongs to one namespace: filter by one namespace."
    todo = query.values("todo")
    name = "" if why else draft_name(shown[0], todo[0] if len(todo) == 1 else "")
    href = f"{view.settings.base_path}autopilot?{urlencode({'policy': name})}"
    link = way("Make a policy", "policy-of-filter", href, why)
    lost = sorted({condition.key for condition in query.conditions} - {"ns", "todo", "postponed"})
    if lost and not why:
        link.title = f"The policy takes the whole namespace: it selects by labels, not by {', '.join(lost)}."
    return link


def line(parts: list[Any], chosen: Selection) -> Component:
    """Return the content of the bar with the selection's number: the browser ignores links of older selections."""
    return html.Div(parts, className="selection-line", **{"data-choice": str(chosen.choice)})


def why_not(view: View, right: Right) -> str:
    """Return why `right` cannot be used now: a read-only dashboard, no right, stale data, or no cluster; "" if it can.

    Right.ACCEPT stands here for snooze and dismiss, which only write a note to the ledger.
    """
    if right is Right.ACCEPT:
        return callbacks.why_not_note(view, right) or callbacks.too_old(view)
    return callbacks.why_not(view, right)


def first_of(workloads: int, most: int) -> list[Component]:
    """Return a note that a review takes only the first `most` workloads; empty if there are no more than that."""
    return [html.Span(f"a review takes the first {most:,} workloads", className="dim")] if workloads > most else []


def _folded(summary: str, parts: Sequence[Any]) -> Component:
    """Return a collapsible section that opens above the bar."""
    return html.Details([html.Summary(summary, className="quiet-button"), html.Div([*parts])], className="above-bar")


def _selection_summary(
    worth: SelectionTotals, written: NextReview, chosen: Selection, matching: int, currency: str
) -> list[Any]:
    """Describe what is selected, what a review would write and leave out now, and the result of all steps."""
    count = f"All {matching:,} matching" if chosen.everything else f"{worth.rows:,} selected"
    risks = [html.Span(f"{n:,} {word}", className=f"risk risk-{word}") for word, n in worth.risks.items() if n]
    left_out = []  # known without a request to the cluster
    if written.left:
        reasons = ", ".join(f"{count:,} {why}" for why, count in written.left.items())
        text = f"left out: {display.counted(written.left_count, 'workload')} ({visible(reasons)})"
        left_out = [html.P(text, id="selection-left")]
    all_steps = [f"the selected rows {When.ALL_STEPS}: ", *savings.saving_parts(worth.all_steps, currency)]
    risk = ["risk: ", *[piece for part in risks for piece in (part, " ")]]
    details = [
        html.P(f"In {display.counted(worth.workloads, 'workload')}; a review includes all their containers:"),
        html.P([f"a review writes {When.NOW}: ", *savings.saving_parts(written.savings, currency)], id="selection-now"),
        *left_out,
        html.P(all_steps, id="selection-all-steps"),
        html.P(risk, title=choosing.RISK_RULE, className="selection-risk"),
    ]
    return [
        html.Strong(count, id="selection-count"),
        html.Span(savings.main_parts(worth.all_steps, currency), className="selection-sum"),
        _folded("Details", details),
    ]


def way(word: str, id_: str, href: str, why: str, *, primary: bool = False) -> Component:
    """Return a link, or a disabled button with the reason if `why` is not ""."""
    class_name = "button act primary" if primary else "button act"
    if why:
        return html.Button(word, id=id_, className=class_name, disabled=True, title=why)
    return dcc.Link(word, href=href, id=id_, className=class_name)


def button(word: str, kind: str, of: str, why: str) -> Component:
    """Return the Snooze or Dismiss button, for the selection or for the open workload."""
    title = {"title": why} if why else {}
    return html.Button(word, className="button act", disabled=bool(why), **title,
                       **panels.asks(PUT_OFF, kind=kind, of=of))  # fmt: skip
