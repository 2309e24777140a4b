"""The bar above the findings: the GPU shares that the findings propose, and the link to their review.

It counts the ticked rows, or all shown rows if none is ticked; it is hidden if no shown row proposes a GPU share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from dash import Dash, dcc, html
from dash.development.base_component import Component

from cotenant.base.errors import UsageError
from cotenant.base.people import Right
from cotenant.base.tables import queries
from cotenant.base.tables.filters import FilterCondition, Query
from cotenant.dashboard.changes import review as reviewing
from cotenant.dashboard.changes import select_bar
from cotenant.dashboard.figures import display
from cotenant.dashboard.frame.view import View
from cotenant.dashboard.tables import selection as choosing
from cotenant.dashboard.tables.list_page import Listing
from cotenant.dashboard.tables.selection import Selection
from cotenant.recommender.model.finding import FindingKind
from cotenant.recommender.model.views import FINDINGS

TICKED: Final = "ticked-findings"
"""Id of the browser's store of ticked rows, which grid.js fills."""
PROPOSING: Final = FilterCondition("finding", (FindingKind.OVERSIZED_GPU.value,))


def bar_container() -> Sequence[Component]:
    """Return the bar's container and the browser store of the ticked rows."""
    return [dcc.Store(id=TICKED, data={}), html.Div(id="shares-bar", role="region", **{"aria-label": "Shares of GPUs"})]


def register(app: Dash, view: View, listing: Listing) -> None:
    """Register the callback that redraws the bar when ticks, address or results change, or in an outage."""
    select_bar.register_bar(app, "shares-bar", TICKED, partial(contents, view, listing))


def contents(view: View, listing: Listing, search: str, ticked: Selection) -> Component:
    """Return the proposed GPU shares, their saving, and Review or why it is unavailable; empty without shares."""
    findings = view.source.snapshot().tables[FINDINGS.name]
    try:
        shown = listing.query(search, findings.schema)
    except UsageError:
        return html.Div()
    if not _shares(findings, shown)[0]:
        return html.Div()
    of_these = choosing.chosen_rows(shown, ticked) or shown
    count, monthly = _shares(findings, of_these)
    refs = choosing.workloads(findings, _with_proposals(of_these)) if count else []
    most = reviewing.MOST_NAMED
    what = "of the ticked rows" if ticked else "of the listed rows"
    word = "frees" if monthly > 0 else "raises"
    saving = f"{word} {display.money(abs(monthly), view.currency)} a month"
    sums = [
        html.Strong(f"{display.counted(count, 'share')} of GPUs", id="shares-count"),
        html.Span(f"{what}, in {display.counted(len(refs), 'workload')}", className="dim"),
        *select_bar.first_of(len(refs), most),
        *([html.Span(saving, className="selection-sum")] if monthly else []),
    ]
    none = "" if count else "None of the ticked rows proposes a share of a GPU."
    why = select_bar.why_not(view, Right.REVIEW) or none
    href = reviewing.href(view.settings.base_path, refs[:most], gpu="1")
    acts = [
        *([html.Span(why, className="panel-note", id="shares-why")] if why else []),
        select_bar.way("Review shares", "review-shares", href, why, primary=True),
    ]
    parts = [html.Div(sums, className="selection-sums", role="status"), html.Div(acts, className="selection-acts")]
    return html.Div(select_bar.line(parts, ticked), className="selection-bar")


def _with_proposals(query: Query) -> Query:
    return replace(query, conditions=(*query.conditions, PROPOSING))


def _shares(findings: queries.Relation, query: Query) -> tuple[int, float]:
    """Return the number of findings that propose a GPU share, and their total saving a month."""
    count, monthly = findings.sums(
        ("count(*)", "sum(saving_month)"), queries.condition(findings, _with_proposals(query))
    )
    return count, monthly or 0.0
