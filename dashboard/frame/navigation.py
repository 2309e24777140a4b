"""The navigation: six places and a footer, the pages of the present place below it, and tabs of related lists. Pure.

Every page has a link, also in collapsed places: the keys `g` + letter press it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

from dash import dcc, html
from dash.development.base_component import Component

from cotenant.base.text import visible
from cotenant.dashboard.frame import carried, panels
from cotenant.dashboard.frame.view import Page, Place, View

FURTHER_NAMES: Final[Mapping[str, str]] = {
    "home": "",
    "overview": "",
    "to-do": "recommendations",
    "todo": "recommendations",
    "plans": "reservations",
    "try-a-risk": "what-if",
    "risk": "what-if",
}
"""Other names under which people look for a page -> its path."""

TO_DO: Final = (("Recommendations", "recommendations"), ("Findings", "findings"))
WORKLOADS: Final = (("Workloads", "workloads"), ("Pods", "pods"))
"""(title, path) of related lists, which share one entry of the navigation."""


def slug(place: Place) -> str:
    """Return a place (an entry of the navigation) in lower case, for a URL or an element id."""
    return place.value.lower()


def lead_on(pages: Sequence[Page]) -> dict[str, str]:
    """Return further URL paths of pages, such as the navigation's entries: {further path: path of the page}."""
    places = {slug(place): of_place(pages, place)[0].path for place in Place if of_place(pages, place)}
    paths = {page.path for page in pages}
    return {name: path for name, path in {**places, **FURTHER_NAMES}.items() if name not in paths and path in paths}


def of_place(pages: Sequence[Page], place: Place) -> list[Page]:
    """Return the pages that a place (an entry of the navigation) lists."""
    return [page for page in pages if page.place is place and not page.parent]


def tab_title(pages: Sequence[Page], path: str, search: str, cluster: str) -> str:
    """Return the title of the browser's tab: the object that is open, the page, and the cluster."""
    first, _, below = path.partition("/")
    page = next((candidate for candidate in pages if candidate.path == first), None)
    names = [visible(unquote(part)) for part in (below or panels.address_value(search)).split("/") if part]
    # kind and resource are not what people look for among their tabs
    subject = "/".join(names[:1] + names[2:3]) if len(names) > 2 else "/".join(names)
    return " - ".join(
        part for part in (subject, page.title if page else "Not found", visible(cluster), "cotenant") if part
    )


def navigation(view: View, pages: Sequence[Page], path: str, search: str) -> list[Component]:
    """Return the entries, the present one highlighted and expanded; links keep the filters that apply everywhere."""
    links = _Links(view, pages, path.split("/", maxsplit=1)[0], path, carried.carried_parts(search))
    places = [place for place in Place if place is not Place.FOOT and of_place(pages, place)]
    return [*(links.place(place) for place in places), links.foot()]


class _Links:
    """The links of one navigation; `here` is the first segment of the path."""

    def __init__(self, view: View, pages: Sequence[Page], here: str, path: str, query: str) -> None:
        self._view, self._pages, self._path, self._query = view, pages, path, query
        self._base = view.settings.base_path
        present = next((page for page in pages if page.path == here), None)
        self._marked = present and (present.parent or present.path)
        marked = next((page for page in pages if page.path == self._marked), None)
        self._here = marked.place if marked else None

    def place(self, place: Place) -> Component:
        """Return a place with its pages below it, which are visible only in the present place."""
        listed = of_place(self._pages, place)
        on = place is self._here
        if place is Place.HOME:
            return self._item(listed[0])
        shown = [page for page in listed if page.installed(self._view)]
        way = self._link((shown or listed)[0], place.value, on=on, id_=f"place-{slug(place)}")
        off = [page for page in listed if page not in shown]
        folded = [self._key(page) for page in self._pages if page.place is place and page.parent and page.letter]
        below = html.Ul([*map(self._item, shown)], className="place-pages")
        rest = html.Div([*folded, *map(self._key, off)], hidden=True)
        # One line for what is not switched on here: its pages, and the command that switches it on.
        by_command: dict[str, list[Page]] = {}
        for page in off:
            by_command.setdefault(page.switch_on, []).append(page)
        lines = []
        for command, listed in by_command.items():
            page_links: list[Any] = []
            for page in listed:
                here = {"className": "nav-link current", "aria-current": "page"} if page.path == self._marked else {}
                page_link = html.Span([dcc.Link(page.title, href=f"{self._base}{page.path}")], **here)
                page_links += [", ", page_link] if page_links else [page_link]
            lines.append(html.P([*page_links, ": not switched on. ", html.Code(command)], className="switched-off"))
        parts = [below, *lines]
        return html.Li([way, html.Div(parts, className="place-below", hidden=not on), rest], className="place")

    def foot(self) -> Component:
        """Return the links about cotenant itself and its API."""
        outside = [html.A("API", href=f"{self._base}docs"), html.A("metrics", href=f"{self._base}metrics")]
        own = [self._link(page, page.title, on=page.path == self._marked) for page in of_place(self._pages, Place.FOOT)]
        current = {"aria-current": "page"} if self._here is Place.FOOT and self._marked == self._path else {}
        return html.Li([*own, *outside], className="nav-foot", **current)

    def _item(self, page: Page) -> Component:
        current = {"aria-current": "page"} if page.path == self._path else {}
        on = page.path == self._marked
        return html.Li(self._link(page, page.title, on=on), **current)

    def _key(self, page: Page) -> Component:
        """Return a hidden link that only a keyboard shortcut reaches."""
        return self._link(page, page.title, on=False)

    def _link(self, page: Page, title: str, *, on: bool, id_: str = "") -> Component:
        key = [] if id_ else [html.Kbd(f"g {page.letter}")]
        return dcc.Link(
            [html.Span(title), *key],
            href=f"{self._base}{page.path}" + (f"?{self._query}" if self._query else ""),
            className="nav-link current" if on else "nav-link",
            id=id_ or f"nav-{page.letter}",
        )


def tabs(view: View, search: str, ways: Sequence[tuple[str, str]], here: str) -> Component:
    """Return links, (title, path), between related lists, for display beside a heading; `here` is the present path."""
    query, base = carried.carried_parts(search), view.settings.base_path
    end = f"?{query}" if query else ""
    links = [panels.choice(title, f"{base}{path}{end}", path == here) for title, path in ways]
    names = " and ".join(title for title, _ in ways)
    return html.Nav(html.Ul(links, className="choice-list"), className="kindred", **{"aria-label": names})
