"""Actions of node agents, prepared for display: the node, the time span, its marks, and why there are none. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlencode

import numpy as np
from dash import dcc, html
from dash.development.base_component import Component

from cotenant.base import measures
from cotenant.base.errors import CotenantError
from cotenant.base.tables import filters, queries, time_span
from cotenant.base.tables.filters import ALWAYS, FilterCondition, Query
from cotenant.base.tables.queries import RowCondition
from cotenant.base.text import agree, visible
from cotenant.dashboard.figures import display
from cotenant.dashboard.figures import enforcement as chart
from cotenant.dashboard.figures.enforcement import Mark, Shown
from cotenant.dashboard.frame import panels
from cotenant.dashboard.frame.view import View
from cotenant.dashboard.sources.source import Snapshot
from cotenant.enforcer.model.enforcement import LANE_SENTENCES, REASON_SENTENCES, Gathering, Lane, NodeLanes
from cotenant.enforcer.model.enforcement_tables import ENFORCEMENT

TITLE: Final = "What the agent did here"
HOUR: Final = 3600.0
SPANS: Final = (("15 min", 900.0), ("6 h", 6 * HOUR), ("24 h", 24 * HOUR), ("7 d", 168 * HOUR))
NODES_SHOWN: Final = 12
MARKS_SHOWN: Final = 20_000
MARGIN: Final = 0.02
"""Share of the shown time span that is added on both sides."""
GATHER: Final = "cotenant node enforcement gather"
IMPORT: Final = "cotenant node enforcement import actions.jsonl --node NAME"


# --- why there is nothing ----------------------------------------------------------------------------------------
def agents_known(view: View) -> bool:
    """Return whether node agents run or ran on this cluster; also True if the store or the agents could not be read."""
    try:
        snapshot = view.source.snapshot()
    except CotenantError:
        return True
    gathering = snapshot.gathering
    is_told = gathering is not None and bool(gathering.agents or gathering.trouble)
    return is_told or len(snapshot.tables[ENFORCEMENT.name]) > 0


def empty_state(view: View) -> Component:
    """Return why there are no actions: not collected, forbidden, unreachable, no agents, or no action was needed."""
    gathering = view.source.snapshot().gathering
    if gathering is None:
        why = "Agents report their actions as Events of the cluster, and in their logs. Collect them:"
        headline = "The node agents' actions have not been collected yet."
        return panels.empty(headline, why=why, command=f"{GATHER}\n{IMPORT}")
    if gathering.forbidden:
        return panels.forbidden_state(gathering.trouble, gathering.fix)
    if gathering.trouble:
        return panels.failure_state(gathering.trouble, gathering.fix)
    when = display.moment(gathering.gathered_seconds)
    if not gathering.agents:
        why = f"No agent and no Event of an agent was found at {when}. To start agents as a dry run:"
        return panels.empty("No node agent runs.", why=why, command="cotenant install --enforcer")
    why = f"{_agents(gathering)}, and no action was needed up to {when}. A dry run writes no Events: import its log."
    return panels.empty("Healthy and quiet.", why=why, command=f"cotenant node status\n{IMPORT}")


def notices(view: View) -> list[Component]:
    """Return warnings to show beside the actions: the last collection of actions failed, or is old."""
    snapshot = view.source.snapshot()
    gathering = snapshot.gathering
    if gathering is None:
        return []
    demo = snapshot.overview is not None and snapshot.overview.demo
    age = measures.age_seconds(view.now_seconds(), gathering.gathered_seconds)
    if gathering.trouble:
        head = "Forbidden. " if gathering.forbidden else "No answer. "
        text = f"{gathering.trouble} {gathering.fix} The actions shown are of an earlier collection."
    elif not demo and age >= view.settings.red_after_seconds:
        head = "Old. "
        text = f"The agents' actions were collected {display.duration(age)} ago; there may be newer ones. "
    else:
        return []
    return [html.Div([html.Strong(head), text, " ", html.Code(GATHER)], className="banner", role="status")]


def facts(gathering: Gathering | None) -> Component:
    """Describe which agents were asked, and when."""
    if gathering is None:
        return html.P("The node agents' actions have not been collected yet.", className="panel-note")
    parts: list[Any] = [f"{_agents(gathering)}; gathered ", panels.moment(gathering.gathered_seconds)]
    parts += [f" from {', '.join(gathering.sources)}"] if gathering.sources else []
    parts += [*(f"; {note}" for note in gathering.notes), "."]
    return html.P(parts, className="panel-note", id="enforcement-facts")


def _agents(gathering: Gathering) -> str:
    if gathering.agents is None:
        return "How many agents run is not known"
    dry = f", {gathering.dry_agents:,} as a dry run" if gathering.dry_agents else ""
    return f"{agree(gathering.agents, 'agent runs', 'agents run')}{dry}"


# --- which node, which span --------------------------------------------------------------------------------------
def nodes(snapshot: Snapshot, query: Query) -> list[tuple[str, int]]:
    """Return (node, number of actions) of nodes with actions under the query, the node with most actions first."""
    events = snapshot.tables[ENFORCEMENT.name]
    (counts,) = events.groups([("node",)], queries.condition(events, query))
    return sorted(((name or filters.EMPTY, count) for (name,), count in counts.items()), key=lambda p: (-p[1], p[0]))


def shown_acts(snapshot: Snapshot, lanes: NodeLanes | None, node: str, query: Query) -> Shown:
    """Return a node's actions under the query; if it has no time span, those of the last hour with known actions."""
    of_node = FilterCondition("node", (filters.literal(node),))
    mine = replace(query, conditions=(*query.conditions, of_node), sort=())
    events = snapshot.tables[ENFORCEMENT.name]
    rows = queries.select(events, mine)
    times = events.take(rows, [time_span.COLUMN]).columns[time_span.COLUMN]
    since, until = _window(times, lanes, queries.span_of(events, query))
    drawn_rows = rows[(times <= until)][:MARKS_SHOWN]
    return Shown(node, since, until, marks_of(events.take(drawn_rows).columns), lanes)


