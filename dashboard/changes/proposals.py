"""The proposals on a workload's page: back-test card, values of each container, and their log over time. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dash import html
from dash.development.base_component import Component

from cotenant.base import measures
from cotenant.base.cluster import ContainerRole
from cotenant.base.resource import Resource
from cotenant.base.text import visible
from cotenant.dashboard.changes import explanation
from cotenant.dashboard.figures import display
from cotenant.dashboard.frame import panels
from cotenant.dashboard.sources import workload_story as story
from cotenant.dashboard.sources.workload_story import BacktestTotals, Row, Story
from cotenant.recommender.model.recommendation import Restart
from cotenant.recommender.model.savings import When, savings_of
from cotenant.recommender.model.savings_text import FREES, RAISES, saving_text
from cotenant.recommender.model.shortage_text import MEANING, sentences

RESTARTS: Final = {
    Restart.NONE: "Nothing restarts.",
    Restart.IN_PLACE: "Pods are resized while they run.",
    Restart.ROLLOUT: "A rollout: every pod is replaced.",
}
LOG_ROWS: Final = 24


def card(workload_story: Story, currency: str) -> Component:
    """Return the back-test of the proposal beside what really happened; then restarts, savings and confidence."""
    recommendations = workload_story.recommendations
    result = story.outcome(recommendations)
    changing = [r for r in recommendations if any(v.changes_template for v in r.values)]
    worth = saving_text(savings_of(recommendations), currency)
    rows = (("Restart", RESTARTS[story.restart(changing)]), (f"Requests {When.ALL_STEPS}", worth))
    facts = panels.pairs(rows)
    if result is None:
        why = "No value is proposed: each container shows the reason."
        missing = panels.empty("No value was tested on past usage.", why=why, command=explain_command(workload_story))
        return html.Div([missing, facts, *explanation.trust(recommendations)])
    parts = [html.P(f"Had the proposal been applied {result.days:g} days ago, over all pods:", className="panel-note")]
    if result.containers < result.of:
        partial = f"Partial: tested on {result.containers} of {display.counted(result.of, 'container')}."
        parts.append(html.P(partial, className="note-partial"))
    parts += [_backtest_table(result), facts, *explanation.trust(recommendations)]
    return html.Div(parts, className="explain")


def _backtest_table(result: BacktestTotals) -> Component:
    head = html.Thead(html.Tr([html.Th(title, scope="col") for title in ("", "as it was", "proposed")]))
    throttled = [f"{minutes:,.0f}" for minutes in (result.now_throttled_minutes, result.throttled_minutes)]
    rows = (
        ("Minutes throttled", *throttled),
        ("OOM kills", f"{result.now_oom_kills:,}", f"{result.oom_kills:,}"),
        ("Evictions in addition", "–", f"{result.evictions:,}"),
        ("CPU requests, mean over the days", "–", _freed_text(result.freed_millicores, Resource.CPU)),
        ("Memory requests, mean over the days", "–", _freed_text(result.freed_bytes, Resource.MEMORY)),
    )
    worse = {
        "Minutes throttled": result.throttled_minutes > result.now_throttled_minutes,
        "OOM kills": result.oom_kills > result.now_oom_kills,
        "Evictions in addition": result.evictions > 0,
    }
    body = []
    for name, now, then in rows:
        proposed = html.Td([html.Strong(then), *([panels.chip("worse", "orange")] if worse.get(name) else [])])
        body.append(html.Tr([html.Th(name, scope="row"), html.Td(now), proposed]))
    return html.Table([head, html.Tbody(body)], className="inputs compared")


def _freed_text(freed: int, resource: Resource) -> str:
    """Return "net frees" or "net raises" with the absolute amount."""
    return f"net {FREES if freed >= 0 else RAISES} {display.amount(abs(freed), resource)}"


def containers(workload_story: Story, *, stale: bool) -> Component:
    """Return each container's values with reasons, rules, inputs and formulas; the first container is expanded."""
    if not workload_story.recommendations:
        why = "No container of this workload was seen running, so the strategy recommends nothing."
        return panels.empty("No recommendation for this workload.", why=why, command=explain_command(workload_story))
    old = "The usage data are old: run a new scan before you apply this recommendation."
    warned = [html.P(old, className="note-partial", role="note")] if stale else []
    sections: list[Component] = []
    for recommendation in workload_story.recommendations:
        role = [] if recommendation.role is ContainerRole.MAIN else [panels.chip(recommendation.role.value, "gray")]
        facts = [
            display.counted(recommendation.replicas, "replica"),
            f"strategy {recommendation.strategy}",
            *([f"profile {recommendation.profile}"] if recommendation.profile else []),
            f"{display.duration(recommendation.window_seconds)} of history",
            f"recommender settings {recommendation.settings_digest}",
        ]
        name = html.Strong(visible(recommendation.container.container))
        parts = [
            html.P(" · ".join(facts), className="panel-note"),
            html.Div(explanation.values(recommendation), className="values"),
        ]
        # What the CPU request meant in the days of the back-test, as it was and as proposed.
        tried = recommendation.backtest
        if tried is not None and (texts := sentences(tried)):
            items = [html.Li([html.Strong(f"{heading.capitalize()}: "), sentence]) for heading, sentence in texts]
            parts += [
                html.P(f"The CPU request in the last {tried.days:g} days:", className="panel-note"),
                html.Ul(items, className="reasons"),
                html.P(MEANING, className="panel-note"),
            ]
        body = html.Div([*parts, *explanation.notes_and_queries(recommendation)], className="explain")
        summary = html.Summary([name, panels.severity(recommendation.severity), *role])
        sections.append(html.Details([summary, body], open=not sections, className="container"))
    return html.Div([*warned, *sections])


def explain_command(workload_story: Story) -> str:
    """Return the command that explains the workload's recommendation."""
    name = "/".join(str(workload_story.workload[k]) for k in ("namespace", "kind", "workload"))
    return f"cotenant explain {visible(name)}"


def log(rows: Sequence[Row]) -> Component:
    """Return how the proposals changed from run to run, newest first; a run that changed nothing has no row."""
    if not rows:
        return panels.empty(
            "No proposal was logged yet.", why="The next analysis writes the first entry.", command="cotenant scan"
        )
    newest = sorted(rows, key=lambda r: (-(r["time"] or 0), r["container"]))[:LOG_ROWS]
    titles = ("Until", "Container", "CPU request", "CPU limit", "Memory request", "Memory limit", "Why", "Strategy")
    body = []
    for row in newest:
        reasons = sorted({str(row[k]) for k in ("cpu_reason", "memory_reason") if row[k]})
        entry = [
            panels.moment(row["time"]) if row["time"] else display.MISSING,
            visible(str(row["container"])),
            panels.amount(row["cpu_request"], Resource.CPU),
            panels.amount(row["cpu_limit"], Resource.CPU),
            panels.amount(row["memory_request"], Resource.MEMORY),
            panels.amount(row["memory_limit"], Resource.MEMORY),
            ", ".join(reasons),
            str(row["strategy"]),
        ]
        body.append(html.Tr([html.Td(cell) for cell in entry]))
    more = f"{measures.left_out_count(len(rows), LOG_ROWS):,} older rows are stored." if len(rows) > LOG_ROWS else ""
    return html.Div([panels.table(titles, body), *([html.P(more, className="panel-note")] if more else [])])
