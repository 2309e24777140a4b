"""Approving moves, and nodes to be emptied, and withdrawing them: what a button opens, its form, and how it went.

It calls the dashboard's `MoveService`, which checks the person's rights again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component

from cotenant.base import measures
from cotenant.base.errors import CotenantError, UsageError
from cotenant.base.people import Right
from cotenant.base.text import visible
from cotenant.dashboard.changes import review_steps
from cotenant.dashboard.figures import display
from cotenant.dashboard.frame import callbacks, panels
from cotenant.dashboard.frame.callbacks import acts, announce
from cotenant.dashboard.frame.view import View, in_cluster
from cotenant.scheduler_ext.rebalance.model.move_service import TO_BE_EMPTIED, JobCarrier, MoveOutcome

EVERY: Final = "*"
"""In the place of a pod or node: every one of the round."""
MOST_LINES: Final = 40
WORK: Final = "moves-work"
ACTED: Final = "moves-acted"
ASKED: Final = "moves-asked"
"""What the buttons of the tables ask for: {"act": "approve" or "withdraw", "of": a `subject`, "name": which one}."""
Answer = tuple[Any, Any]
"""Children of the work area, and the moment at which something was done."""


@dataclass(frozen=True, slots=True)
class ApprovalTexts:
    """The texts of one kind of approval: its word in ids and in what a button asks for, and the words of its form."""

    subject: str
    title: str
    noun: str
    does: str
    done: str
    note: str
    follows: str


MOVES: Final = ApprovalTexts(
    "move",
    "Approve moves",
    "job",
    "Make",
    "made",
    "A job reserves capacity on the other node first and evicts the pod only then; disruption budgets hold.",
    "The table of jobs follows them.",
)
NODES: Final = ApprovalTexts(
    "node",
    "Empty nodes",
    "node",
    "Mark",
    "marked",
    "The manager moves all pods of a marked node, capacity first, and returns the node when it is needed.",
    "The table of nodes follows them.",
)


def why_not(view: View, carrier: JobCarrier, namespace: str = "") -> str:
    """Why moves cannot be approved, in words; "" when the person who asks may."""
    return callbacks.missing_role_sentence(view, Right.APPROVE, namespace) or carrier.why_not


def action_components() -> list[Component]:
    """Return the stores of a button's request and of the last act, and the container of the form."""
    return [dcc.Store(id=ASKED), html.Div(id=WORK), dcc.Store(id=ACTED)]


def approve_button(chosen: str, label: str, reason: str, texts: ApprovalTexts = MOVES) -> Component:
    """A button that opens the dry run for one pod or node, or for EVERY one; a reason disables it and is shown."""
    what = f"every {texts.subject}" if chosen == EVERY else visible(chosen)
    return html.Button(
        label,
        className="button",
        disabled=bool(reason),
        title=reason or f"Approve {what}: a dry run first",
        **panels.asks(ASKED, act="approve", of=texts.subject, name=chosen),
        **{"data-opens": f"{texts.subject}s-approve-now", "aria-label": f"{label}: {what}"},
    )


def withdraw_button(chosen: str, what: str, reason: str, texts: ApprovalTexts = MOVES) -> Component:
    """Withdraws a job that is still Pending, or gives a marked node back; disabled with a reason."""
    label = f"Withdraw the move of {visible(what)}" if texts is MOVES else f"Give node {visible(what)} back"
    return html.Button(
        "Withdraw",
        className="button",
        disabled=bool(reason),
        title=reason or label,
        **panels.asks(ASKED, act="withdraw", of=texts.subject, name=chosen),
        **{"aria-label": label},
    )


def form(outcomes: Sequence[MoveOutcome], texts: ApprovalTexts = MOVES) -> Component:
    """Show the dry run's result for each; the form's button approves those that passed."""
    passed, prefix = [outcome.pod for outcome in outcomes if not outcome.error], f"{texts.subject}s"
    counted = display.counted(len(passed), texts.noun)
    lead = f"Dry run on the server: {counted} of {len(outcomes)} would be {texts.done}. Nothing was written."
    reason = dmc.TextInput(
        id=f"{prefix}-reason", label="Reason (for later readers)", size="xs", value="", debounce=True
    )
    label = f"{texts.does} {counted}"
    confirm = html.Button(label, id=f"{prefix}-approve-now", className="button primary", disabled=not passed)
    close = html.Button("Cancel", id=f"{prefix}-cancel", className="button")
    parts = [html.H3(texts.title), html.P(lead, className="said"), _lines(outcomes, f"would be {texts.done}")]
    parts += review_steps.all_written([line for outcome in outcomes for line in outcome.lines])
    parts += [html.P(texts.note, className="panel-note"), reason, html.Div([confirm, close], className="plan-buttons")]
    parts.append(dcc.Store(id=f"{prefix}-chosen", data=passed))
    return html.Section(parts, className="plan-form", **{"aria-label": texts.title})


def result(outcomes: Sequence[MoveOutcome], texts: ApprovalTexts = MOVES) -> Component:
    """Show the outcome of each approval."""
    message = _summary(outcomes, texts)
    parts = [html.P(message, className="verdict", id="moves-done"), _lines(outcomes, texts.done)]
    return html.Section(parts, className="plan-form", **{"aria-label": f"Approved {texts.subject}s"})


def _summary(outcomes: Sequence[MoveOutcome], texts: ApprovalTexts) -> str:
    count = measures.matching_count(not outcome.error for outcome in outcomes)
    refused = measures.matching_count(outcome.error for outcome in outcomes)
    more = f" {display.counted(refused, texts.subject)} refused." if refused else ""
    return f"{texts.done.capitalize()} {display.counted(count, texts.noun)}.{more} {texts.follows}"