def _window(times: Any, lanes: NodeLanes | None, span: tuple[float, float]) -> tuple[float, float]:
    last = [float(times.max())] if len(times) else []
    first = [float(times.min())] if len(times) else []
    if lanes is not None:
        size = max((len(v) for v in lanes.values.values()), default=0)
        first.append(lanes.start_seconds)
        last.append(lanes.start_seconds + lanes.step_seconds * size)
    until = span[1] if span[1] != ALWAYS[1] else max(last, default=0.0)
    since = span[0] if span[0] != ALWAYS[0] else max(min(first, default=until), until - HOUR)
    if until - since < 1.0:
        since, until = until - 30.0, until + 30.0
    edge = MARGIN * (until - since) if span == ALWAYS else 0.0
    return since - edge, until + edge


def marks_of(columns: Mapping[str, Any]) -> list[Mark]:
    """Convert rows of ENFORCEMENT into marks of the chart."""
    marks = []
    for cells in zip(*columns.values(), strict=True):
        row = dict(zip(columns, cells, strict=True))
        change, outcome = f" ({row['before_after']})" if row["before_after"] else "", str(row["outcome"])
        holds = True if outcome in ("written", "would-write") else None
        mark = Mark(
            time_seconds=float(row["time"]),
            lane=Lane(row["lane"]),
            reason=str(row["reason"]),
            words=f"{row['why']}{change}",
            who=f"{row['namespace']}/{row['pod']}" if row["pod"] else "",
            place=f"{row['target']}|{row['knob']}",
            holds=False if outcome == "restored" else holds,
            dry=row["mode"] == "dry-run",
            count=int(row["count"]) if np.isfinite(row["count"]) else 1,
        )
        marks.append(mark)
    return marks


