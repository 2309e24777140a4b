"""Approving moves and withdrawing them: what a button opens, what its form does, and how it went.

It calls the dashboard's `MoveService`, which checks the person's rights again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import dash_mantine_components as dmc
from dash import ALL, Dash, Input, Output, State, ctx, dcc, html, no_update
from dash.development.base_component import Component

from cotenant.core.model.changes.people import Right
from cotenant.core.model.errors import CotenantError, UsageError
from cotenant.core.model.rebalance.move_service import JobCarrier, MoveOutcome, MoveService
from cotenant.core.model.text import visible
from dashboard.changes import callbacks
from dashboard.changes.callbacks import acts, tell
from dashboard.frame import panels
from dashboard.frame.view import View
from dashboard.tables import display

EVERY: Final = "*"
"""In the place of a pod: every move of the round."""
MOST_LINES: Final = 40
WORK: Final = "moves-work"
ACTED: Final = "moves-acted"
Answer = tuple[Any, Any]
"""Children of the work area, and the moment at which something was done."""


def service(view: View) -> MoveService:
    """The service; UsageError when this dashboard has none."""
    if view.given.moves is None:
        raise UsageError("this dashboard reads no cluster", fix="Start it with `cotenant dashboard --act`.")
    return view.given.moves


def why_not(view: View, carrier: JobCarrier, namespace: str = "") -> str:
    """Why moves cannot be approved, in words; "" when the person who asks may."""
    return callbacks.refused(view, Right.APPROVE, namespace) or carrier.why_not


def work_area() -> list[Component]:
    """Where a button's form opens, and when something was done last."""
    return [html.Div(id=WORK), dcc.Store(id=ACTED)]


def approve_button(pod: str, label: str, reason: str) -> Component:
    """Opens the dry run of one move, or of all; disabled with a reason."""
    what = "every move" if pod == EVERY else visible(pod)
    return html.Button(
        label,
        id={"move-approve": pod},
        className="button",
        disabled=bool(reason),
        title=reason or f"Approve {what}: a dry run first",
        **{"data-opens": "moves-approve-now", "aria-label": f"{label}: {what}"},
    )


def withdraw_button(job: str, pod: str, reason: str) -> Component:
    """Withdraws a job that is still Pending; disabled with a reason."""
    return html.Button(
        "Withdraw",
        id={"move-withdraw": job},
        className="button",
        disabled=bool(reason),
        title=reason or f"Withdraw the move of {visible(pod)}",
        **{"aria-label": f"Withdraw the move of {visible(pod)}"},
    )


def form(outcomes: Sequence[MoveOutcome]) -> Component:
    """What the dry run said of each move; the jobs of those that passed are made by its button."""
    passed = [one.pod for one in outcomes if not one.error]
    jobs = display.counted(len(passed), "job")
    lead = f"Dry run on the server: {jobs} of {len(outcomes)} would be made. Nothing was written."
    note = "A job reserves room on the other node first and evicts the pod only then; disruption budgets hold."
    reason = dmc.TextInput(
        id="moves-reason", label="Why (for those who read it later)", size="xs", value="", debounce=True
    )
    confirm = html.Button(f"Make {jobs}", id="moves-approve-now", className="button primary", disabled=not passed)
    close = html.Button("Cancel", id="moves-cancel", className="button")
    parts = [html.H3("Approve moves"), html.P(lead, className="said"), _lines(outcomes, "would be made")]
    parts += [html.P(note, className="panel-note"), reason, html.Div([confirm, close], className="plan-buttons")]
    parts.append(dcc.Store(id="moves-chosen", data=passed))
    return html.Section(parts, className="plan-form", **{"aria-label": "Approve moves"})


def result(outcomes: Sequence[MoveOutcome]) -> Component:
    """What became of each approved move."""
    message = _outcome_summary(outcomes)
    parts = [html.P(message, className="verdict", id="moves-done"), _lines(outcomes, "made")]
    return html.Section(parts, className="plan-form", **{"aria-label": "Approved moves"})


