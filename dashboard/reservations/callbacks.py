"""Callbacks of the reservations pages that act: open a form or preview, and carry out what a form requests.

They call the dashboard's `PlanService`, which checks the person's rights again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dash import ALL, Dash, Input, Output, State, ctx, html, no_update, set_props
from dash.development.base_component import Component

from cotenant.base.errors import CotenantError, NoData, UsageError
from cotenant.base.identity import WorkloadRef
from cotenant.base.people import Right
from cotenant.dashboard.changes import review_steps
from cotenant.dashboard.figures import display
from cotenant.dashboard.frame import panels
from cotenant.dashboard.frame.callbacks import AWAY, acts, announce, draw_act
from cotenant.dashboard.frame.view import View, in_cluster
from cotenant.dashboard.reservations import forms as plan_forms
from cotenant.dashboard.reservations import plan_actions, story
from cotenant.scheduler_ext.reservations.acts import (
    ApprovePlan,
    EditPlan,
    MakePlan,
    RejectPlan,
    RestoreOccurrence,
    SetPlanPolicy,
    SkipOccurrence,
    act_of,
)
from cotenant.scheduler_ext.reservations.model.plan import ApprovalPolicy, DecisionScope, Recurrence
from cotenant.scheduler_ext.reservations.model.plan_service import PlanRef, PlanTerms

FAST_MILLISECONDS: Final = 2_000
"""Time between two readings of the plans while one of them changes."""
SLOW_MILLISECONDS: Final = 10_000
AFTER_SECONDS: Final = 60.0
"""Time after an action during which plans count as changing, and the action is shown as new."""
NEXT: Final = 3
SKIPPABLE: Final = 6
Answer = tuple[Any, Any, Any, Any]
"""Children of the work area, of the error and of the message above it, and the moment at which something was done."""


@dataclass(frozen=True, slots=True)
class PlanForm:
    """A form that acts on a plan; its parts have ids `plan-NAME-PART`: `now` is the button, `lines` what it will write.

    `request` builds the action from the plan and the values of `inputs` and `states`, properties named `PART.property`.
    A change of an input redraws `lines`; a change of a property in `presses` submits the form, as the button does.
    """

    name: str
    right: Right
    request: Callable[..., Any]
    inputs: Sequence[str]
    states: Sequence[str] = ()
    presses: Sequence[str] = ()

    def ids(self, names: Sequence[str]) -> list[tuple[str, str]]:
        """Return (component id, property) for names such as `reason.value`."""
        return [(f"plan-{self.name}-{word}", prop) for word, prop in (name.split(".") for name in names)]


def _approve(plan: PlanRef, scope: str, reason: str | None, generation: int | None) -> ApprovePlan:
    return ApprovePlan(plan, DecisionScope(scope), reason or "", generation=generation)


FORMS: Final = (
    PlanForm("approve", Right.APPROVE, _approve, ["scope.value", "reason.value"], ["of.data"]),
    PlanForm("reject", Right.APPROVE, lambda plan, why: RejectPlan(plan, why or ""), ["reason.value"],
             presses=["reason.n_submit"]),
    PlanForm("skip", Right.PLAN, lambda plan, start: SkipOccurrence(plan, float(start)), ["start.value"]),
    PlanForm("unskip", Right.PLAN, lambda plan, start: RestoreOccurrence(plan, float(start)), ["start.value"]),
    PlanForm("policy", Right.ADMINISTER,
             lambda plan, auto, *limits: SetPlanPolicy(plan, plan_forms.policy(bool(auto), limits)),
             ["auto.checked", "hit.value", "idle.value", "cost.value"]),
)  # fmt: skip


def parse_plan_ref(text: Any) -> PlanRef:
    """Return the selected plan from NAMESPACE/NAME; raise NoData if none is selected."""
    namespace, _, name = str(text or "").partition("/")
    if not name:
        raise NoData("no plan is selected", fix="Select a plan in the list.")
    return PlanRef(namespace, name)


def answer_action(view: View, request: Callable[[], Any]) -> Answer:
    """Carry out the request of a form; announce the result and show it beside the form."""
    try:
        act = request()
        plan = in_cluster(view.given.plans).do(view.given.current_user(), act)
    except CotenantError as error:
        announce(f"{error.message} {error.fix}".strip())
        return no_update, plan_actions.action_error(error.message, error.fix), None, no_update
    parts: dict[str, Any] = {"plan": act.plan}
    if isinstance(act, ApprovePlan):
        parts["extent"] = "every occurrence" if act.scope is DecisionScope.SERIES else "the next occurrence"
        parts["next"] = story.reserve_words(plan, view.now_seconds())
    if isinstance(act, SkipOccurrence | RestoreOccurrence):
        parts["start"] = display.moment(act.start_seconds)
    if isinstance(act, SetPlanPolicy):
        limited = plan.policy != ApprovalPolicy(auto=True)
        automatic = "is approved within its limits" if limited else "is approved automatically, without limits"
        parts["does"] = automatic if plan.policy.auto else "needs a person's approval"
    message = act_of(act).done.format(**parts)
    announce(message)
    return None, None, plan_actions.action_result(message, act.plan, view.settings.base_path), view.now_seconds()


def open_form(view: View, what: str, ref: PlanRef) -> Component:
    """Return the form or preview that a button opens; raise UsageError for an unknown button."""
    service, who, now = in_cluster(view.given.plans), view.given.current_user(), view.now_seconds()
    if what == "preview":
        return plan_actions.preview_table(service.preview(who, ref), view.currency)
    plan = service.plan(who, ref)

    def skip_preview(action: str, start_seconds: float) -> list[Component]:
        return lines_of(view, (SkipOccurrence if action == "skip" else RestoreOccurrence)(ref, start_seconds))

    forms: Mapping[str, Callable[[], Component]] = {
        "approve": lambda: plan_actions.approve_form(
            plan, now, lines_of(view, _approve(ref, DecisionScope.ONCE, "", plan.generation))
        ),
        "reject": plan_actions.reject_form,
        "skip": lambda: plan_actions.skip_form(
            plan, service.occurrences(plan, 30, SKIPPABLE)[:SKIPPABLE], now, skip_preview
        ),
        "edit": lambda: plan_actions.edit_form(plan),
        "policy": lambda: plan_actions.policy_form(plan, view.currency),
    }
    if what not in forms:
        raise UsageError(f"there is no action {what!r} on a plan", fix="Use the buttons.")
    return forms[what]()


def lines_of(view: View, request: Any) -> list[Component]:
    """Return each field that an action would write, or why the action would be refused."""
    try:
        return review_steps.all_written(in_cluster(view.given.plans).lines_of(view.given.current_user(), request))
    except CotenantError as error:
        return [plan_actions.action_error(error.message, error.fix)]


def register(app: Dash, view: View) -> None:
    """Register all callbacks of reservations and plans."""

    @app.callback(
        Output("plan-acts", "children"), Input(AWAY, "data"), State("plan-ref", "data"), prevent_initial_call=True
    )
    def _cluster(_away: str, ref: str) -> Any:
        listed = view.given.plans.plans(view.given.current_user()).plans if view.given.plans else ()
        plan = next((p for p in listed if f"{p.namespace}/{p.name}" == ref), None)
        return no_update if plan is None else plan_actions.buttons(view, plan)

    @app.callback(
        Output("plan-work", "children"),
        Output("plan-work-said", "children"),
        Output("plan-acted", "children"),
        Input(plan_actions.ASKED, "data"),
        State("plan-ref", "data"),
        prevent_initial_call=True,
    )
    @acts(view, Right.REVIEW)
    def _open(request: Mapping[str, Any], ref: str) -> tuple[Any, Any, Any]:
        try:
            return open_form(view, str(request["act"]), parse_plan_ref(ref)), None, None
        except CotenantError as error:
            announce(f"{error.message} {error.fix}".strip())
            return None, panels.trouble(error), None

    for form in FORMS:
        _register_form(app, view, form)
    _register_edit(app, view)

    @app.callback(Output("plan-new-form", "children"), Input(plan_actions.NEW_ASKED, "data"), prevent_initial_call=True)
    @acts(view, Right.PLAN)
    def _new(request: Mapping[str, Any]) -> Any:
        return plan_actions.new_form(plan_forms.fresh(view.now_seconds(), str(request["workload"])))

    @app.callback(
        Output("new-next", "children"),
        Output("new-fields", "className"),
        Input({"new-term": ALL}, "value"),
        prevent_initial_call=False,
    )
    def _next(values: Sequence[Any]) -> tuple[Any, Any]:
        form = {entry["id"]["new-term"]: value for entry, value in zip(ctx.inputs_list[0], values, strict=True)}
        class_name = f"plan-fields kind-{form.get('when', 'schedule')}"
        if form.get("when") != "schedule":
            return "It happens once.", class_name
        try:
            rule: Recurrence = plan_forms.recurrence(form)
            return plan_actions.next_three(in_cluster(view.given.plans).next_windows(rule, NEXT)), class_name
        except CotenantError as error:
            return f"{error.message}. {error.fix}", class_name

    _register_make(app, view)


def forget(places: Sequence[str]) -> None:
    """Clear the time of an earlier action, and its messages in the elements `places`, which may be outdated."""
    for place in places:
        set_props(place, {"children": None})
    set_props("plans-acted", {"data": 0})


def _register_form(app: Dash, view: View, form: PlanForm) -> None:
    """Register the callbacks that show each field that a form would write and that submit the form."""
    inputs, states = form.ids(form.inputs), form.ids(form.states)
    pressed = form.ids(["now.n_clicks", *form.presses])

    @app.callback(
        Output(f"plan-{form.name}-lines", "children"),
        *(Input(*id_) for id_ in inputs),
        *(State(*id_) for id_ in states),
        State("plan-ref", "data"),
        prevent_initial_call=True,
    )
    @acts(view, form.right)
    def _lines(*values: Any) -> Any:
        return lines_of(view, form.request(parse_plan_ref(values[-1]), *values[:-1]))

    @app.callback(
        *_outputs(),
        *(Input(*id_) for id_ in pressed),
        *(State(*id_) for id_ in (*inputs, *states)),
        State("plan-ref", "data"),
        prevent_initial_call=True,
    )
    @acts(view, form.right)
    def _do(*values: Any) -> Answer:
        clicks, answers, ref = values[: len(pressed)], values[len(pressed) : -1], values[-1]
        if not any(clicks):
            return (no_update,) * 4
        return answer_action(view, lambda: form.request(parse_plan_ref(ref), *answers))


def _outputs() -> list[Output]:
    """Return the outputs of every action: the work area, its error, its message and the action's time."""
    return [
        Output("plan-work", "children", allow_duplicate=True),
        Output("plan-work-said", "children", allow_duplicate=True),
        Output("plan-acted", "children", allow_duplicate=True),
        Output("plans-acted", "data", allow_duplicate=True),
    ]


