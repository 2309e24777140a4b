"""Recommendations: present and proposed requests per container, their totals, and a drawer that explains each.

Selected rows go to the review, from the list or one by one from the drawer; snoozed and dismissed ones are hidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote, unquote

from dash import Dash, Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component

from cotenant.base.identity import ContainerName, WorkloadRef
from cotenant.base.resource import Resource
from cotenant.base.tables import queries
from cotenant.base.tables.filters import Query
from cotenant.base.text import visible
from cotenant.changes.model import ledger_marks
from cotenant.dashboard.changes import explanation, review_steps, select_bar, snooze, verdict
from cotenant.dashboard.figures import story as chart
from cotenant.dashboard.figures.display import label
from cotenant.dashboard.frame import callbacks as acting
from cotenant.dashboard.frame import navigation, panels
from cotenant.dashboard.frame.callbacks import in_browser
from cotenant.dashboard.frame.carried import workload_address
from cotenant.dashboard.frame.view import Obeyed, Page, Place, View
from cotenant.dashboard.pages import portrait
from cotenant.dashboard.pages.review import register as register_review
from cotenant.dashboard.pages.review import render as render_review
from cotenant.dashboard.sources.source import Snapshot
from cotenant.dashboard.tables import grid, list_page, savings
from cotenant.dashboard.tables.list_page import Listing, ListTab
from cotenant.recommender.model.list_totals import savings_of_rows
from cotenant.recommender.model.recommendation import Recommendation
from cotenant.recommender.model.savings import When
from cotenant.recommender.model.savings_text import RAISES
from cotenant.recommender.model.steps import Ready
from cotenant.recommender.model.todo import ORDERS, TodoList
from cotenant.recommender.model.views import RECOMMENDATIONS

PROPOSED: Final = {
    "cpu_step": "cpu_request_now",
    "cpu_request": "cpu_request_now",
    "cpu_limit": "cpu_limit_now",
    "memory_step": "memory_request_now",
    "memory_request": "memory_request_now",
    "memory_limit": "memory_limit_now",
}
ACTIONS: Final = {
    "cpu_step": "cpu_action",
    "cpu_request": "cpu_action",
    "cpu_limit": "cpu_limit_action",
    "memory_step": "memory_action",
    "memory_request": "memory_action",
    "memory_limit": "memory_limit_action",
}
TITLES: Final = {When.NOW: "Now", When.ALL_STEPS: "After all steps"}
BEFORE_AND_AFTER: Final = {
    "cpu_request": ("cpu", "CPU, before → after"),
    "memory_request": ("memory", "Memory, before → after"),
}
"""Column of a request -> its resource, and the heading under which request and limit are drawn."""
WIDTHS: Final = {
    "workload": 144,
    "severity": 98,
    "cpu_request": 134,
    "memory_request": 168,
    "saving_month": 84,
    "ready": 134,
    "memory_observed_max": 89,
}
"""Pixels of the columns in sight: no cell but a long name is cut, and together they fit a laptop's window."""
NAME_PARTS: Final = 4
CHART_HEIGHT: Final = 260
READY_SENTENCES: Final = {
    Ready.WHOLE: "The recommendation passes the guardrails in one step.",
    Ready.FIRST_STEP: "The change is larger than one step may be: its first step passes the guardrails now.",
    Ready.WAITING: "The workload was changed lately; the next step waits: {}.",
    Ready.SECOND_PERSON: "The guardrails pass; the workload's QoS class needs two people: one accepts, one confirms.",
    Ready.BLOCKED: "A guardrail stops the recommendation: {}. The review shows the difference.",
    Ready.NOTHING: "Nothing changes.",
}
"""Readiness of a recommendation -> sentence; {} is replaced by what stops it."""


def totals(snapshot: Snapshot, query: Query, currency: str) -> Sequence[Component]:
    """Return what the shown rows free or raise after all steps; folded below it, all amounts and balances by `When`."""
    advice = snapshot.tables[RECOMMENDATIONS.name]
    where = queries.condition(advice, query)
    sums = {when: savings_of_rows(advice, where, when) for when in When}
    word = RAISES if query.values("todo") == (TodoList.RAISE,) else ""
    first = [html.Span(f"{TITLES[When.ALL_STEPS]}:", className="total-label"), " "]
    first.append(html.Strong(savings.main_parts(sums[When.ALL_STEPS], currency, word), className="total-value"))
    every = []
    for when, summed in sums.items():
        parts = [
            html.Span(TITLES[when], className="total-label"),
            html.Strong(savings.saving_parts(summed, currency), className="total-value"),
            html.Span(savings.net_parts(summed, currency), className="total-parts"),
        ]
        every.append(html.Div(parts, className="total", id=f"total-{when.name.lower().replace('_', '-')}"))
    return [html.Details([html.Summary(first), html.Div(every, className="more-sums")], className="sums")]


