"""The navigation: six places and a foot, what is not switched on in one line, and addresses that lead on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from dash.development.base_component import Component

from cotenant.base.process.clock import FixedClock
from cotenant.base.store import Store
from cotenant.dashboard import pages
from cotenant.dashboard.app import create_app
from cotenant.dashboard.frame.navigation import lead_on, navigation
from cotenant.dashboard.frame.view import DashboardContext, Place, View
from cotenant.dashboard.sources.source import StoreSource
from tests.support import dashboard as support

PLACES = {
    "Home": [],
    "Right-size": ["To do", "Changes", "Autopilot"],
    "Lend": ["Batch", "Try a risk", "Enforcement"],
    "Peaks": ["Plans", "Forecast"],
    "Place": ["Queues", "Rebalance", "Cluster size"],
    "Explore": ["Workloads", "Nodes"],
}
"""What a person finds where, in the order of the sidebar."""
OLD = (
    "", "workloads", "workload", "recommendations", "changes", "autopilot", "nodes", "pods", "forecast", "reservations",
    "queues", "rebalance", "batch", "what-if", "enforcement", "findings", "health",
)  # fmt: skip
"""Every address that ever was a page's."""


class Anything:
    """A service that is there; the navigation asks it nothing."""


def view_with(tmp_path: Path, **services: Any) -> View:
    source = StoreSource(Store(tmp_path.as_uri(), "c"), support.QUICK)
    return View(source, support.QUICK, lambda: 0.0, DashboardContext(**services))


def every(part: Any) -> Iterator[Component]:
    if isinstance(part, (list, tuple)):
        for child in part:
            yield from every(child)
    elif isinstance(part, Component):
        yield part
        yield from every(getattr(part, "children", None))


def text_of(part: Any) -> str:
    if isinstance(part, str):
        return part
    inner = part if isinstance(part, (list, tuple)) else getattr(part, "children", None) or ()
    return inner if isinstance(inner, str) else "".join(map(text_of, inner if isinstance(inner, list) else [*inner]))


def in_sight(part: Any) -> Iterator[Component]:
    """The parts that are not hidden."""
    if isinstance(part, (list, tuple)):
        for child in part:
            yield from in_sight(child)
    elif isinstance(part, Component) and not getattr(part, "hidden", False):
        yield part
        yield from in_sight(getattr(part, "children", None))


def links(parts: Any) -> list[tuple[str, str]]:
    """(first words, id) of every link of the navigation in sight."""
    return [
        (text_of(component.children[0]), component.id)
        for component in in_sight(parts)
        if "nav-link" in str(getattr(component, "className", ""))
    ]


ALL_SERVICES = dict.fromkeys(("changes", "autopilot", "queues", "moves"), Anything())


def test_there_are_six_places_and_a_foot_and_a_page_is_two_steps_away(tmp_path: Path) -> None:
    view = view_with(tmp_path, **ALL_SERVICES)
    *places, foot = navigation(view, pages.ALL, "", "")
    # Home is where we are and has no pages below it, so that in sight are the places alone.
    assert [title for title, _ in links(places)] == list(PLACES)
    assert [title for title, _ in links(foot)] == ["Health"]
    assert {
        component.children for component in every(foot) if getattr(component, "href", "") in ("/docs", "/metrics")
    } == {
        "API",
        "metrics",
    }
    for place, titles in PLACES.items():
        first = next(page for page in pages.ALL if page.place is Place(place) and not page.parent)
        shown = [text for text, _ in links(navigation(view, pages.ALL, first.path, ""))]
        # One click on a place shows its pages, the second is on one of them.
        below = [text for text in shown if text not in PLACES and text != "Health"]
        installed = [text for text in titles if text != "Enforcement"]  # the store is empty: no node agent is known
        assert below == installed, place


def test_what_is_not_switched_on_is_one_line_with_the_command_that_does_it(tmp_path: Path) -> None:
    drawn = navigation(view_with(tmp_path), pages.ALL, "recommendations", "")
    lines = [
        text_of(component) for component in in_sight(drawn) if getattr(component, "className", "") == "switched-off"
    ]
    assert lines == ["Changes, Autopilot: not switched on. cotenant dashboard --act"]
    assert [text for text, id_ in links(drawn) if id_ in ("nav-c", "nav-a")] == []
    # On such a page it is marked like any other, in the one line that names it.
    on_it = in_sight(navigation(view_with(tmp_path), pages.ALL, "changes", ""))
    assert [text_of(link) for link in on_it if getattr(link, "aria-current", "") == "page"] == ["Changes"]
    with_all = navigation(view_with(tmp_path, **ALL_SERVICES), pages.ALL, "recommendations", "")
    assert [
        component for component in in_sight(with_all) if getattr(component, "className", "") == "switched-off"
    ] == []


@pytest.mark.parametrize("services", [{}, ALL_SERVICES], ids=["read-only", "acting"])
@pytest.mark.parametrize("path", OLD)
def test_a_key_reaches_every_page_from_every_page(tmp_path: Path, path: str, services: dict[str, Any]) -> None:
    """`g` + letter presses the link of that id, in sight or not; there is one, once."""
    drawn = navigation(view_with(tmp_path, **services), pages.ALL, path, "")
    ids = [component.id for component in every(drawn) if str(getattr(component, "id", "")).startswith("nav-")]
    assert sorted(ids) == sorted(f"nav-{page.letter}" for page in pages.ALL if page.letter)


def test_links_carry_the_namespaces_and_mark_where_we_are(tmp_path: Path) -> None:
    drawn = navigation(view_with(tmp_path, **ALL_SERVICES), pages.ALL, "pods", "?ns=pay&sort=node")
    hrefs = {
        component.id: component.href
        for component in every(drawn)
        if getattr(component, "href", "") and hasattr(component, "id")
    }
    assert hrefs["nav-w"] == "/workloads?ns=pay" and hrefs["place-lend"] == "/batch?ns=pay"
    # Pods are a list of the page Workloads, which is in Explore.
    marked = [
        text_of(component.children[0])
        for component in in_sight(drawn)
        if getattr(component, "className", "") == "nav-link current"
    ]
    assert marked == ["Explore", "Workloads"]


def test_every_old_address_is_a_page_and_places_lead_on() -> None:
    assert {page.path for page in pages.ALL} >= set(OLD)
    leading = lead_on(pages.ALL)
    assert leading.items() >= {
        "home": "", "overview": "", "to-do": "recommendations", "plans": "reservations", "try-a-risk": "what-if",
        "right-size": "recommendations", "lend": "batch", "peaks": "reservations", "place": "queues",
        "explore": "workloads",
    }.items()  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("base", ["/", "/under/it/"])
def test_an_address_under_another_name_leads_to_the_page_with_its_filters(tmp_path: Path, base: str) -> None:
    settings = support.DashboardSettings(port=0, base_path=base)
    app = create_app(StoreSource(Store(tmp_path.as_uri(), "c"), settings), settings, FixedClock(0.0))
    with support.served(app) as address:
        for name, path in lead_on(pages.ALL).items():
            response = requests.get(f"{address}{base}{name}?ns=pay&sort=a%20b", timeout=60, allow_redirects=False)
            assert response.status_code == 307, name
            assert response.headers["location"] == f"{base}{path}?ns=pay&sort=a%20b"
        for path in OLD:
            assert requests.get(f"{address}{base}{path}", timeout=60).status_code == 200, path
        assert requests.get(f"{address}{base}nowhere", timeout=60).status_code == 404
