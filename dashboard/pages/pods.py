"""Pods: every running pod with its node, class, requests and present usage; a row leads to its workload's page."""

from __future__ import annotations

from typing import Final

from dash import Dash, html
from dash.development.base_component import Component

from cotenant.dashboard.frame import navigation
from cotenant.dashboard.frame.view import Obeyed, Page, View
from cotenant.dashboard.tables import list_page
from cotenant.dashboard.tables.list_page import Listing
from cotenant.recommender.model.views import PODS

LIST: Final = Listing(
    schema=PODS,
    path="pods",
    noun="pod",
    shown=(
        "pod",
        "node",
        "qos",
        "priority",
        "cpu_request",
        "cpu_usage",
        "cpu_used_ratio",
        "memory_request",
        "memory_usage",
        "memory_used_ratio",
        "workload",
        "kind",
    ),
    facets=(("qos", "QoS"), ("priority", "Priority"), ("kind", "Kind"), ("ns", "Namespace"), ("node", "Node")),
    order="-cpu_usage",
    widths={"pod": 304, "node": 96},
    subject=("pod", "namespace"),
    pinned=("pod",),
)


def render(view: View, search: str) -> Component:
    """Return the page: heading, tabs and the list as the URL's query string filters and sorts it."""
    lead = "What each running pod requests and uses now, and where. Enter or click: its workload's page."
    kindred = navigation.tabs(view, search, navigation.WORKLOADS, "pods")
    return list_page.page(LIST, view, search, [html.H1("Pods"), kindred, html.P(lead)])


def register(app: Dash, view: View) -> None:
    """Register the callbacks of the page's list."""
    list_page.register(app, view, LIST)


OBEYED: Final = Obeyed(time_range="the list shows the present.")
PAGE: Final = Page("pods", "Pods", "p", render, register, parent="workloads", obeyed=OBEYED)
