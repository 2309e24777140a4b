"""Workloads and pods: requests and usage, for workloads also the forecast; a row links to the workload."""

from __future__ import annotations

from typing import Final

from dash import Dash, html
from dash.development.base_component import Component

from cotenant.dashboard.frame import navigation
from cotenant.dashboard.frame.view import Obeyed, Page, View
from cotenant.dashboard.tables import list_page
from cotenant.dashboard.tables.list_page import Listing
from cotenant.recommender.model.views import PODS, WORKLOADS

SHOWN: Final = (
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
)
LIST: Final = Listing(
    schema=WORKLOADS,
    path="workloads",
    noun="workload",
    shown=SHOWN,
    facets=(("pattern", "Pattern"), ("qos", "QoS"), ("priority", "Priority"), ("kind", "Kind"), ("ns", "Namespace")),
    order="-cpu_request",
    subject=("workload", "namespace"),
    pinned=("workload",),
)
POD_COLUMNS: Final = (
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
)
POD_LIST: Final = Listing(
    schema=PODS,
    path="pods",
    noun="pod",
    shown=POD_COLUMNS,
    facets=(("qos", "QoS"), ("priority", "Priority"), ("kind", "Kind"), ("ns", "Namespace"), ("node", "Node")),
    order="-cpu_usage",
    widths={"pod": 304, "node": 96},
    subject=("pod", "namespace"),
    pinned=("pod",),
)


def _page(listing: Listing, title: str, letter: str, lead: str, time_range: str, parent: str = "") -> Page:
    """Return a page with one list and a link to the other list beside its heading."""

    def render(view: View, search: str) -> Component:
        kindred = navigation.tabs(view, search, navigation.WORKLOADS, listing.path)
        return list_page.page(listing, view, search, [html.H1(title), kindred, html.P(lead)])

    def register(app: Dash, view: View) -> None:
        list_page.register(app, view, listing)

    return Page(listing.path, title, letter, render, register, parent=parent, obeyed=Obeyed(time_range=time_range))


PAGE: Final = _page(
    LIST,
    "Workloads",
    "w",
    "Requests, usage and forecast over all pods of a workload. Enter or click opens its page.",
    "the figures cover the whole history.",
)
POD_PAGE: Final = _page(
    POD_LIST,
    "Pods",
    "p",
    "What each running pod requests and uses now, and where. Enter or click opens its workload.",
    "the list shows the present.",
    parent="workloads",
)
