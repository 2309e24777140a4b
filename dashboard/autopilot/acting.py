"""Actions on the autopilot: pause, resume, and letting a policy act or only observe, each after a confirmation.

They call the dashboard's `AutopilotService`, which checks the person's rights again and writes the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component

from cotenant.autopilot.model import AutopilotMode, AutopilotService
from cotenant.base.errors import CotenantError, UsageError
from cotenant.base.identity import WorkloadRef
from cotenant.base.people import NotAllowed, Person, Right
from cotenant.base.text import visible
from cotenant.dashboard.changes import review_steps
from cotenant.dashboard.frame import callbacks, panels
from cotenant.dashboard.frame.callbacks import acts, announce
from cotenant.dashboard.frame.view import View, in_cluster

WORK: Final = "autopilot-work"
ACTED: Final = "autopilot-acted"
CONFIRM: Final = "autopilot-confirm"
LINES: Final = "autopilot-lines"
REASON: Final = "autopilot-reason"
LEDGER_ALONE: Final = "Nothing is written to the cluster; the ledger records the action."
ASKED: Final = "autopilot-asked"
"""Store of what a button requests: each round redraws the page, and a click must not be lost with its button."""
EVERYTHING: Final = "*"
"""Stands for the whole autopilot, in the place of the name of a policy or workload."""


@dataclass(frozen=True, slots=True)
class SwitchTexts:
    """Texts of one action: its button, the question and note of its confirmation, and the message after it was done."""

    button: str
    question: str
    note: str
    done: str
    tone: str = ""


PAUSE: Final = "pause"
RESUME: Final = "resume"
ACT: Final = "act"
OBSERVE: Final = "observe"
TEXTS: Final[Mapping[str, SwitchTexts]] = {
    PAUSE: SwitchTexts(
        "Pause",
        "Pause the autopilot in the whole cluster?",
        "Every write first checks the pause, so no change begins after it. Harmful changes are still rolled back.",
        "The autopilot is paused.",
        "danger",
    ),
    RESUME: SwitchTexts("Resume", "Resume {name}?", "The next run may change workloads again.", "Resumed {name}."),
    ACT: SwitchTexts(
        "Let it act",
        "Let {name} change workloads automatically?",
        "The approval is for the policy's present version; after an edit the policy only observes again.",
        "{name} may change workloads from the next run on.",
    ),
    OBSERVE: SwitchTexts(
        "Only observe",
        "Withdraw the approval of {name}?",
        "The policy then only records what it would do. A canary is not continued.",
        "{name} only observes now.",
    ),
}


def action_components() -> list[Component]:
    """Return the hidden stores of the page's actions and the container of their confirmation.

    The stores keep the request of a button, the action to confirm, and when an action was last completed.
    """
    return [dcc.Store(id=ASKED), html.Div(id=WORK), dcc.Store(id="autopilot-chosen"), dcc.Store(id=ACTED)]


def button(view: View, act: str, name: str = EVERYTHING) -> Component:
    """Return the button that opens the confirmation of `act` on `name`; disabled, with the reason, if not allowed."""
    text = TEXTS[act]
    namespace = "" if name == EVERYTHING else name.partition("/")[0]
    reason = callbacks.missing_role_sentence(view, Right.APPROVE, namespace)
    if not reason and act == RESUME and not namespace:
        reason = _not_everywhere(view)
    label = text.button if name == EVERYTHING else f"{text.button}: {visible(name)}"
    return html.Button(
        text.button,
        className=f"button {text.tone}".strip(),
        disabled=bool(reason),
        title=reason or text.note,
        **{"data-opens": CONFIRM, **panels.asks(ASKED, act=act, name=name), "aria-label": label},
    )


def _not_everywhere(view: View) -> str:
    """Return why the person may not resume the autopilot in all namespaces; "" if they may."""
    try:
        view.given.current_user().require_everywhere(Right.APPROVE)
    except NotAllowed as error:
        return f"{error.message}. {error.fix}"
    return ""


def confirm_step(act: str, name: str, agreed: Sequence[Component]) -> Component:
    """Return the confirmation: the question, `agreed` (what is approved), a field for the reason, and the button."""
    text = TEXTS[act]
    reason = dmc.TextInput(id=REASON, label="Reason, for the ledger", size="xs", value="", debounce=True, maw=520)
    label = "Pause everything" if act == PAUSE else text.button
    confirm = html.Button(label, id=CONFIRM, className=f"button primary {text.tone}".strip())
    cancel = html.Button("Cancel", id="autopilot-cancel", className="button")
    head = [html.H3(text.question.format(name=_policy_label(name))), html.P(text.note, className="panel-note")]
    parts = [*head, *agreed, reason, html.Div([confirm, cancel], className="plan-buttons")]
    return html.Section(parts, className="panel plan-form", **{"aria-label": "Confirm"})


def open_confirm_step(view: View, act: str, name: str) -> tuple[Component, dict[str, str]]:
    """Return the confirmation and the action; for ACT (a policy may act), both have the digest of the policy's spec."""
    _require_act(act)
    chosen = {"act": act, "name": name}
    if act != ACT:
        return confirm_step(act, name, [lines_frame(view, chosen)]), chosen
    policy = in_cluster(view.given.autopilot).policy(view.given.current_user(), name)
    if policy.refused:
        raise UsageError(policy.refused, fix="Edit the policy first.")
    spec = html.Pre(html.Code(visible(policy.text)), className="command")
    lead = html.P(f"The policy that you approve, with digest {policy.digest}:", className="said")
    chosen |= {"digest": policy.digest}
    return confirm_step(act, name, (lead, spec, lines_frame(view, chosen))), chosen


