"""One plan and its actions: its phase, the buttons, and the form or preview that each opens. Pure.

An action that the person has no right to is shown disabled, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from cotenant.base import measures
from cotenant.base.people import Right
from cotenant.base.resource import GIB
from cotenant.base.text import visible
from cotenant.dashboard.figures import display
from cotenant.dashboard.frame import callbacks, panels
from cotenant.dashboard.frame.view import View
from cotenant.dashboard.reservations import forms, story
from cotenant.dashboard.reservations.forms import FieldOf
from cotenant.scheduler_ext.reservations.model.life_cycle import PlanPhase
from cotenant.scheduler_ext.reservations.model.plan import (
    DecisionScope,
    PeakWindow,
    Plan,
    PlanDecision,
    Span,
    WindowSource,
)
from cotenant.scheduler_ext.reservations.model.plan_service import PlanRef, Preview
from cotenant.scheduler_ext.reservations.model.plan_states import decision_text, phase_of, state_of, wanted_pods
from cotenant.scheduler_ext.reservations.plans.schedule import decision_in_force

MOST_NODES: Final = 8
MOST_UNITS: Final = 40
WIDE: Final = 24
"""Number of letters of all its choices from which on a field takes two columns."""
ACTS: Final = (
    ("preview", "Preview", "p", Right.REVIEW, "plan-preview"),
    ("approve", "Approve", "a", Right.APPROVE, "plan-approve-now"),
    ("reject", "Reject", "r", Right.APPROVE, "plan-reject-reason"),
    ("skip", "Skip", "s", Right.PLAN, "plan-skip-now"),
    ("edit", "Edit", "m", Right.PLAN, "edit-fields"),
    ("policy", "Auto-approve", "y", Right.ADMINISTER, "plan-policy-now"),
)
"""(what, label, key, right, id that gets the focus)."""
ASKED: Final = "plan-asked"
"""Store of what a button of the plan requests: {"act": one of ACTS}."""
NEW_ASKED: Final = "plan-new-asked"
"""Store of a request for a manual plan: {"workload": "NAMESPACE/KIND/NAME", or ""}."""
SHOWN: Final = "plan-approve-of"
"""Store of the generation of the plan that an approval form shows: a plan that has changed since is not approved."""
FOLLOWED: Final = "new-term"
"""Kind of fields whose input is sent while it is typed. All others are sent by Enter or when they are left, so that no
input is overtaken by the key or the click that submits the form."""
READ_ONLY: Final = "Read-only: start the dashboard with `cotenant dashboard --act`, or copy the commands below."


def why_not(view: View, right: Right, namespace: str = "") -> str:
    """Return why a button is disabled: read-only, a missing role or an unreachable cluster; "" if it is enabled."""
    if view.given.plans is None:
        return READ_ONLY
    return callbacks.missing_role_sentence(view, right, namespace) or callbacks.outage_reason(view)


def plan_panel(view: View, plan: Plan | None) -> list[Component]:
    """Return the plan's phase, its buttons and the containers that the buttons fill; all empty if `plan` is None."""
    ref = f"{plan.namespace}/{plan.name}" if plan else ""
    inside = plan_status(plan, view.now_seconds()) if plan else []
    return [
        dcc.Store(id="plan-ref", data=ref),
        html.Div(inside, id="plan-standing"),
        html.Div(buttons(view, plan) if plan else [], id="plan-acts"),
        html.Div(id="plan-acted"),
        html.Div(id="plan-work-said"),
        html.Div(id="plan-work", className="plan-work"),
    ]


def plan_status(plan: Plan, now_seconds: float) -> list[Component]:
    """Return a plan's phase, window, size, next step and notes, and the table of its Reservations if it has any."""
    window, phase = story.window_of(plan), phase_of(plan)
    when = [panels.moment(window.start_seconds), " – ", panels.clock(window.end_seconds)] if window else ["no window"]
    size = f"{display.counted(wanted_pods(plan), 'pod')} of {plan.cores_per_pod:g} cores"
    lines: list[Component] = [
        html.P([panels.chip(phase.value, state_of(plan).tone), " ", *when], className="verdict"),
        html.P(size, className="said"),
        html.P(story.next_step(plan, now_seconds), className="said", id="plan-next"),
    ]
    if notes := _plan_notes(plan, "plan-beside"):
        lines.append(html.Details([html.Summary("Other windows, and standby capacity"), *notes], className="more"))
    return [*lines, *units(plan)] if plan.status.units else lines


