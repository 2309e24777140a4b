"""Ctrl-K: one search field for pages, workloads, nodes, namespaces, plans and commands to copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urlencode

import dash_mantine_components as dmc
from dash import Dash, Input, Output, dcc, html
from dash.development.base_component import Component

from cotenant.base.table import Schema
from cotenant.base.tables import filters
from cotenant.base.tables.filters import Query
from cotenant.base.text import visible
from cotenant.dashboard.figures import display
from cotenant.dashboard.frame import extent, panels
from cotenant.dashboard.frame.callbacks import in_browser
from cotenant.dashboard.frame.view import Page, Place, View
from cotenant.dashboard.sources.source import Snapshot
from cotenant.dashboard.sources.workload_story import Row
from cotenant.recommender.model.views import NODES, PLANS, WORKLOADS

PALETTE: Final = "palette"
FIELD: Final = "palette-field"
FOUND: Final = "palette-found"
NAMES: Final = ("namespace", "kind", "workload")
MOST_OF_A_KIND: Final = 6
"""Most search results of one kind; the last of them leads to the whole list."""
WORDS_OF_PAGES: Final = {
    "": "overview start first page summary",
    "recommendations": "to do right-size requests limits raise cut waste save saving risk oom killed",
    "findings": "idle oversized leaking missing",
    "changes": "applied rollback undo history ledger audit",
    "autopilot": "automatic policies switch pause tonight",
    "batch": "lend job fits free capacity reclaimable spark",
    "what-if": "what if slider replay simulate",
    "enforcement": "agents suppress throttle evict",
    "reservations": "reservations peak capacity approve",
    "forecast": "peak prediction next day tomorrow",
    "queues": "quota gang waiting pending",
    "rebalance": "moves descheduler evict balance empty nodes",
    "cluster-size": "nodes fewer smaller leave shrink",
    "workloads": "deployments services usage",
    "pods": "containers running",
    "nodes": "machines full allocatable",
    "health": "data quality gaps prometheus jobs",
}
"""Path of a page -> words by which people search for it, beside its title."""
COMMANDS: Final = (
    ("cotenant scan --prometheus URL", "read a cluster's usage and analyse it"),
    ("cotenant doctor", "check every right and source"),
    ("cotenant status", "the cluster on one screen"),
    ("cotenant recs list", "recommendations, as on page To do"),
    ("cotenant recs show NAMESPACE/WORKLOAD", "what a change would write, and its guardrails"),
    ("cotenant recs apply NAMESPACE/WORKLOAD", "a dry run; --yes applies the change"),
    ("cotenant recs changes", "applied changes, each with its verdict"),
    ("cotenant recs rollback CHANGE --yes", "undo a change"),
    ("cotenant get findings", "idle, missing and impossible requests"),
    ("cotenant get forecast", "the next 24 hours"),
    ("cotenant get nodes", "what each node can lend"),
    ("cotenant get quotas", "quotas: guarantees, borrowing, waiting pods"),
    ("cotenant get waiting", "pods that wait, and why"),
    ("cotenant reservations list", "plans for peaks"),
    ("cotenant autopilot preview", "what would change automatically tonight"),
    ("cotenant autopilot pause", "stop every automatic change"),
    ("cotenant simulate --trace stored", "try risks on the stored history"),
    ("cotenant dashboard --act", "a dashboard that acts on the cluster"),
)
"""Commands to copy, each with what it does."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A search result: its kind, name and detail, and the link that it opens or the text that it copies."""

    kind: str
    words: str
    beside: str = ""
    href: str = ""
    copies: str = ""