def lines_frame(view: View, chosen: Mapping[str, str]) -> Component:
    """Return a container with each field that the action would write, before a reason is entered."""
    return html.Div(act_lines(view, partial(carry_out, view.given.current_user(), chosen, "")), id=LINES)


def act_lines(view: View, act: Callable[[AutopilotService], object]) -> list[Component]:
    """Return each field that an action would write to the cluster, or why the action would be refused."""
    try:
        lines = in_cluster(view.given.autopilot).lines_of(act)
    except CotenantError as error:
        return [panels.trouble(error)]
    return review_steps.all_written(lines) or [html.P(LEDGER_ALONE, className="panel-note")]


def done(view: View, chosen: Mapping[str, str], reason: str) -> str:
    """Carry out the confirmed action, and return the message that reports it."""
    carry_out(view.given.current_user(), chosen, reason, in_cluster(view.given.autopilot))
    return TEXTS[chosen["act"]].done.format(name=_policy_label(chosen["name"]))


def carry_out(who: Person, chosen: Mapping[str, str], reason: str, service: AutopilotService) -> None:
    """Carry out the confirmed action through `service`, which acts on the cluster or only makes a dry run."""
    act, name = chosen["act"], chosen["name"]
    _require_act(act)
    if act == PAUSE:
        service.pause(who, reason)
    elif act == RESUME:
        service.resume(who, None if name == EVERYTHING else WorkloadRef.required(name), reason)
    else:
        mode = AutopilotMode.ACT if act == ACT else AutopilotMode.OBSERVE
        service.switch(who, name, mode, reason, chosen.get("digest", ""))


def _require_act(act: str) -> None:
    if act not in TEXTS:
        raise UsageError(f"there is no action {act!r}", fix="Reload the page.")


def _policy_label(name: str) -> str:
    return "the autopilot" if name == EVERYTHING else visible(name)


def register(app: Dash, view: View) -> None:
    """Register the callbacks that open a confirmation, cancel it, and carry out its action."""

    @app.callback(
        Output(WORK, "children", allow_duplicate=True),
        Output("autopilot-chosen", "data"),
        Input(ASKED, "data"),
        prevent_initial_call=True,
    )
    @acts(view, Right.APPROVE)
    def _open(request: Mapping[str, Any]) -> tuple[Any, Any]:
        return open_confirm_step(view, str(request["act"]), str(request["name"]))

    @app.callback(
        Output(WORK, "children", allow_duplicate=True), Input("autopilot-cancel", "n_clicks"), prevent_initial_call=True
    )
    def _cancel(clicks: int | None) -> Any:
        return None if clicks else no_update

    @app.callback(
        Output(LINES, "children"), Input(REASON, "value"), State("autopilot-chosen", "data"), prevent_initial_call=True
    )
    @acts(view, Right.APPROVE)
    def _lines(reason: str | None, chosen: Mapping[str, str] | None) -> Any:
        if not chosen:
            return no_update
        return act_lines(view, partial(carry_out, view.given.current_user(), chosen, reason or ""))

    @app.callback(
        Output(WORK, "children", allow_duplicate=True),
        Output(ACTED, "data", allow_duplicate=True),
        Input(CONFIRM, "n_clicks"),
        State(REASON, "value"),
        State("autopilot-chosen", "data"),
        prevent_initial_call=True,
    )
    @acts(view, Right.APPROVE)
    def _act(_clicks: int, reason: str | None, chosen: Mapping[str, str]) -> tuple[Any, Any]:
        try:
            message = done(view, chosen, reason or "")
        except CotenantError as error:
            announce(panels.trouble(error))
            return panels.trouble(error), view.now_seconds()
        announce(message)
        return html.P(message, className="verdict", id="autopilot-done"), view.now_seconds()