def _plan_notes(plan: Plan, id_: str) -> list[Component]:
    """Return a paragraph with the forecast's other windows and the standby capacity; empty for a plan with neither.

    `id_` is the paragraph's HTML id.
    """
    parts = _windows(story.more_windows(plan))
    parts = ["Other windows: ", *parts, "."] if parts else []
    if plan.standby:
        size = f"{display.counted(plan.standby, 'pod')} of {plan.cores_per_pod:g} cores"
        idle = f"at most {plan.standby_core_hours:,.1f} idle core-hours a day"
        parts.append(f" While approved, the plan reserves capacity for {size} at all times: {idle}. Edit changes it.")
    return [html.P(parts, className="panel-note", id=id_)] if parts else []


def _windows(peaks: Sequence[PeakWindow]) -> list[Any]:
    parts: list[Any] = []
    for peak in peaks:
        parts += [", " if parts else "", panels.moment(peak.span.start_seconds), " – "]
        parts += [panels.clock(peak.span.end_seconds), f" for {display.counted(peak.count, 'pod')}"]
    return parts


def units(plan: Plan) -> list[Component]:
    """Return the table of the present occurrence's Reservations: phase, node and the pod that uses it."""
    heads = ("Reservation", "Phase", "Node", "Used by")
    rows = [
        [visible(u.name), *(visible(t) or "–" for t in (u.phase, u.node, u.used_by))]
        for u in plan.status.units[:MOST_UNITS]
    ]
    hidden = measures.left_out_count(len(plan.status.units), MOST_UNITS)
    more = [html.P(f"and {hidden} more", className="panel-note")] if hidden > 0 else []
    return [html.Div(panels.facts(heads, rows, "Reservations", id_="plan-units"), className="short"), *more]


def buttons(view: View, plan: Plan) -> list[Component]:
    """Return a button for each action on the plan; it is disabled, with the reason, if state or rights forbid it."""
    refused = {what: why_not(view, right, plan.namespace) for what, _, _, right, _ in ACTS}
    settled = settled_reasons(plan)
    due = "approve" if phase_of(plan) is PlanPhase.PROPOSED else ""
    act_buttons = []
    for what, label, key, _, opens in ACTS:
        if what not in settled:
            button = html.Button(
                label,
                className="button primary" if what == due else "button",
                disabled=bool(refused[what]),
                title=f"{label} ({key})",
                **panels.asks(ASKED, act=what),
                **{"data-key": key, "data-opens": opens, "aria-keyshortcuts": key, "aria-describedby": "plan-why-not"},
            )
            act_buttons.append(button)
    offered = [reason for what, reason in refused.items() if reason and what not in settled]
    why = list(dict.fromkeys([*offered, *settled.values()]))
    notes = [html.P(reason, className="panel-note") for reason in why]
    group = html.Div(act_buttons, className="plan-buttons", role="group", **{"aria-label": "Actions on this plan"})
    return [group, html.Div(notes, id="plan-why-not")]


def settled_reasons(plan: Plan) -> dict[str, str]:
    """Return each action that is not possible in the plan's state, with the reason, such as who decided and when."""
    decision, single = decision_in_force(plan), plan.source is WindowSource.MANUAL
    if single and phase_of(plan).over:
        return dict.fromkeys(("preview", "approve", "reject", "skip"), "The plan's only window is over.")
    skip = {"skip": "A plan for one window has only one occurrence: reject the plan instead."} if single else {}
    if decision is not None and decision.scope is DecisionScope.SERIES:
        what = "approve" if decision.decision is PlanDecision.APPROVED else "reject"
        return {what: f"The plan was {decision_text(decision)}; the next step is shown above.", **skip}
    if plan.policy.auto and phase_of(plan) is PlanPhase.APPROVED:
        return {"approve": "The plan's policy has approved the plan; the next step is shown above.", **skip}
    return skip


