"""The frame around every page: navigation, top bar, theme, search, keyboard help, data age; and the choice of page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from urllib.parse import unquote

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component

from cotenant.base import measures
from cotenant.base.errors import CotenantError
from cotenant.base.text import visible
from cotenant.changes.access.settings import AccessMode
from cotenant.dashboard.access import faults
from cotenant.dashboard.access.menu import menu
from cotenant.dashboard.figures import display
from cotenant.dashboard.frame import callbacks, demo_clock, extent, palette, panels
from cotenant.dashboard.frame.callbacks import in_browser
from cotenant.dashboard.frame.navigation import navigation, tab_title
from cotenant.dashboard.frame.view import Obeyed, Page, View, everywhere
from cotenant.dashboard.settings import DashboardSettings
from cotenant.dashboard.sources.namespace_filter import OF_THESE
from cotenant.recommender.model.views import Overview

AMBER_AFTER_SECONDS: Final = 900
"""Age of the newest sample from which the badge turns amber. A quarter of dashboard.red_after_seconds's default: an
early sign, without effect."""

INDEX: Final = """<!DOCTYPE html>
<html lang="en" data-mantine-color-scheme="light">
  <head>
    {%metas%}
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <title>{%title%}</title>
    <link rel="icon" type="image/svg+xml" href="BASEassets/logo.svg">
    {%css%}
    <script>
      document.documentElement.dataset.base = "BASE";
      try {
        var kept = localStorage.getItem("mantine-color-scheme-value");
        var dark = kept === "dark" || (kept !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
        document.documentElement.setAttribute("data-mantine-color-scheme", dark ? "dark" : "light");
      } catch (blocked) { /* storage is off: light */ }
    </script>
  </head>
  <body>
    {%app_entry%}
    <footer>{%config%}{%scripts%}{%renderer%}</footer>
    <noscript>This dashboard needs JavaScript; the same numbers are at BASEapi/v1/overview.</noscript>
  </body>
</html>"""

THEME: Final[dict[str, Any]] = {
    "primaryColor": "indigo",
    "fontFamily": "var(--ct-font)",
    "defaultRadius": "sm",
    "respectReducedMotion": True,
}
KEYS_HELP: Final = (
    ("Ctrl K", "search everything: pages, workloads, nodes, namespaces, plans, commands"),
    ("/", "search names in the list"),
    ("j k", "next and previous row"),
    ("x", "select the row; exports contain only selected rows"),
    ("r", "review the selected rows, or the present one; in the review Enter goes to the next step"),
    ("p a s m y n", "on Plans: preview, approve, skip, edit, auto-approve, new plan; r rejects"),
    ("Enter", "open the row"),
    ("e", "export the rows as CSV"),
    ("t", "light or dark"),
    ("Esc", "close the open panel, or go back"),
    ("?", "this list"),
)
UNITS: Final = [{"value": "whole", "label": "cores, GiB"}, {"value": "milli", "label": "millicores, MiB"}]
ZONES: Final = [{"value": "utc", "label": "UTC"}, {"value": "local", "label": "this browser's"}]


def layout(view: View, pages: Sequence[Page]) -> Component:
    """Return the layout around every page: top bar, navigation, stores; the first callback adds the page itself."""
    loading = html.Div([html.Div(panels.skeleton(28, 84, 84, 340, 280))], className="page")
    live_region = html.Div(id=callbacks.SAID, className="said-region", role="status", **{"aria-live": "polite"})
    limits = html.Div(id="extent-notes", className="extent-notes", role="status")
    main = [html.Div(id="stale"), *demo_clock.strip(view), live_region, limits, html.Div(loading, id="page")]
    # The navigation as on Home, where no page is folded out: the results are first read by a callback.
    every = [replace(page, installed=everywhere) for page in pages]
    links = html.Ul(id="nav", children=navigation(view, every, "", ""))
    navbar = dmc.AppShellNavbar(html.Nav(links, className="places", **{"aria-label": "Pages"}))
    keys = [*((f"g {page.letter}", page.title) for page in pages if page.letter), *KEYS_HELP]
    table = panels.pairs((html.Kbd(key), text) for key, text in keys)
    closed: dict[str, Any] = {"opened": False, "size": "sm", "closeButtonProps": panels.CLOSE}
    return dmc.MantineProvider(
        [
            dcc.Location(id="url", refresh=False),
            dcc.Interval(id="tick", interval=1000 * view.settings.poll_seconds),
            dcc.Store(id="version", data=None),
            dcc.Store(id="redraw", data=None),
            dcc.Store(id="tab-title", data=None),
            html.A("Skip to content", href="#main", className="skip-link"),
            dmc.AppShell(
                [_header(view), navbar, dmc.AppShellMain(main, id="main")],
                header={"height": 52},
                navbar={"width": 212, "breakpoint": "sm", "collapsed": {"mobile": True}},
                padding=0,
                id="shell",
                transitionDuration=0,
            ),
            dmc.Modal(table, id="help", title="Keyboard", **closed),
            _display(),
            palette.dialog(view, pages),
        ],
        theme=THEME,
        defaultColorScheme="auto",
        id="mantine",
    )


def _header(view: View) -> Component:
    base = view.settings.base_path
    attributes = {"placeholder": "Search names  ( / )", "aria-label": "Search workloads by name"}
    search = dmc.TextInput(id="search", debounce=250, size="xs", w=150, **attributes)
    burger = dmc.Burger(id="burger", size="sm", hiddenFrom="sm", opened=False, **{"aria-label": "Navigation"})
    logo = html.Img(src=f"{base}assets/logo.svg", alt="", height=22)
    brand = html.Div([logo, html.Span("cotenant")], className="brand")
    theme = dmc.ColorSchemeToggle(
        id="theme",
        lightIcon=html.Span("☀", **{"aria-hidden": "true"}),
        darkIcon=html.Span("☾", **{"aria-hidden": "true"}),
        variant="default",
        size="md",
        **{"aria-label": "Switch between light and dark"},
    )
    display_button = _icon_button("⚙", "display-button", "Units and time zone")
    copy = html.Button("Copy link", id="copy-link", className="button copy", title="Link to exactly this view")
    # Addresses under names, which `assets/views.js` keeps in the browser.
    label = "Name of this view"
    name = dmc.TextInput(id="view-name", placeholder=label, size="xs", **{"aria-label": label})
    save = html.Button("Save", id="view-save", className="button", title="Keep this page, its filters and its columns")
    status = html.P(id="views-said", className="panel-note", role="status")
    view_panel = html.Div([html.Div([name, save], className="view-form"), html.Ul(id="view-list"), status])
    views = html.Details([html.Summary("Views", className="button"), view_panel], className="chooser views", id="views")
    help_button = dmc.ActionIcon("?", id="help-button", variant="default", size="md", **{"aria-label": "Keyboard help"})
    chips = html.Div(id="chips", className="chips")
    search_box = html.Div(search, role="search", className="search")
    launched = view.given.access.mode is AccessMode.NONE and view.given.launch_token != ""
    me = menu(view.given.current_user(), view.given.access, base, launched=launched)
    unfold = html.Button("Filter", id="unfold", className="button unfold", **{"aria-expanded": "false"})
    narrowing = html.Div([extent.controls(), search_box], className="narrowing")
    everything = _icon_button("⌕", "palette-button", "Search everything, Ctrl K", "glass")
    parts = [burger, brand, *_switch(view), chips, unfold, narrowing, everything, views, copy]
    return dmc.AppShellHeader(html.Div([*parts, display_button, theme, help_button, me], className="top"))


def _icon_button(sign: str, id_: str, label: str, kind: str = "") -> Component:
    style = {"className": kind} if kind else {}
    icon = html.Span(sign, **style, **{"aria-hidden": "true"})
    return dmc.ActionIcon(icon, id=id_, variant="default", size="md", **{"aria-label": label})


def _switch(view: View) -> list[Component]:
    """Return the cluster menu, whose links keep the page and its filters; empty for a single cluster."""
    addresses, base = view.given.clusters, view.settings.base_path
    here = next((label for label, address in addresses.items() if address == base), None)
    if here is None:
        return []
    items = [
        html.Li(html.A(visible(label), href=address, className="cluster-link"))
        for label, address in addresses.items()
        if address != base
    ]
    summary = html.Summary(visible(here), className="button cluster", title="Cluster")
    return [html.Details([summary, html.Ul(items)], className="chooser views", id="clusters")]


def _display() -> Component:
    """Return the dialog for units and time zone, which the browser stores."""
    persist: dict[str, Any] = {"persistence": True, "persistence_type": "local", "size": "xs"}
    units = dmc.SegmentedControl(id="units", value="whole", data=UNITS, **persist)
    zone = dmc.SegmentedControl(id="zone", value="utc", data=ZONES, **persist)
    note = html.P(
        "The choice applies to all times, and to amounts in tables, charts and headline numbers. Amounts in sentences "
        "stay in cores and GiB, with their unit; exports and the API have millicores, bytes and Unix seconds.",
        className="panel-note",
    )
    inside = [panels.pairs((("Amounts", units), ("Times", zone))), note]
    closed: dict[str, Any] = {"opened": False, "keepMounted": True, "size": "md", "closeButtonProps": panels.CLOSE}
    return dmc.Modal(inside, id="display", title="Units and time zone", **closed)


def path_of(pathname: str, settings: DashboardSettings) -> str:
    """Return the page's path below the base path."""
    return pathname.removeprefix(settings.base_path.rstrip("/")).strip("/")


def register(app: Dash, view: View, pages: Sequence[Page]) -> None:
    """Register the callbacks of the layout around every page."""
    by_path = {page.path: page for page in pages}

    @app.callback(
        Output("page", "children"),
        Input("url", "pathname"),
        Input("redraw", "data"),
        State("url", "search"),
        prevent_initial_call=False,
    )
    def _show(pathname: str | None, _redraw: int | None, search: str | None) -> Component:
        render = _renderer(by_path, path_of(pathname or "/", view.settings), view, search or "")
        if render is not None:
            return panels.render_guarded(render)
        why, home = f"Request {faults.request_id()}.", ("To Home", view.settings.base_path)
        state = panels.empty("Nothing is served at this address.", why=why, link=home)
        return html.Div([html.H1("Page not found"), state], className="page")

    @app.callback(
        Output("nav", "children"),
        Output("extent-notes", "children"),
        Output("extent", "data"),
        Output("tab-title", "data"),
        Input("url", "pathname"),
        Input("url", "search"),
        Input("version", "data"),
        prevent_initial_call=False,
    )
    def _navigate(pathname: str | None, search: str | None, _version: str | None) -> tuple[Any, ...]:
        path, text = path_of(pathname or "/", view.settings), search or ""
        first, _, below = path.partition("/")
        overview, page, obeyed = extent.overview_of(view), by_path.get(first), Obeyed()
        if page is not None:
            obeyed = page.obeyed_below if below and page.obeyed_below else page.obeyed
        links = navigation(view, pages, path, text)
        limits = [html.P(sentence) for sentence in extent.notes(overview, obeyed, text)]
        title = tab_title(pages, path, text, "" if overview is None else overview.cluster)
        return links, limits, extent.state(overview, obeyed, text), title

    @app.callback(
        Output("chips", "children"),
        Output("stale", "children"),
        Output("version", "data"),
        Input("tick", "n_intervals"),
        State("version", "data"),
        prevent_initial_call=False,
    )
    def _age(_ticks: int | None, shown_version: str | None) -> tuple[Any, Any, Any]:
        try:
            snapshot = view.source.snapshot()
        except CotenantError as error:
            return _chips(None, view), panels.trouble(error), no_update
        version = no_update if shown_version == snapshot.version else snapshot.version
        overview, stale = snapshot.overview, None
        if overview is not None and not overview.demo:
            age = measures.age_seconds(view.now_seconds(), overview.time_seconds)
            if age >= view.settings.red_after_seconds:
                text = f"The newest sample is {display.duration(age)} old: the figures may be out of date."
                parts = [html.Strong("Stale. "), text, html.Code("cotenant scan")]
                stale = html.Div(parts, className="banner", role="status")
        return _chips(overview, view), stale, version

    extent.register(app, view)
    palette.register(app, view, pages)
    demo_clock.register(app, view)
    # What the browser does alone: search, menu, help, units, zone, retries of an empty page.
    in_browser(app, "again", Output("redraw", "data"), Input("tick", "n_intervals"), prevent_initial_call=False)
    in_browser(app, "search", Input("search", "value"))
    in_browser(app, "searched", Output("search", "value"), Input("url", "search"), prevent_initial_call=False)
    in_browser(app, "menu", Output("shell", "navbar"), Input("burger", "opened"), State("shell", "navbar"))
    in_browser(app, "titled", Input("tab-title", "data"))
    in_browser(app, "help", Input("help-button", "n_clicks"))
    in_browser(app, "display", Input("display-button", "n_clicks"))
    in_browser(app, "written", Input("units", "value"), Input("zone", "value"), prevent_initial_call=False)


def _renderer(by_path: Mapping[str, Page], path: str, view: View, search: str) -> Callable[[], Component] | None:
    """Return the function that draws the page at a path; None if there is no such page."""
    first, *rest = path.split("/")
    page = by_path.get(first)
    if page is None or (rest and page.below is None):
        return None
    if page.below is None or not rest:
        return lambda: page.render(view, search)
    below, parts = page.below, tuple(unquote(part) for part in rest)
    return lambda: below(view, parts, search)


def _chips(overview: Overview | None, view: View) -> list[Component]:
    namespaces = view.given.current_user().reads
    names = visible(", ".join(sorted(namespaces or ())))
    reads = [] if namespaces is None else [panels.chip(OF_THESE, "gray", f"You see namespaces: {names or 'none'}.")]
    reads += [] if view.given.changes else [panels.chip("READ-ONLY", "gray", "This dashboard applies nothing.")]
    if overview is None:
        return reads
    name = [] if view.given.clusters else [html.Span(visible(overview.cluster), className="cluster", title="Cluster")]
    demo = [panels.chip("DEMO data - nothing is applied to a real cluster", "violet")] if overview.demo else []
    # The longest comes last: the bar has two lines, and what does not fit on them is out of sight.
    return [*name, age_chip(overview.time_seconds, view, demo=overview.demo), *reads, *demo]


def age_chip(time_seconds: float, view: View, *, demo: bool) -> Component:
    """Return a chip with the age of the newest sample, colored by the thresholds; demo data do not age."""
    if demo:
        return panels.chip(f"data until {display.moment(time_seconds)}", "gray")
    age = measures.age_seconds(view.now_seconds(), time_seconds)
    settings = view.settings
    tone = "red" if age >= settings.red_after_seconds else "orange" if age >= AMBER_AFTER_SECONDS else "teal"
    return panels.chip(f"data {display.duration(age)} old", tone, f"Newest sample: {display.moment(time_seconds)}")
