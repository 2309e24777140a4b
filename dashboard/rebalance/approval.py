"""Approval and withdrawal of pod moves and of nodes to empty: buttons, the form with the dry run, and the results.

They call the dashboard's `MoveService`, which checks the person's rights again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component

from cotenant.base import measures
from cotenant.base.errors import UsageError
from cotenant.base.people import Person, Right
from cotenant.base.table import Table
from cotenant.base.text import visible
from cotenant.dashboard.changes import review_steps
from cotenant.dashboard.figures import display
from cotenant.dashboard.frame import callbacks, panels
from cotenant.dashboard.frame.callbacks import acts, announce, draw_act
from cotenant.dashboard.frame.view import View, in_cluster
from cotenant.scheduler_ext.rebalance.model.move_service import (
    TO_BE_EMPTIED,
    JobCarrier,
    MoveOutcome,
    MoveService,
)

EVERY: Final = "*"
"""Stands for every pod or node of the round, in the place of a name."""
MOST_LINES: Final = 40
WORK: Final = "moves-work"
ACTED: Final = "moves-acted"
ASKED: Final = "moves-asked"
"""Store of what a button requests: {"act": "approve" or "withdraw", "of": a `subject`, "name": which one}."""


@dataclass(frozen=True, slots=True)
class Approval:
    """One kind of approval, of moves or of nodes: `subject` is its word in HTML ids; the rest are texts and methods.

    `every` returns all pods or nodes of the present round that the person may approve, `none` is the error without any.
    """

    subject: str
    title: str
    noun: str
    does: str
    done: str
    note: str
    follows: str
    every: Callable[[MoveService, Person], list[str]]
    none: str
    preview: Callable[[MoveService], Callable[[Person, Sequence[str]], Sequence[MoveOutcome]]]
    approve: Callable[[MoveService], Callable[[Person, Sequence[str], str], Sequence[MoveOutcome]]]
    withdraw: Callable[[MoveService], Callable[[Person, str], MoveOutcome]]
    withdrawal: str
    withdrawn: str


def _names_of(rows: Table, column: str, decision: str) -> list[str]:
    return [row[column] for row in rows.rows() if row["decision"] == decision]


MOVES: Final = Approval(
    "move",
    "Approve moves",
    "job",
    "Make",
    "made",
    "A job first reserves capacity on the target node, then evicts the pod; disruption budgets are respected.",
    "The table of jobs shows the progress.",
    every=lambda moves, who: [
        pod
        for pod in _names_of(moves.report(who).moves, "pod", "move")
        if who.may(Right.APPROVE, pod.partition("/")[0])
    ],
    none="this round proposes no move that you may approve",
    preview=lambda moves: moves.preview,
    approve=lambda moves: moves.approve,
    withdraw=lambda moves: moves.withdraw,
    withdrawal="Withdraw the move of {name}",
    withdrawn="Withdrew the move of {name}: its job is deleted, the pod stays.",
)
NODES: Final = Approval(
    "node",
    "Empty nodes",
    "node",
    "Taint",
    "tainted",
    "The manager moves all pods off a tainted node, reserving capacity first; it untaints a node that is needed again.",
    "The table of nodes shows the progress.",
    every=lambda moves, who: _names_of(moves.emptying(who).emptying, "node", TO_BE_EMPTIED),
    none="this round proposes no node to empty",
    preview=lambda moves: moves.preview_nodes,
    approve=lambda moves: moves.approve_nodes,
    withdraw=lambda moves: moves.withdraw_node,
    withdrawal="Remove the emptying taint of node {name}",
    withdrawn="Removed the emptying taint of node {name}: running moves are completed, no new ones begin.",
)


def why_not(view: View, carrier: JobCarrier, namespace: str = "") -> str:
    """Return why the requesting person cannot approve moves; "" if they can."""
    return callbacks.missing_role_sentence(view, Right.APPROVE, namespace) or carrier.why_not


def action_components() -> list[Component]:
    """Return the stores of a button's request and of the last action's time, and the container of the form."""
    return [dcc.Store(id=ASKED), html.Div(id=WORK), dcc.Store(id=ACTED)]


def approve_button(chosen: str, label: str, reason: str, texts: Approval = MOVES) -> Component:
    """Return the button that opens the dry run for one pod or node, or for EVERY one; disabled if `reason` is set."""
    what = f"every {texts.subject}" if chosen == EVERY else visible(chosen)
    return html.Button(
        label,
        className="button",
        disabled=bool(reason),
        title=reason or f"Approve {what}, after a dry run",
        **panels.asks(ASKED, act="approve", of=texts.subject, name=chosen),
        **{"data-opens": f"{texts.subject}s-approve-now", "aria-label": f"{label}: {what}"},
    )


def withdraw_button(chosen: str, what: str, reason: str, texts: Approval = MOVES) -> Component:
    """Return the button that withdraws a Pending job or removes an emptying taint; disabled if `reason` is not ""."""
    label = texts.withdrawal.format(name=visible(what))
    return html.Button(
        "Withdraw",
        className="button",
        disabled=bool(reason),
        title=reason or label,
        **panels.asks(ASKED, act="withdraw", of=texts.subject, name=chosen),
        **{"aria-label": label},
    )


def form(outcomes: Sequence[MoveOutcome], texts: Approval = MOVES) -> Component:
    """Return the dry run's result for each pod or node; the form's button approves those that passed."""
    passed, prefix = [outcome.pod for outcome in outcomes if not outcome.error], f"{texts.subject}s"
    counted = display.counted(len(passed), texts.noun)
    lead = f"Dry run on the server: {counted} of {len(outcomes)} would be {texts.done}. Nothing was written."
    reason_label = "Reason (for later readers)"
    reason = dmc.TextInput(id=f"{prefix}-reason", label=reason_label, size="xs", value="", debounce=True)
    label = f"{texts.does} {counted}"
    confirm = html.Button(label, id=f"{prefix}-approve-now", className="button primary", disabled=not passed)
    close = html.Button("Cancel", id=f"{prefix}-cancel", className="button")
    parts = [html.H3(texts.title), html.P(lead, className="said"), _lines(outcomes, f"would be {texts.done}")]
    parts += review_steps.all_written([line for outcome in outcomes for line in outcome.lines])
    parts += [html.P(texts.note, className="panel-note"), reason, html.Div([confirm, close], className="plan-buttons")]
    parts.append(dcc.Store(id=f"{prefix}-chosen", data=passed))
    return html.Section(parts, className="plan-form", **{"aria-label": texts.title})


def result(outcomes: Sequence[MoveOutcome], texts: Approval = MOVES) -> Component:
    """Return the panel with the outcome of each approval."""
    message = _summary(outcomes, texts)
    parts = [html.P(message, className="verdict", id="moves-done"), _lines(outcomes, texts.done)]
    return html.Section(parts, className="plan-form", **{"aria-label": f"Approved {texts.subject}s"})


def _summary(outcomes: Sequence[MoveOutcome], texts: Approval) -> str:
    count = measures.matching_count(not outcome.error for outcome in outcomes)
    refused = measures.matching_count(outcome.error for outcome in outcomes)
    more = f" {display.counted(refused, texts.subject)} refused." if refused else ""
    return f"{texts.done.capitalize()} {display.counted(count, texts.noun)}.{more} {texts.follows}"


def _lines(outcomes: Sequence[MoveOutcome], done: str) -> Component:
    lines = []
    for outcome in outcomes[:MOST_LINES]:
        job = f"job {outcome.job} " if outcome.job else ""
        outcome_text = f": {visible(outcome.error)}. {outcome.fix}" if outcome.error else f": {job}{done}"
        lines.append(html.Li([html.Strong(visible(outcome.pod)), outcome_text]))
    more = measures.left_out_count(len(outcomes), MOST_LINES)
    return html.Ul([*lines, *([html.Li(f"and {more} more")] if more > 0 else [])], className="notes")


def chosen_subjects(view: View, chosen: str, texts: Approval = MOVES) -> list[str]:
    """Return the chosen pod or node, or for EVERY all that the person may approve; raise UsageError if none."""
    if chosen != EVERY:
        return [chosen]
    subjects = texts.every(in_cluster(view.given.moves), view.given.current_user())
    if not subjects:
        raise UsageError(texts.none, fix="Reload the page.")
    return subjects


def dry_run_form(view: View, chosen: str, texts: Approval) -> Component:
    """Make a dry run of the chosen pod or node, or of every one, and return the form with the results."""
    preview = texts.preview(in_cluster(view.given.moves))
    return form(preview(view.given.current_user(), chosen_subjects(view, chosen, texts)), texts)


def register(app: Dash, view: View) -> None:
    """Register all callbacks that approve and withdraw."""
    done = [Output(WORK, "children", allow_duplicate=True), Output(ACTED, "data", allow_duplicate=True)]

    @app.callback(*done, Input(ASKED, "data"), prevent_initial_call=True)
    @acts(view, Right.APPROVE)
    def _answer_request(request: Mapping[str, Any]) -> tuple[Any, Any]:
        name, texts = str(request["name"]), NODES if request["of"] == NODES.subject else MOVES
        if request["act"] == "approve":
            return draw_act(lambda: dry_run_form(view, name, texts)), no_update

        def withdraw() -> Component:
            outcome = texts.withdraw(in_cluster(view.given.moves))(view.given.current_user(), name)
            message = texts.withdrawn.format(name=visible(outcome.pod))
            announce(message)
            return html.P(message, className="verdict", id="moves-done")

        return draw_act(withdraw), view.now_seconds()

    def register_form(texts: Approval) -> None:
        prefix = f"{texts.subject}s"

        @app.callback(done[0], Input(f"{prefix}-cancel", "n_clicks"), prevent_initial_call=True)
        def _cancel(clicks: int | None) -> Any:
            return None if clicks else no_update

        @app.callback(
            *done,
            Input(f"{prefix}-approve-now", "n_clicks"),
            State(f"{prefix}-reason", "value"),
            State(f"{prefix}-chosen", "data"),
            prevent_initial_call=True,
        )
        @acts(view, Right.APPROVE)
        def _approve(_clicks: int, reason: str | None, subjects: Sequence[str] | None) -> tuple[Any, Any]:
            def approve() -> Component:
                act = texts.approve(in_cluster(view.given.moves))
                outcomes = act(view.given.current_user(), list(subjects or ()), reason or "")
                announce(_summary(outcomes, texts))
                return result(outcomes, texts)

            return draw_act(approve), view.now_seconds()

    register_form(MOVES)
    register_form(NODES)
