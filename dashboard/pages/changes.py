"""Changes: what people applied to the cluster, the state of each change, its history, and its rollback."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from dash import Dash, Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component

from cotenant.base import measures
from cotenant.base.errors import CotenantError, UsageError
from cotenant.base.people import Person, Right
from cotenant.base.tables import queries
from cotenant.base.tables.filters import Query
from cotenant.base.text import visible
from cotenant.changes.model.change import ChangeState, ChangeStatus, unsettled_count
from cotenant.changes.model.service import ChangeService
from cotenant.changes.model.tables import CHANGES, write_lines
from cotenant.dashboard.changes import change_story, change_tables, ladders, verdict
from cotenant.dashboard.changes.change_story import Allowed
from cotenant.dashboard.figures import display
from cotenant.dashboard.frame import callbacks as acting
from cotenant.dashboard.frame import panels
from cotenant.dashboard.frame.callbacks import acts, in_browser
from cotenant.dashboard.frame.view import Page, Place, View, with_cluster
from cotenant.dashboard.sources.source import Snapshot
from cotenant.dashboard.tables import list_page, savings
from cotenant.dashboard.tables.list_page import Listing
from cotenant.recommender.model.savings import RequestTotals, Savings

NEWS: Final = "changes-news"
SECONDS_PER_MINUTE: Final = 60.0
ChangeAct = Callable[[ChangeService, Person, str], Sequence[ChangeStatus]]
"""Carries out a person's action on the change with this id; returns the changes that it affected, as they are then."""
ACTS: Final[tuple[tuple[Right, str, str, ChangeAct], ...]] = (
    (Right.ACCEPT, change_story.VERIFY, "verify yet", lambda service, who, id_: service.verify(who, [id_])),
    (Right.ADMINISTER, change_story.SETTLE, "settle", lambda service, who, _id: service.settle(who)),
    (Right.APPROVE, change_story.CONFIRM, "confirm", lambda service, who, id_: service.confirm(who, id_)),
    (Right.ACCEPT, change_story.DECLINE, "decline", lambda service, who, id_: service.decline(who, id_)),
)
"""(right, store that the button fills, words for what failed, action); in the last two, a second person decides on a
change that waits for one."""
SHOWN: Final = (
    "time", "state", "actor", "namespace", "workload", "kind", "moved", "method", "overridden", "verdict",
    "saved_cpu", "saved_memory", "raised_cpu", "raised_memory", "batch", "words",
)  # fmt: skip
WIDTHS: Final = {
    "namespace": 130, "moved": 330, "words": 220, "time": 150, "actor": 130, "overridden": 120, "state": 116,
    "batch": 96,
}  # fmt: skip
AMOUNTS: Final = ("saved_cpu", "saved_memory", "raised_cpu", "raised_memory")


def _totals(snapshot: Snapshot, query: Query, _currency: str) -> Sequence[Component]:
    """Return the totals of the filtered rows: expected savings, those in force, those verified."""
    columns: Any = queries.columns_of(snapshot.tables[CHANGES.name], query, "state", *AMOUNTS)
    state = columns["state"]
    in_force = [s in {"applied", "verified", "regressed"} for s in state]
    parts = (("Expected", [True] * len(state)), ("In force", in_force), ("Verified", list(state == "verified")))
    totals = []
    for label, mask in parts:
        count = display.counted(measures.matching_count(mask), "change")
        name = html.Span(label, className="total-label")
        amounts = html.Strong(savings.saving_parts(summed_changes(columns, mask), ""), className="total-value")
        by = html.Span(f"of requests, by {count}", className="total-parts")
        totals.append(html.Div([name, amounts, by], className="total"))
    return totals


def summed_changes(columns: Any, mask: Sequence[bool]) -> Savings:
    """Return the total by which the masked rows of CHANGES lower and raise requests, in millicores and bytes."""
    cpu, memory, raised_cpu, raised_memory = (int(columns[name][mask].sum()) for name in AMOUNTS)
    return Savings(RequestTotals(cpu, memory), RequestTotals(raised_cpu, raised_memory))


