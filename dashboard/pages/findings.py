"""Findings: what people should know about workloads and nodes, beside recommendations; a row links to its subject.

Findings that propose a GPU share can be reviewed: the ticked ones, or all that are shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from dash import Dash, html
from dash.development.base_component import Component

from cotenant.dashboard.changes import shares_bar
from cotenant.dashboard.frame import callbacks as acting
from cotenant.dashboard.frame import navigation, panels
from cotenant.dashboard.frame.view import Obeyed, Page, Place, View
from cotenant.dashboard.tables import list_page
from cotenant.dashboard.tables.list_page import Listing
from cotenant.recommender.model.views import FINDINGS

WIDTHS: Final = {"severity": 118, "saving_month": 118, "evidence": 440, "proposal": 460}
"""Column -> width in pixels, where the heading is wider than the cells, or people copy a sentence from a cell."""


def _shape(definitions: Sequence[dict[str, Any]]) -> None:
    """Wrap sentences to a second line."""
    for column_def in definitions:
        if column_def["field"] in ("evidence", "proposal"):
            column_def["cellClass"] = "wrapped"


SHOWN: Final = (
    "severity",
    "finding",
    "workload",
    "saving_month",
    "cpu_freed",
    "memory_freed",
    "evidence",
    "proposal",
    "kind",
)
LIST: Final = Listing(
    schema=FINDINGS,
    path="findings",
    noun="finding",
    shown=SHOWN,
    facets=(("finding", "Finding"), ("severity", "Severity"), ("kind", "Kind"), ("ns", "Namespace")),
    order="-severity",
    widths=WIDTHS,
    shape=_shape,
    subject=("workload", "namespace", "container"),
    pinned=("severity", "finding", "workload"),
    bar=shares_bar.bar_container,
)


def render(view: View, search: str) -> Component:
    """Return the page: heading, tabs and the list as the URL's query string filters and sorts it."""
    lead = "Idle, oversized, leaking and uneven workloads, wrong requests. Enter or click opens the workload or node."
    kindred = navigation.tabs(view, search, navigation.TO_DO, "findings")
    head = [html.H1("Findings"), kindred, html.P(lead), panels.severity_legend()]
    return list_page.page(LIST, view, search, head, acting.outage_store(view))


def register(app: Dash, view: View) -> None:
    """Register the callbacks of the list and of the bar for GPU shares."""
    list_page.register(app, view, LIST)
    shares_bar.register(app, view, LIST)


OBEYED: Final = Obeyed(time_range="findings cover the whole history.")
PAGE: Final = Page(
    "findings", "Findings", "i", render, register, place=Place.RIGHT_SIZE, parent="recommendations", obeyed=OBEYED
)