def refused_buttons(view: View) -> list[Component]:
    """Return all buttons disabled, for a read-only dashboard, with how to start a dashboard that can act."""
    act_buttons = [html.Button(label, className="button", disabled=True) for _, label, _, _, _ in ACTS]
    attributes = {"role": "group", "aria-label": "Actions on a plan"}
    group = html.Div(act_buttons, className="plan-buttons", **attributes)
    return [group, html.P(why_not(view, Right.PLAN), className="panel-note", id="plan-why-not")]


# --- what the buttons open --------------------------------------------------------------------------------------------
def preview_table(preview: Preview, currency: str, title: str = "If the plan is approved") -> Component:
    """Return the effects of a plan: where its pods fit, quota left, batch work displaced, cost and guards."""
    then = "unknown: no node has a forecast for that time; forecasts cover one day after the last scan"
    if preview.unplaced_then is not None:
        fits = _fits(preview.count, preview.unplaced_then, preview.nodes_then)
        then = f"{fits}, by the forecast (p95) of the nodes' usage at that time"
    quota_left = []
    for name, amount in sorted(preview.quota_left.items()):  # millicores or bytes
        text = f"{amount / 1000:g} cores" if name == "cpu" else f"{amount / GIB:.1f} GiB"
        quota_left.append((f"Quota left, {name}", f"{text}: not enough" if amount < 0 else text))
    displaced = _hours_and_cost(preview.displaced_core_hours, preview.displaced_cost, currency, "at most ")
    standby = ""
    if preview.standby:
        idle = _hours_and_cost(preview.standby_core_hours, preview.standby_cost, currency, "at most ")
        standby = f"capacity for {display.counted(preview.standby, 'pod')} at all times: {idle} a day if unused"
    guards = []
    for verdict in preview.guards:
        chip = panels.chip("passes", "teal") if verdict.passed else panels.chip("stops it", "red")
        guards.append((verdict.guard.capitalize(), [chip, f" {verdict.message}"]))
    rows: list[tuple[str, Any]] = [
        ("Fits now", _fits(preview.count, preview.unplaced, preview.nodes)),
        ("Fits at the start", then),
        *quota_left,
        ("Batch displaced", displaced),
        ("Windows", _windows(preview.windows)),
        ("Reserved", _hours_and_cost(preview.reserved_core_hours, preview.reserved_cost, currency)),
        ("Standby", standby),
        ("Without the plan", preview.without),
        *guards,
        *(("Note", note) for note in preview.notes),
    ]
    when = [panels.moment(preview.window.start_seconds), " – ", panels.clock(preview.window.end_seconds)]
    table = panels.pairs(((name, text) for name, text in rows if text), "inputs wide-words")
    return html.Section([html.H3([f"{title}, ", *when]), table], id="plan-preview", tabIndex=-1)


def _fits(count: int, unplaced: int, nodes: Sequence[tuple[str, int]]) -> str:
    placed = ", ".join(f"{visible(name)} ({pods})" for name, pods in nodes[:MOST_NODES])
    more = f" and {measures.left_out_count(len(nodes), MOST_NODES)} more" if len(nodes) > MOST_NODES else ""
    fitting = f"{measures.left_out_count(count, unplaced)} of {display.counted(count, 'pod')}"
    return f"{fitting}: {placed or 'on no node'}{more}"


def _hours_and_cost(hours: float, cost: float, currency: str, most: str = "") -> str:
    """Return core-hours and their cost as text, after the prefix `most`."""
    return f"{most}{hours:,.1f} core-hours, {display.money(cost, currency)}"