def _shape(definitions: Sequence[dict[str, Any]]) -> None:
    """Show proposed columns as "now -> proposed" (the action if there is no number), and usage columns as a pair.

    The limit stands below its request, because some rows change only the limit.
    """
    grid.now_and_proposed(definitions, PROPOSED, ACTIONS)
    for column_def in definitions:
        column_def["width"] = WIDTHS.get(column_def["field"], column_def["width"])
        if column_def["field"] == "saving_month":  # "Saving, USD/month": the narrow column breaks it between words
            column_def["headerName"] = column_def["headerName"].rpartition(", ")[2].replace("/", " a ")
        if column_def["field"] == "ready":
            column_def["cellRenderer"] = "CotenantReady"
        if column_def["field"] in BEFORE_AND_AFTER:
            resource, title = BEFORE_AND_AFTER[column_def["field"]]
            limit = f"{resource}_limit"
            drawn = {"value": limit, "now": PROPOSED[limit], "action": ACTIONS[limit]}
            column_def["cellRendererParams"]["limit"] = drawn
            tip = f"{column_def['headerTooltip']} Per pod, after all steps; a second line shows a changed limit."
            # These have the longest texts, and what a wider window leaves.
            column_def |= {"headerName": title, "headerTooltip": tip, "flex": 1, "minWidth": column_def["width"]}
            column_def.pop("headerValueGetter", None)
        if column_def["field"] == "memory_observed_max":
            pair = {"parts": ["cpu_observed_max"]}
            tip = "Highest CPU and memory use measured in one pod. Demand, including throttled CPU, has its own column."
            heading = {"headerName": "Highest seen", "headerTooltip": tip}
            column_def |= {**heading, "cellRenderer": "CotenantPair", "cellRendererParams": pair}


FACETS: Final = (
    ("ready", "Ready to apply"),
    ("severity", "Severity"),
    ("waste", "Waste"),
    ("reason", "Reason"),
    ("killed_first", "Killed first"),
    ("kind", "Kind"),
    ("ns", "Namespace"),
)
LIST: Final = Listing(
    schema=RECOMMENDATIONS,
    path="recommendations",
    noun="recommendation",
    shown=("severity", "workload", "cpu_request", "memory_request", "saving_month", "ready", "memory_observed_max"),
    facets=FACETS,
    order=",".join(ORDERS[""]),
    totals=totals,
    shape=_shape,
    subject=("workload", "namespace", "container"),
    pinned=("severity", "workload"),
    patches=True,
    hidden=ledger_marks.HIDDEN,
    revealed=(ledger_marks.STATE, ledger_marks.WHY),
    bar=select_bar.bar_container,
    tabs=tuple(
        ListTab("todo", value, title, ORDERS.get(value, ORDERS[""]))
        for value, title in (
            (TodoList.RAISE, "At risk (raise)"),
            (TodoList.CUT, "Waste (cut)"),
            (f"{TodoList.ADJUST},{TodoList.LIMITS}", "Other changes"),
            ("", "All"),
        )
    ),
)


def render(view: View, search: str) -> Component:
    """Return the page; the drawer opens if the URL names a container."""
    keys = html.P(
        "Requests and limits are per pod; savings cover all pods after all steps. Enter or a click shows a row's "
        "reasons, x selects the row, r opens the review."
    )
    help_ = html.Details([html.Summary("How to read it"), html.Div([keys, panels.severity_legend()])], className="more")
    waiting = panels.skeleton(60, 200, 200).to_plotly_json()  # what the browser puts into a drawer that opens
    head = [html.H1("To do"), navigation.tabs(view, search, navigation.TO_DO, "recommendations"), help_]
    unseen = [
        dcc.Store(id="drawer-name"),
        dcc.Store(id="drawer-waiting", data=waiting),
        panels.drawer("drawer", "Recommendation", html.Div(id="explanation"), width=620),
        snooze.dialog(),
        acting.outage_store(view),
    ]
    return list_page.page(LIST, view, search, head, *unseen)


def parse_container_name(open_name: str) -> ContainerName | None:
    """Return the container in an `open` value, an escaped namespace/kind/workload/container; None if it is not one."""
    parts = [unquote(part) for part in open_name.split("/")]
    return ContainerName(*parts) if len(parts) == NAME_PARTS else None