def find(view: View, pages: Sequence[Page], text: str) -> list[Hit]:
    """Return the search results that contain every word of `text`, by kind; for an empty text only the pages."""
    terms = text.lower().split()
    page_hits: list[Hit] = []
    for page in pages:
        if not page.letter:
            continue
        place = "" if page.place in (Place.HOME, Place.FOOT) else page.place.value
        page_text = f"{page.title} {place} {WORDS_OF_PAGES.get(page.path, '')}".lower()
        if all(word in page_text for word in terms):
            page_hits.append(Hit("Pages", page.title, place, f"{view.settings.base_path}{page.path}"))
    if terms:
        snapshot, base = view.source.snapshot(), view.settings.base_path
        rows, query = _find_rows(snapshot, WORKLOADS, text, NAMES)
        hits = [_of_workload("Workloads", row, f"{base}workload/{_path(row)}") for row in rows]
        count = snapshot.count(WORKLOADS.name, query)
        page_hits += _with_all(hits, "Workloads", count, f"{base}workloads?{_search_query(text)}")
        rows, query = _find_rows(snapshot, NODES, text, ("node",))
        hits = [Hit("Nodes", row["node"], "", f"{base}nodes/{quote(row['node'], safe='')}") for row in rows]
        page_hits += _with_all(hits, "Nodes", snapshot.count(NODES.name, query), f"{base}nodes?{_search_query(text)}")
        names = (option["label"] for option in extent.names(snapshot))
        names_hit = [name for name in names if all(word in name.lower() for word in terms)]
        for name in names_hit[:MOST_OF_A_KIND]:
            href = f"{base}workloads?{urlencode({'ns': filters.literal(name)})}"
            page_hits.append(Hit("Namespaces", name, "its workloads", href))
        rows, _ = _find_rows(snapshot, PLANS, text, NAMES)
        plans = f"{base}reservations?"
        page_hits += [_of_workload("Plans", row, f"{plans}{urlencode({'open': _path(row)})}") for row in rows]
        for command, does in COMMANDS:
            if all(word in f"{command} {does}".lower() for word in terms):
                page_hits.append(Hit("Commands", command, does, copies=command))
    return page_hits


def _find_rows(snapshot: Snapshot, schema: Schema, text: str, names: tuple[str, ...]) -> tuple[list[Row], Query]:
    """Return the first rows of a list that match a text, by name, and the query."""
    query = filters.parse(urlencode({"q": text, "sort": names[-1]}), schema)
    return list(snapshot.page(schema.name, query, slice(0, MOST_OF_A_KIND), names).rows()), query


def _of_workload(kind: str, row: Row, href: str) -> Hit:
    return Hit(kind, row["workload"], f"{row['namespace']} · {row['kind']}", href)


def _path(row: Row) -> str:
    return "/".join(quote(row[name], safe="") for name in NAMES)


def _with_all(hits: list[Hit], kind: str, count: int, href: str) -> list[Hit]:
    """Return the results, and a link to all of them if there are more."""
    return [*hits, Hit(kind, f"All {display.number(count)}", "", href)] if count > len(hits) else hits


def _search_query(text: str) -> str:
    return urlencode({"q": text})


# --- drawing ----------------------------------------------------------------------------------------------------------
def dialog(view: View, pages: Sequence[Page]) -> Component:
    """Return the closed dialog; `assets/palette.js` opens it and moves through its lines."""
    field = dmc.TextInput(
        id=FIELD,
        placeholder="A page, workload, node, namespace, plan or command",
        debounce=120,
        size="md",
        **{"aria-label": "Search everything", "data-autofocus": True},
    )
    first = html.Div(lines(find(view, pages, ""), ""), **{"data-for": ""})
    results = html.Div(first, id=FOUND, className="palette-found", role="status")
    hint = html.P([html.Kbd("↓"), " choose  ", html.Kbd("Enter"), " go  ", html.Kbd("Esc"), " close"])
    inside = html.Div([field, results, html.Div(hint, className="palette-hint")])
    closed = {"opened": False, "keepMounted": True, "size": "lg", "closeButtonProps": panels.CLOSE}
    return dmc.Modal(inside, id=PALETTE, title="Search everything", **closed)


def lines(hits: Sequence[Hit], text: str) -> list[Component]:
    """Return the results below a heading for each kind, or a note if there is none."""
    if not hits:
        return [html.P(f"Nothing was found for “{visible(text.strip())}”.", className="palette-none")]
    lists: dict[str, list[Component]] = {}
    for hit in hits:
        beside = html.Span(visible(hit.beside), className="dim")
        hit_words = [html.Span(visible(hit.words), className="palette-words"), beside]
        if hit.copies:
            line = html.Button(hit_words, className="palette-line", title="Copy", **{"data-copies": hit.copies})
        else:
            line = dcc.Link(hit_words, href=hit.href, className="palette-line")
        lists.setdefault(hit.kind, []).append(html.Li(line))
    return [html.Section([html.H3(kind), html.Ul(items)], className="palette-kind") for kind, items in lists.items()]


def register(app: Dash, view: View, pages: Sequence[Page]) -> None:
    """Register the search on the server, limited to what the person may see; the browser opens the dialog."""

    @app.callback(Output(FOUND, "children"), Input(FIELD, "value"))
    def _find(text: str | None) -> Component:
        typed = (text or "")[:200]
        return panels.render_guarded(
            lambda: html.Div(lines(find(view, pages, typed), typed), **{"data-for": text or ""})
        )

    in_browser(app, "paletteOpened", Input("palette-button", "n_clicks"))