def approve_form(plan: Plan, now_seconds: float, lines: Sequence[Component] = ()) -> Component:
    """Return the approval form: a choice between the next occurrence and all, and a field for the reason."""
    both = [{"value": "Once", "label": "The next only"}, {"value": "Series", "label": "Every occurrence"}]
    scope = dmc.SegmentedControl(id="plan-approve-scope", value="Once", data=both, size="xs")
    body = [
        html.P(story.reserve_words(plan, now_seconds), className="said"),
        *_plan_notes(plan, "plan-approve-beside"),
        _labelled_group("For", scope),
        _why("approve"),
        _written_fields("approve", lines),
        dcc.Store(id=SHOWN, data=plan.generation),
    ]
    return _form("Approve", body, _submit("approve", "Approve now"))


def reject_form() -> Component:
    """Return the rejection form; it shows each field to write once a reason is entered."""
    note = html.P("No capacity will be reserved, and reserved capacity is released.", className="said")
    body = [note, _why("reject", "Why (needed)"), _written_fields("reject")]
    return _form("Reject", body, _submit("reject", "Reject now"))


def skip_form(
    plan: Plan,
    windows: Sequence[Span],
    now_seconds: float,
    preview: Callable[[str, float], Sequence[Component]] = lambda _action, _start_seconds: (),
) -> Component:
    """Return the forms that skip a coming occurrence and that restore a skipped one, or a note that there is none.

    `windows` are the coming occurrences that can be skipped, the next one first. `preview` takes the action, "skip" or
    "unskip", and the Unix time at which the occurrence begins, and returns each field that the action would write.
    """
    skipped = [start for start in (plan.recurring.skip if plan.recurring else ()) if start >= now_seconds]
    note = "The forecast's next window" if plan.source is WindowSource.FORECAST else "One occurrence of the schedule"
    starts = [w.start_seconds for w in windows]
    parts = []
    if starts:
        note_line = html.P(f"{note} is skipped; the other occurrences are kept.", className="said")
        choice = _starts("plan-skip-start", starts, "Skip the occurrence that begins at")
        written = _written_fields("skip", preview("skip", starts[0]))
        parts.append(_form("Skip", [note_line, choice, written], _submit("skip", "Skip it")))
    if skipped:
        choice = _starts("plan-unskip-start", skipped, "Restore the occurrence that begins at")
        written = _written_fields("unskip", preview("unskip", skipped[0]))
        parts.append(_form("Bring back", [choice, written], _submit("unskip", "Bring it back")))
    return html.Div(parts or [html.P("There is no future occurrence.", className="said")])


def _starts(id_: str, starts: Sequence[float], label: str) -> Component:
    """Return a choice among start times (Unix seconds), with the first one selected."""
    options = [dmc.Radio(label=display.moment(start), value=str(int(start)), size="xs") for start in starts]
    return dmc.RadioGroup(options, id=id_, value=str(int(starts[0])), label=label, size="xs")


def edit_form(plan: Plan) -> Component:
    """Return the form with every editable field of a plan, a preview button and a save button.

    Its hidden store keeps the generation of the plan that it shows: saving is refused if the plan has changed since.
    """
    parts = [html.Div([_input("plan-term", f) for f in forms.fields(plan)], id="edit-fields", className="plan-fields")]
    if plan.source is WindowSource.FORECAST:
        note = "The forecast replaces a window or pod count that you change only after the present window ends."
        parts.append(html.P(note, className="panel-note"))
    preview = html.Button("Preview these", id="plan-edit-look", className="button")
    store = dcc.Store(id="plan-edit-of", data=plan.generation)
    shown = html.Div(id="plan-edit-preview")
    return html.Div([_form("Edit", [*parts, store], preview, _submit("edit", "Save")), shown])