def _register_edit(app: Dash, view: View) -> None:
    def request(values: Sequence[Any], generation: int, ref: str) -> EditPlan:
        plan = in_cluster(view.given.plans).plan(view.given.current_user(), parse_plan_ref(ref))
        terms = plan_forms.terms(_field_values("plan-term", values), PlanTerms.of(plan))
        return EditPlan(story.ref_to(plan), terms, int(generation))

    def preview(act: EditPlan) -> Component:
        table = in_cluster(view.given.plans).preview(view.given.current_user(), act.plan, act.terms)
        return plan_actions.preview_table(table, view.currency, "Under these terms")

    states = [State({"plan-term": ALL}, "value"), State("plan-edit-of", "data"), State("plan-ref", "data")]
    _register_fields(app, view, "plan-edit", _outputs(), states, request, preview)


def _register_make(app: Dash, view: View) -> None:
    def request(values: Sequence[Any]) -> MakePlan:
        form = _field_values("new-term", values)
        workload = WorkloadRef.required(str(form.get("workload") or "").strip())
        return MakePlan(workload, plan_forms.terms(form))

    def preview(act: MakePlan) -> Component:
        table = in_cluster(view.given.plans).preview_new(view.given.current_user(), act.workload, act.terms)
        return plan_actions.preview_table(table, view.currency)

    outputs = [
        Output("plan-new-form", "children", allow_duplicate=True),
        Output("plan-new-said", "children"),
        Output("plan-new-acted", "children"),
        Output("plans-acted", "data", allow_duplicate=True),
    ]
    _register_fields(app, view, "new", outputs, [State({"new-term": ALL}, "value")], request, preview)


def _register_fields(
    app: Dash,
    view: View,
    name: str,
    outputs: Sequence[Output],
    states: Sequence[State],
    request: Callable[..., Any],
    preview: Callable[[Any], Component],
) -> None:
    """Register a form's callbacks: `NAME-now` submits its fields, `NAME-look` previews them in `NAME-preview`."""

    @app.callback(*outputs, Input(f"{name}-now", "n_clicks"), *states, prevent_initial_call=True)
    @acts(view, Right.PLAN)
    def _do(_clicks: int, *answers: Any) -> Answer:
        return answer_action(view, lambda: request(*answers))

    @app.callback(
        Output(f"{name}-preview", "children"), Input(f"{name}-look", "n_clicks"), *states, prevent_initial_call=True
    )
    @acts(view, Right.REVIEW)
    def _show(_clicks: int, *answers: Any) -> Any:
        def draw() -> Component:
            act = request(*answers)
            return html.Div([preview(act), *lines_of(view, act)])

        return draw_act(draw)


def _field_values(kind: str, values: Sequence[Any]) -> dict[str, Any]:
    """Return the values of the form's fields by key, from the first state of the callback."""
    return {entry["id"][kind]: value for entry, value in zip(ctx.states_list[0], values, strict=True)}