def _shape(definitions: Sequence[dict[str, Any]]) -> None:
    for definition in definitions:
        if definition["field"] in ("state", "verdict"):
            definition["cellRenderer"] = "CotenantChip"
        if definition["field"] == "time":
            definition["valueFormatter"] = {"function": "cotenantStamp(params)"}


def _empty_state(view: View) -> Component:
    if view.given.changes is None:
        return panels.empty(change_tables.NO_CHANGE_SERVICE, why="Changes need a dashboard with --act:",
                            command="cotenant dashboard --act")  # fmt: skip
    link = ("To the recommendations", f"{view.settings.base_path}recommendations")
    return panels.empty("Nothing was changed yet.", why="Accepted recommendations appear here.", link=link)


LIST: Final = Listing(
    schema=CHANGES,
    path="changes",
    noun="change",
    shown=SHOWN,
    facets=(("state", "State"), ("by", "By"), ("method", "Method"), ("overridden", "Overridden"), ("ns", "Namespace"),
            ("cluster", "Cluster"), ("batch", "Batch")),
    order="-time",
    opens="?open={change}",
    totals=_totals,
    widths=WIDTHS,
    shape=_shape,
    news=NEWS,
    alone=True,
    nothing=_empty_state,
)  # fmt: skip


def render(view: View, search: str) -> Component:
    """Return the page; the drawer opens if the URL names a change."""
    body = panels.render_guarded(lambda: _list(view, search))
    heading = [
        html.H1("Changes"),
        html.P("What was applied, its verdict, and its rollback. Enter or click shows all details."),
    ]
    line = panels.render_guarded(lambda: ledger(view))
    side = html.Div(line, id="ledger-line", className="ledger-line", role="status")
    story_frame = html.Div(panels.skeleton(60, 200, 200), id="change-told")
    drawer = panels.drawer("change-drawer", "Change", story_frame, width=760)
    stores_asked = (*change_story.ASKED, ladders.ASKED)
    stores = [dcc.Store(id=NEWS, data=_version(view)), *(dcc.Store(id=store) for store in stores_asked)]
    climbing = html.Div(panels.render_guarded(lambda: ladders.summary(view)), id="ladder-list", className="ladder-list")
    head = html.Div([*heading, side, climbing], className="page-head")
    # The confirmation dialog before a rollback.
    buttons = [
        html.Button("Cancel", id="change-cancel", className="button act"),
        html.Button("Roll back", id="change-confirm", className="button act primary", **{"data-autofocus": "true"}),
    ]
    parts = [html.Div(id="change-what"), html.Div(buttons, className="dialog-acts"), dcc.Store(id="change-asked")]
    dialog = panels.dialog("change-question", "Roll back", parts, "lg")
    return html.Div([head, body, drawer, dialog, *stores], className="page list-page")


def _list(view: View, search: str) -> Component:
    """Return the list; if nothing was ever changed, a note without an empty grid."""
    changes_view = change_tables.with_changes(view)
    if len(changes_view.source.snapshot().tables[CHANGES.name]):
        return list_page.body(LIST, changes_view, search)
    return html.Div(_empty_state(view))


def ledger(view: View) -> Component:
    """Return whether the ledger is intact, and a button to resolve changes with an unknown outcome if any exist."""
    if view.given.changes is None:
        return html.Span()
    health = change_tables.visible_health(view.given.changes.ledger(), view.given.current_user())
    tone = "red" if health.bad_row else "teal" if health.anchored else "gray"
    statuses = change_tables.statuses_of(view)
    open_ones = unsettled_count(statuses)
    notes = " ".join(health.notes)
    parts: list[Any] = [panels.chip(change_tables.health_words(health), tone, notes)]
    if health.notes:
        parts.append(html.Details([html.Summary("More"), html.P(visible(notes))], className="more"))
    if open_ones:
        why = acting.why_not(view, Right.ADMINISTER)
        parts.append(change_story.button(f"Resolve {open_ones} with unknown outcome", change_story.SETTLE, why))
    trouble = view.given.changes.trouble()
    return html.Div([*parts, *([html.P(visible(trouble), className="panel-note")] if trouble else [])])