def policy_form(plan: Plan, currency: str) -> Component:
    """Return the form of the conditions under which the plan is approved automatically."""
    policy = plan.policy
    hit = None if policy.minimum_hit_ratio is None else 100 * policy.minimum_hit_ratio
    limits = (
        ("hit", "Minimum share used, %", hit),
        ("idle", "Most idle core-hours a day", policy.maximum_idle_core_hours),
        ("cost", f"Most cost a day, {currency}", policy.maximum_cost),
    )
    auto = dmc.Switch(id="plan-policy-auto", label="Approve each occurrence without a person", checked=policy.auto)
    style: dict[str, Any] = {"min": 0, "size": "xs", "w": 190, "debounce": True}
    inputs = [
        dmc.NumberInput(id=f"plan-policy-{key}", label=label, value="" if v is None else v, **style)
        for key, label, v in limits
    ]
    fields = html.Div(inputs, className="plan-fields")
    note_text = "Compared with the back-test at each occurrence; empty: no limit. The guards apply as well."
    body = [auto, fields, html.P(note_text, className="panel-note"), _written_fields("policy")]
    return _form("Auto-approve", body, _submit("policy", "Save the policy"))


def new_form(fields: Sequence[FieldOf]) -> Component:
    """Return the form of a new plan: workload, time and capacity; its next occurrences update with the input."""
    inputs = [_input(FOLLOWED, field) for field in fields]
    next_ = html.Div(id="new-next", className="said", role="status")
    preview = html.Button("Preview it", id="new-look", className="button")
    make = html.Button("Make the plan", id="new-now", className="button primary")
    body = [html.Div(inputs, id="new-fields", className="plan-fields kind-schedule"), next_]
    return html.Div([_form("New plan", body, preview, make), html.Div(id="new-preview")])


def next_three(windows: Sequence[Span]) -> list[Any]:
    """Return the next occurrences as the children of a paragraph: start times, joined by commas."""
    parts: list[Any] = ["Next: "]
    for number, window in enumerate(windows):
        parts += [", " if number else "", panels.moment(window.start_seconds)]
    return parts if windows else ["The plan has no future occurrence."]


def action_result(message: str, ref: PlanRef, base: str) -> Component:
    """Return the message of a completed action, with a link to the plan's page."""
    link = dcc.Link("Its page", href=page_of(base, ref), className="quiet-link", id="plan-to-page")
    return html.Div([html.P(message, className="verdict", id="plan-done"), link])


def action_error(message: str, fix: str) -> Component:
    """Return the error of an action, to show beside its form."""
    return html.Div([html.P(message), html.P(fix, className="panel-note")], className="plan-refused")


def page_of(base: str, ref: PlanRef) -> str:
    """Return the address of a plan's page."""
    return f"{base}reservations/{ref.namespace}/{ref.name}"


def _form(title: str, body: Sequence[Component], *ends: Component) -> Component:
    last = html.Div(list(ends), className="plan-buttons")
    return html.Section([html.H3(title), *body, last], className="plan-form", **{"aria-label": title})


def _submit(what: str, label: str) -> Component:
    return html.Button(label, id=f"plan-{what}-now", className="button primary")


def _written_fields(what: str, lines: Sequence[Component] = ()) -> Component:
    return html.Div(list(lines), id=f"plan-{what}-lines")


def _why(what: str, label: str = "Reason (for later readers)") -> Component:
    return dmc.TextInput(id=f"plan-{what}-reason", label=label, size="xs", value="", n_submit=0, debounce=True)


def _labelled_group(label: str, control: Component) -> Component:
    """Return a control with a label before it, as a group that screen readers name by the label."""
    return html.Div([html.Span(label, className="field-label"), control], role="group", **{"aria-label": label})


def _input(kind: str, field: FieldOf) -> Component:
    id_: Mapping[str, str] = {kind: field.key}
    common: dict[str, Any] = {"label": field.label, "size": "xs", "description": field.hint or None}
    common["debounce"] = kind != FOLLOWED
    if field.kind == "number":
        control = dmc.NumberInput(id=id_, value=field.value, min=0, **common)
    elif field.kind == "text":
        control = dmc.TextInput(id=id_, value=field.value, **common)
    else:
        data = [{"value": value, "label": label} for value, label in field.choices]
        choice = dmc.SegmentedControl(id=id_, value=field.value, data=data, size="xs")
        control = _labelled_group(field.label, choice)
    wide = " wide" if sum(len(label) for _, label in field.choices) > WIDE else ""
    return html.Div(control, className=f"field of-{field.group or 'all'}{wide}")