def _lines(outcomes: Sequence[MoveOutcome], done: str) -> Component:
    lines = [
        html.Li(
            [
                html.Strong(visible(outcome.pod)),
                f": {visible(outcome.error)}. {outcome.fix}"
                if outcome.error
                else f": {f'job {outcome.job} ' if outcome.job else ''}{done}",
            ]
        )
        for outcome in outcomes[:MOST_LINES]
    ]
    more = measures.left_out_count(len(outcomes), MOST_LINES)
    return html.Ul([*lines, *([html.Li(f"and {more} more")] if more > 0 else [])], className="notes")


def chosen_pods(view: View, pod: str) -> list[str]:
    """One pod, or those of every move that the person may approve; UsageError when there is none."""
    if pod != EVERY:
        return [pod]
    who = view.given.current_user()
    moves = [row["pod"] for row in in_cluster(view.given.moves).report(who).moves.rows() if row["decision"] == "move"]
    pods = [move for move in moves if who.may(Right.APPROVE, move.partition("/")[0])]
    if not pods:
        raise UsageError("the round moves no pod that you may move", fix="Look at the page again.")
    return pods


def chosen_nodes(view: View, node: str) -> list[str]:
    """Return the node as a list; for EVERY the nodes that this round would empty, UsageError if it empties none."""
    if node != EVERY:
        return [node]
    rows = in_cluster(view.given.moves).emptying(view.given.current_user()).emptying.rows()
    nodes = [row["node"] for row in rows if row["decision"] == TO_BE_EMPTIED]
    if not nodes:
        raise UsageError("the round empties no node", fix="Look at the page again.")
    return nodes


def dry_run_form(view: View, chosen: str, texts: ApprovalTexts) -> Component:
    """The form after a dry run of one pod or node, or of every one."""
    who = view.given.current_user()
    if texts is NODES:
        return form(in_cluster(view.given.moves).preview_nodes(who, chosen_nodes(view, chosen)), texts)
    return form(in_cluster(view.given.moves).preview(who, chosen_pods(view, chosen)))


def approve_subjects(view: View, subjects: Sequence[str], reason: str, texts: ApprovalTexts) -> Component:
    """Approve these pods or nodes, and say what became of each."""
    approve = in_cluster(view.given.moves).approve_nodes if texts is NODES else in_cluster(view.given.moves).approve
    outcomes = approve(view.given.current_user(), subjects, reason)
    announce(_summary(outcomes, texts))
    return result(outcomes, texts)


def register(app: Dash, view: View) -> None:
    """All callbacks that act."""
    _register_asked(app, view)
    for texts in (MOVES, NODES):
        _register_cancel(app, texts)
        _register_approve(app, view, texts)


def withdraw_move(view: View, name: str, texts: ApprovalTexts) -> Component:
    """Withdraw a job, or give a node back, and say so."""
    who = view.given.current_user()
    if texts is NODES:
        pod = visible(in_cluster(view.given.moves).withdraw_node(who, name).pod)
        message = f"Gave {pod} back: its mark is removed, and running moves are completed."
    else:
        pod = visible(in_cluster(view.given.moves).withdraw(who, name).pod)
        message = f"Withdrew the move of {pod}: its job is deleted, the pod stays."
    announce(message)
    return html.P(message, className="verdict", id="moves-done")


def _register_asked(app: Dash, view: View) -> None:
    @app.callback(
        Output(WORK, "children", allow_duplicate=True),
        Output(ACTED, "data", allow_duplicate=True),
        Input(ASKED, "data"),
        prevent_initial_call=True,
    )
    @acts(view, Right.APPROVE)
    def _answer_request(request: Mapping[str, Any] | None) -> Answer:
        if not request:
            return no_update, no_update
        name, texts = str(request["name"]), NODES if request["of"] == NODES.subject else MOVES
        if request["act"] == "approve":
            return _result_or_failure(lambda: dry_run_form(view, name, texts)), no_update
        return _result_or_failure(lambda: withdraw_move(view, name, texts)), view.now_seconds()


def _register_cancel(app: Dash, texts: ApprovalTexts) -> None:
    @app.callback(
        Output(WORK, "children", allow_duplicate=True),
        Input(f"{texts.subject}s-cancel", "n_clicks"),
        prevent_initial_call=True,
    )
    def _cancel(clicks: int | None) -> Any:
        return None if clicks else no_update


def _register_approve(app: Dash, view: View, texts: ApprovalTexts) -> None:
    @app.callback(
        Output(WORK, "children", allow_duplicate=True),
        Output(ACTED, "data", allow_duplicate=True),
        Input(f"{texts.subject}s-approve-now", "n_clicks"),
        State(f"{texts.subject}s-reason", "value"),
        State(f"{texts.subject}s-chosen", "data"),
        prevent_initial_call=True,
    )
    @acts(view, Right.APPROVE)
    def _approve(clicks: int | None, reason: str | None, subjects: Sequence[str] | None) -> Answer:
        if not clicks:
            return no_update, no_update
        return _result_or_failure(
            lambda: approve_subjects(view, list(subjects or ()), reason or "", texts)
        ), view.now_seconds()


def _result_or_failure(act: Callable[[], Component]) -> Component:
    """Return the result of an act, or why it failed, in the work area and in the live region."""
    try:
        return act()
    except CotenantError as error:
        announce(f"{error.message} {error.fix}".strip())
        return panels.trouble(error)