def register(app: Dash, view: View) -> None:
    """Register the callbacks of the list, the drawer, the selection bar, snoozing and the review."""
    list_page.register(app, view, LIST)
    acting.register(app, view)
    select_bar.register(app, view, LIST)
    snooze.register(app, view, LIST)
    register_review(app, view, LIST)

    # It follows the URL, and closing it changes the URL: open at once, then its words, then its charts.
    in_browser(
        app,
        "drawer",
        Output("explanation", "children", allow_duplicate=True),
        Output("drawer", "opened"),
        Output("drawer-name", "data"),
        Input("url", "search"),
        State("drawer-name", "data"),
        State("drawer-waiting", "data"),
        prevent_initial_call="initial_duplicate",
    )
    in_browser(app, "closed", Input("drawer", "opened"))

    @app.callback(
        Output("explanation", "children"),
        Input("drawer-name", "data"),
        Input("version", "data"),
        Input(acting.AWAY, "data"),
        State("url", "search"),
    )
    def _explain(open_name: str | None, *rest: Any) -> Component:
        name = parse_container_name(open_name or "")
        return no_update if name is None else explain_container(view, name, str(rest[-1] or ""))

    @app.callback(Output("drawer-charts", "children"), Input("charts-of", "data"), prevent_initial_call=False)
    def _draw(open_name: str | None) -> Component:
        name = parse_container_name(open_name or "")
        if name is None:
            return no_update
        return panels.render_guarded(lambda: _usage(view, name.workload_ref, view.source.explain(*name)))


def explain_container(view: View, name: ContainerName, search: str) -> Component:
    """Return the explanation of a container for the drawer, or why it failed: a drawer must not wait forever."""
    return panels.render_guarded(lambda: _explanation_body(view, name, search))


def _explanation_body(view: View, name: ContainerName, search: str) -> Component:
    ref = name.workload_ref
    way = workload_address(view.settings.base_path, ref, search, "recommendations")
    acts = panels.render_guarded(lambda: snooze.workload_buttons(view, ref))
    recommendation = view.source.explain(*name)
    steps = panels.render_guarded(lambda: _steps_panel(view, name, recommendation))
    # The place of the charts, as high as they will be; what asks for them comes and goes with it.
    open_name = "/".join(quote(part, safe="") for part in name)
    heights = [CHART_HEIGHT for _ in _changed_resources(recommendation)]
    place = html.Div(panels.skeleton(*heights), id="drawer-charts")
    drawn = [dcc.Store(id="charts-of", data=open_name), place] if heights else []
    body = panels.render_guarded(lambda: explanation.body(recommendation, name, view.given.patch, way, drawn))
    return html.Div([acts, steps, body, panels.render_guarded(lambda: _last_change(view, ref))])


def _steps_panel(view: View, name: ContainerName, recommendation: Recommendation | None) -> Component:
    """Return what can be applied now, and the dated steps of a cut that is too large for one step."""
    names = dict(zip(RECOMMENDATIONS.key, name, strict=True))
    row = view.source.snapshot().row(RECOMMENDATIONS.name, names, ("ready", "stopped_by", "steps"))
    if recommendation is None or row is None:
        return html.Div()
    ready = Ready(row["ready"] or Ready.NOTHING)
    sentence = READY_SENTENCES[ready].format(visible(row["stopped_by"]).rstrip("."))
    steps = view.given.steps([recommendation], view.now_seconds()) if ready is Ready.FIRST_STEP else ()
    chip_text = f"in {int(row['steps'])} steps" if ready is Ready.FIRST_STEP and row["steps"] else label(ready)
    line = html.P([panels.chip(chip_text, ready.value.replace("-", "")), f" {sentence}"])
    return html.Section([line, *review_steps.steps(steps, "Steps")], className="explain", id="ready-now")


def _changed_resources(recommendation: Recommendation | None) -> set[Resource]:
    values = recommendation.values if recommendation else ()
    return {v.resource for v in values if v.changes_template}


def _usage(view: View, ref: WorkloadRef, recommendation: Recommendation | None) -> Component:
    """Return charts of the workload's usage, request and proposal, for each resource whose request would change."""
    workload_story = view.source.story(ref)
    moved = _changed_resources(recommendation)
    if workload_story is None or not moved:
        return html.Div()
    charts = [
        panels.figure(chart.chart(portrait.line(workload_story, resource)), f"drawer-{resource}", CHART_HEIGHT)
        for resource in Resource
        if resource in moved and resource.value in workload_story.portraits
    ]
    return html.Section([html.H2("Usage, request and proposal"), *charts], className="explain")


def _last_change(view: View, ref: WorkloadRef) -> Component:
    change = verdict.last_change(view, ref)
    return html.Section([html.H2("Last change"), change], className="explain") if change else html.Div()


def below(view: View, parts: tuple[str, ...], search: str) -> Component:
    """Return the review, the only page below this one; for any other address the list itself."""
    return render_review(view, search) if parts == ("review",) else render(view, search)


OBEYED: Final = Obeyed(time_range="recommendations use the whole history.")
PAGE: Final = Page(
    "recommendations", "To do", "r", render, register, below=below, place=Place.RIGHT_SIZE, obeyed=OBEYED
)
