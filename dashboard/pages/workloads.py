"""Workloads: what each controller asks for, uses and will use; a row leads to its page."""

from __future__ import annotations

from typing import Final

from dash import Dash, html
from dash.development.base_component import Component

from cotenant.dashboard.frame import navigation
from cotenant.dashboard.frame.view import Obeyed, Page, View
from cotenant.dashboard.tables import list_page
from cotenant.dashboard.tables.list_page import Listing
from cotenant.recommender.model.views import WORKLOADS

LIST: Final = Listing(
    schema=WORKLOADS,
    path="workloads",
    noun="workload",
    shown=(
        "workload",
        "kind",
        "pattern",
        "sparkline",
        "replicas",
        "cpu_request",
        "cpu_p95",
        "cpu_used_ratio",
        "memory_request",
        "memory_max",
        "memory_used_ratio",
        "peak_time",
        "peak_cpu",
        "qos",
        "priority",
        "oom_kills",
        "days",
    ),
    facets=(("pattern", "Pattern"), ("qos", "QoS"), ("priority", "Priority"), ("kind", "Kind"), ("ns", "Namespace")),
    order="-cpu_request",
    subject=("workload", "namespace"),
    pinned=("workload",),
)


def render(view: View, search: str) -> Component:
    """Return the page: heading, tabs and the list as the URL's query string filters and sorts it."""
    lead = "Requested, used and expected, over all pods of a workload. Enter or click: its page."
    kindred = navigation.tabs(view, search, navigation.WORKLOADS, "workloads")
    return list_page.page(LIST, view, search, [html.H1("Workloads"), kindred, html.P(lead)])


def register(app: Dash, view: View) -> None:
    """Register the callbacks of the page's list."""
    list_page.register(app, view, LIST)


OBEYED: Final = Obeyed(time_range="the figures cover the whole history.")
PAGE: Final = Page("workloads", "Workloads", "w", render, register, obeyed=OBEYED)