def _outcome_summary(outcomes: Sequence[MoveOutcome]) -> str:
    count = sum(not one.error for one in outcomes)
    refused = len(outcomes) - count
    more = f" {display.counted(refused, 'move')} refused." if refused else ""
    return f"Made {display.counted(count, 'job')}.{more} The table of jobs follows them."


def _lines(outcomes: Sequence[MoveOutcome], done: str) -> Component:
    lines = [
        html.Li(
            [
                html.Strong(visible(one.pod)),
                f": {visible(one.error)}. {one.fix}" if one.error else f": job {one.job} {done}",
            ]
        )
        for one in outcomes[:MOST_LINES]
    ]
    more = len(outcomes) - MOST_LINES
    return html.Ul([*lines, *([html.Li(f"and {more} more")] if more > 0 else [])], className="notes")


def chosen_pods(view: View, pod: str) -> list[str]:
    """One pod, or those of every move that the person may approve; UsageError when there is none."""
    if pod != EVERY:
        return [pod]
    who = view.given.people()
    moves = [row["pod"] for row in service(view).report(who).moves.rows() if row["decision"] == "move"]
    pods = [one for one in moves if who.may(Right.APPROVE, one.partition("/")[0])]
    if not pods:
        raise UsageError("the round moves no pod that you may move", fix="Look at the page again.")
    return pods


def register(app: Dash, view: View) -> None:
    """All callbacks that act."""
    _register_open(app, view)
    _register_approve(app, view)
    _register_withdraw(app, view)


def _register_open(app: Dash, view: View) -> None:
    @app.callback(Output(WORK, "children"), Input({"move-approve": ALL}, "n_clicks"), prevent_initial_call=True)
    @acts(view, Right.APPROVE)
    def _open(clicks: Sequence[int | None]) -> Any:
        chosen = ctx.triggered_id
        if not chosen or not any(clicks):
            return no_update

        def looked() -> Component:
            pods = chosen_pods(view, str(chosen["move-approve"]))
            return form(service(view).preview(view.given.people(), pods))

        return _answered(looked)

    @app.callback(
        Output(WORK, "children", allow_duplicate=True), Input("moves-cancel", "n_clicks"), prevent_initial_call=True
    )
    def _cancel(clicks: int | None) -> Any:
        return None if clicks else no_update


def _register_approve(app: Dash, view: View) -> None:
    @app.callback(
        Output(WORK, "children", allow_duplicate=True),
        Output(ACTED, "data", allow_duplicate=True),
        Input("moves-approve-now", "n_clicks"),
        State("moves-reason", "value"),
        State("moves-chosen", "data"),
        prevent_initial_call=True,
    )
    @acts(view, Right.APPROVE)
    def _approve(clicks: int | None, reason: str | None, pods: Sequence[str] | None) -> Answer:
        if not clicks:
            return no_update, no_update

        def done() -> Component:
            outcomes = service(view).approve(view.given.people(), list(pods or ()), reason or "")
            tell(_outcome_summary(outcomes))
            return result(outcomes)

        return _answered(done), view.now_seconds()


def _register_withdraw(app: Dash, view: View) -> None:
    @app.callback(
        Output(WORK, "children", allow_duplicate=True),
        Output(ACTED, "data", allow_duplicate=True),
        Input({"move-withdraw": ALL}, "n_clicks"),
        prevent_initial_call=True,
    )
    @acts(view, Right.APPROVE)
    def _withdraw(clicks: Sequence[int | None]) -> Answer:
        chosen = ctx.triggered_id
        if not chosen or not any(clicks):
            return no_update, no_update

        def done() -> Component:
            outcome = service(view).withdraw(view.given.people(), str(chosen["move-withdraw"]))
            message = f"Withdrew the move of {visible(outcome.pod)}: its job is deleted, the pod stays."
            tell(message)
            return html.P(message, className="verdict", id="moves-done")

        return _answered(done), view.now_seconds()


def _answered(deed: Callable[[], Component]) -> Component:
    """What a deed gives, or why it could not be done, in the work area and in the live region."""
    try:
        return deed()
    except CotenantError as error:
        tell(f"{error.message} {error.fix}".strip())
        return panels.trouble(error)