def _version(view: View) -> str:
    """Return a string that differs with every change, each minute of a soak time, and if the cluster is unreachable."""
    try:
        statuses = change_tables.statuses_of(view)
    except CotenantError as error:
        return error.message
    soaking = any(s.state is ChangeState.APPLIED for s in statuses)
    minute = int(view.now_seconds() // SECONDS_PER_MINUTE) if soaking else 0
    return f"{change_tables.version_of(statuses)}/{minute}/{acting.outage_reason(view)}"


def story(view: View, id_: str) -> tuple[str, Component]:
    """Return the title and content of the drawer for one change."""
    service, who = change_tables.require_changes(view), view.given.current_user()
    statuses = {s.change.id: s for s in service.changes(who)}
    status = statuses.get(id_)
    if status is None:
        raise UsageError(f"There is no change {id_!r} that you may read.", fix="The list has all changes.")
    soak = SECONDS_PER_MINUTE * view.given.actions.soak_minutes
    left_seconds = change_tables.soaks(status, soak, view.now_seconds())
    rows, can = service.story(who, id_), allowed_acts(view, status, statuses.values(), left_seconds)
    why = panels.render_guarded(lambda: html.Div(verdict.section(view, status, rows)))
    steps = ladders.section(view, status.change.ladder)
    body = change_story.body(status, rows, can, left_seconds, [why, *steps])
    return change_story.title(status.change), body


def allowed_acts(view: View, status: ChangeStatus, others: Any, left_seconds: float | None) -> Allowed:
    """Return which actions on one change are possible now, and why the others are not."""
    why = acting.why_not(view, Right.ACCEPT, status.change.namespace)
    holds = "" if status.state.in_force else f"The change is {status.state}: there is nothing to roll back."
    nothing_due = "" if left_seconds is not None else f"The change is {status.state}: there is nothing to verify."
    soaking = f"{display.duration(left_seconds)} of soak time left." if left_seconds else ""
    batch = [s for s in others if s.change.batch == status.change.batch]
    if status.state is ChangeState.AWAITING:
        # Whether the requesting person may confirm or decline a change as its second person. The person who accepted
        # the change may only decline it.
        waiting = [s.change for s in batch if s.state is status.state]
        who, change = view.given.current_user(), status.change
        approves = acting.why_not(view, Right.APPROVE, change.namespace)
        own = who.name == change.actor
        confirm = approves or ("You accepted the change: somebody else has to confirm it." if own else "")
        written = [line for change_waiting in waiting for line in write_lines(change_waiting.writes, None)]
        return Allowed(why, why, confirm=confirm, decline=why if own else approves, written=tuple(written))
    together = [s.change.id for s in batch if s.state.in_force]
    return Allowed(why or holds, why or nothing_due or soaking, () if why else tuple(together))


def rollback_question(view: View, what: str, id_: str) -> tuple[Component, list[str]]:
    """Return what would be rolled back, field by field, and the changes' ids; raise UsageError for an unknown id."""
    service, who = change_tables.require_changes(view), view.given.current_user()
    statuses = {s.change.id: s for s in service.changes(who)}
    if id_ not in statuses:
        raise UsageError(f"There is no change {id_!r}.", fix="The list has all changes.")
    batch = statuses[id_].change.batch
    targets = [s for s in statuses.values() if s.state.in_force and (
        s.change.id == id_ if what == "rollback" else s.change.batch == batch)]  # fmt: skip
    lead = f"Restore the earlier values, in {display.counted(len(targets), 'workload')}:"
    content = change_story.rollback_list(lead, [status.change for status in targets])
    return content, [status.change.id for status in targets]


def register(app: Dash, view: View) -> None:
    """Register all callbacks of the page: of the list, of the drawer, and of the actions."""
    list_page.register(app, change_tables.with_changes(view), LIST)
    _register_reads(app, view)

    @app.callback(
        Output("change-question", "opened"),
        Output("change-what", "children"),
        Output("change-asked", "data"),
        Input(change_story.ROLL_BACK, "data"),
        State("url", "search"),
    )
    @acts(view, Right.ACCEPT)
    def _ask(request: Mapping[str, Any] | None, search: str | None) -> Any:
        if not request:
            return [no_update] * 3
        if request["what"] == ladders.BACK:
            return [True, *ladders.back_question(view, str(request["ladder"]), int(request["step"]))]
        content, ids = rollback_question(view, str(request["what"]), panels.address_value(search or ""))
        return [True, content, {"ids": ids}]

    @app.callback(Output("change-question", "opened", allow_duplicate=True), Input("change-cancel", "n_clicks"))
    def _cancel(_clicks: int | None) -> bool:
        return False

    @app.callback(
        Output("change-question", "opened", allow_duplicate=True),
        Output(NEWS, "data", allow_duplicate=True),
        Input("change-confirm", "n_clicks"),
        State("change-asked", "data"),
        running=[(Output("change-confirm", "disabled"), True, False)],
    )
    @acts(view, Right.ACCEPT)
    def _roll_back(_clicks: int | None, back_request: Mapping[str, Any] | None) -> Any:
        if not _clicks or not back_request:
            return [no_update] * 2
        service, who = change_tables.require_changes(view), view.given.current_user()
        if "ladder" in back_request:
            done = service.go_back(who, str(back_request["ladder"]), int(back_request["step"]))
        else:
            done = service.roll_back(who, [str(id_) for id_ in back_request["ids"]])
        return [False, _announce_outcome(view, done, "roll back")]

    for right, pressed, phrase, act in ACTS:
        _register_act(app, view, right, pressed, phrase, act)
    ladders.register(app, view, NEWS, lambda: _version(view))


def _register_reads(app: Dash, view: View) -> None:
    """Register the callbacks that change nothing: ledger version, ledger state, and the drawer's content."""

    @app.callback(Output(NEWS, "data"), Input("tick", "n_intervals"), State(NEWS, "data"), prevent_initial_call=False)
    def _news(_ticks: int | None, shown_version: str | None) -> Any:
        now = _version(view)
        return no_update if now == shown_version else now

    @app.callback(
        Output("ledger-line", "children"),
        Output("ladder-list", "children"),
        Input("tick", "n_intervals"),
        Input(NEWS, "data"),
        prevent_initial_call=False,
    )
    def _ledger(_ticks: int | None, _news: str) -> tuple[Component, Component]:
        return panels.render_guarded(lambda: ledger(view)), panels.render_guarded(lambda: ladders.summary(view))

    @app.callback(
        Output("change-drawer", "opened"),
        Output("change-drawer", "title"),
        Output("change-told", "children"),
        Input("url", "search"),
        Input(NEWS, "data"),
        prevent_initial_call=False,
    )
    def _open(search: str | None, _news: str) -> tuple[bool, str, Component]:
        id_ = panels.address_value(search or "")
        if not id_:
            return False, "Change", html.Div()
        try:
            title, body = story(view, id_)
        except CotenantError as error:
            return True, "Change", panels.trouble(error)
        return True, title, body

    in_browser(app, "closed", Input("change-drawer", "opened"))


def _register_act(app: Dash, view: View, right: Right, pressed: str, phrase: str, act: ChangeAct) -> None:
    """Register an action on the open change: its button writes to `pressed`, and `phrase` describes it in an error."""

    @app.callback(Output(NEWS, "data", allow_duplicate=True), Input(pressed, "data"), State("url", "search"))
    @acts(view, right)
    def _act(request: Mapping[str, Any] | None, search: str | None) -> Any:
        if not request:
            return no_update
        done = act(change_tables.require_changes(view), view.given.current_user(), panels.address_value(search or ""))
        return _announce_outcome(view, done, phrase)


def _announce_outcome(view: View, done: Sequence[ChangeStatus], act: str) -> str:
    """Announce the outcome, discard cached results, and return the page's new version."""
    acting.announce(visible(change_tables.done_words(done, act)))
    view.source.forget()
    return _version(view)


PAGE: Final = Page(
    "changes", "Changes", "c", render, register, place=Place.RIGHT_SIZE, installed=with_cluster("changes")
)