def address(query: Query, node: str, **changed: Any) -> str:
    """Return a link within the page: the same filters, this node, and the changed parts of the query."""
    filter_query = filters.encode(replace(query, **changed))
    opens = urlencode({"open": node}) if node else ""
    return "?" + "&".join(part for part in (filter_query, opens) if part)


def span_links(query: Query, node: str, newest: float) -> Component:
    """Return links to time spans that end at the node's newest action, so that they work for old records too."""
    links = []
    for label, length in SPANS:
        span = (float(np.ceil(newest + 1)) - length, np.inf)
        links.append(panels.choice(label, address(query, node, span=span, back_seconds=np.inf), query.span == span))
    newest_hour = query.span == ALWAYS and not np.isfinite(query.back_seconds)
    links.append(panels.choice("newest hour", address(query, node, span=ALWAYS, back_seconds=np.inf), newest_hour))
    return panels.choice_row("Up to the newest action", links)


def node_links(node_counts: Sequence[tuple[str, int]], query: Query, node: str) -> Component:
    """Return links to the nodes with most actions; the list below has all nodes."""
    ordered = [pair for pair in node_counts if pair[0] == node] + [pair for pair in node_counts if pair[0] != node]
    first = sorted(ordered[:NODES_SHOWN], key=node_counts.index)
    links = [panels.choice(f"{visible(name)} ({count:,})", address(query, name), name == node) for name, count in first]
    rest = measures.left_out_count(len(node_counts), len(first))
    more = [html.Span(f"and {rest:,} more nodes in the rows below", className="dim")] if rest > 0 else []
    return panels.choice_row("Node", links, *more)


def reasons(marks: Sequence[Mark]) -> Component:
    """Return every lane and every reason on the chart with its sentence."""
    codes = sorted({mark.reason for mark in marks})
    lanes = [lane for lane in Lane if any(mark.lane is lane for mark in marks)]
    rows = [(chart.STYLES[lane][0], LANE_SENTENCES[lane]) for lane in lanes]
    rows += [(code, REASON_SENTENCES.get(code, "A finding that its mark's text describes.")) for code in codes]
    table = panels.pairs((visible(code), text) for code, text in rows)
    return html.Details([html.Summary("What lanes and reasons mean"), table], className="more")


# --- on the page of a node ---------------------------------------------------------------------------------------
def on_node(view: View, node: str) -> Component:
    """Return a short chart of one node's actions, with a link to the full page."""
    snapshot, base = view.source.snapshot(), view.settings.base_path
    only = Query((FilterCondition("node", (filters.literal(node),)),))
    href = f"{base}enforcement{address(only, node)}"
    link = dcc.Link("All actions, with reasons", href=href, className="quiet-link", id="to-enforcement")
    drawn = shown_acts(snapshot, None, node, Query())
    if not drawn.marks:
        if not len(snapshot.tables[ENFORCEMENT.name]):
            return panels.panel(TITLE, empty_state(view), aside=link, id_="node-enforcement")
        gathering = snapshot.gathering
        why = f"Agents were asked for actions at {display.moment(gathering.gathered_seconds)}." if gathering else ""
        quiet = panels.empty("No action of an agent is known on this node.", why=why, command=GATHER)
        return panels.panel(TITLE, quiet, aside=link, id_="node-enforcement")
    height = chart.height(Shown(node, 0, 1, drawn.marks))
    strip = panels.figure(chart.lane_strip(drawn), "node-lanes", height)
    return panels.panel(TITLE, strip, aside=link, id_="node-enforcement")


def newest(snapshot: Snapshot, node: str) -> float:
    """Return the Unix time of a node's newest action; 0 if it has none."""
    events = snapshot.tables[ENFORCEMENT.name]
    (latest,) = events.sums([f"max({time_span.COLUMN})"], RowCondition("node = ?", (node,)))
    return latest or 0.0
