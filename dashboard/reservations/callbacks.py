"""The callbacks of the reservations pages that act: what a button opens, and what its form does.

It calls the dashboard's `PlanService`, which checks the person's rights again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from dash import ALL, Dash, Input, Output, State, ctx, html, no_update, set_props
from dash.development.base_component import Component

from cotenant.base.errors import CotenantError, NoData, UsageError
from cotenant.base.identity import WorkloadRef
from cotenant.base.people import Person, Right
from cotenant.dashboard.changes import review_steps
from cotenant.dashboard.figures import display
from cotenant.dashboard.frame import panels
from cotenant.dashboard.frame.callbacks import AWAY, acts, announce
from cotenant.dashboard.frame.view import View, in_cluster
from cotenant.dashboard.reservations import forms as plan_forms
from cotenant.dashboard.reservations import plan_actions, story
from cotenant.scheduler_ext.reservations.model.plan import DecisionScope, Plan, Recurrence
from cotenant.scheduler_ext.reservations.model.plan_service import PlanRef, PlanService, PlanTerms

FAST_MILLISECONDS: Final = 2_000
"""Between two looks at the plans while one of them moves."""
SLOW_MILLISECONDS: Final = 10_000
AFTER_SECONDS: Final = 60.0
"""After somebody acted, something is taken to move for so long, and what was done is news."""
NEXT: Final = 3
SKIPPABLE: Final = 6
Answer = tuple[Any, Any, Any, Any]
"""Children of the work area, of the error and of the message above it, and the moment at which something was done."""


def parse_plan_ref(text: Any) -> PlanRef:
    """The selected plan."""
    namespace, _, name = str(text or "").partition("/")
    if not name:
        raise NoData("no plan is in hand", fix="Choose one in the list.")
    return PlanRef(namespace, name)


def answer_action(view: View, act: Callable[[PlanService, Person], tuple[str, PlanRef]]) -> Answer:
    """Run the action; show its result in the live region and beside the form."""
    try:
        message, ref = act(in_cluster(view.given.plans), view.given.current_user())
    except CotenantError as error:
        announce(f"{error.message} {error.fix}".strip())
        return no_update, plan_actions.action_error(error.message, error.fix), None, no_update
    announce(message)
    return None, None, plan_actions.action_result(message, ref, view.settings.base_path), view.now_seconds()


def open_form(view: View, what: str, ref: PlanRef) -> Component:
    """Return the form or the preview that a button opens; raises UsageError for an unknown button."""
    service, who, now = in_cluster(view.given.plans), view.given.current_user(), view.now_seconds()
    if what == "preview":
        return plan_actions.preview_table(service.preview(who, ref), view.currency)
    plan = service.plan(who, ref)
    lines = partial(_lines_of, view)
    once = partial(_approve, who, ref, DecisionScope.ONCE, "")

    def skip_preview(action: str, start_seconds: float) -> list[Component]:
        return lines(partial(_skip if action == "skip" else _unskip, who, ref, start_seconds))

    forms: Mapping[str, Callable[[], Component]] = {
        "approve": lambda: plan_actions.approve_form(plan, now, lines(once)),
        "reject": plan_actions.reject_form,
        "skip": lambda: plan_actions.skip_form(
            plan, service.occurrences(plan, 30, SKIPPABLE)[:SKIPPABLE], now, skip_preview
        ),
        "edit": lambda: plan_actions.edit_form(plan),
        "policy": lambda: plan_actions.policy_form(plan, view.currency),
    }
    if what not in forms:
        raise UsageError(f"nothing is called {what!r}", fix="Use the buttons.")
    return forms[what]()


def _approve(who: Person, ref: PlanRef, scope: DecisionScope, reason: str, service: PlanService) -> Plan:
    return service.approve(who, ref, scope, reason)


def _reject(who: Person, ref: PlanRef, reason: str, service: PlanService) -> Plan:
    return service.reject(who, ref, reason)


def _skip(who: Person, ref: PlanRef, start_seconds: float, service: PlanService) -> Plan:
    return service.skip(who, ref, start_seconds)


def _unskip(who: Person, ref: PlanRef, start_seconds: float, service: PlanService) -> Plan:
    return service.restore(who, ref, start_seconds)


def _lines_of(view: View, act: Callable[[PlanService], Plan]) -> list[Component]:
    """Everything that an act would write, or why it would be refused."""
    try:
        return review_steps.all_written(in_cluster(view.given.plans).lines_of(act))
    except CotenantError as error:
        return [plan_actions.action_error(error.message, error.fix)]


def approved_words(plan: Plan, scope: DecisionScope, now_seconds: float) -> str:
    """Describe the result of an approval."""
    extent = "every occurrence" if scope is DecisionScope.SERIES else "the next occurrence"
    return f"Approved {plan.namespace}/{plan.name} for {extent}. {story.reserve_words(plan, now_seconds)}"


def register(app: Dash, view: View) -> None:
    """Register all callbacks of reservations and plans."""
    _register_open(app, view)
    _register_decisions(app, view)
    _register_lines(app, view)
    _register_changes(app, view)
    _register_edit(app, view)
    _register_new(app, view)
    _register_make(app, view)


def forget(places: Sequence[str]) -> None:
    """Take a message away: it says what was true when somebody acted; the plan's standing, drawn again, says it."""
    for place in places:
        set_props(place, {"children": None})
    set_props("plans-acted", {"data": 0})


def _register_open(app: Dash, view: View) -> None:
    @app.callback(
        Output("plan-acts", "children"),
        Input(AWAY, "data"),
        State("plan-ref", "data"),
        prevent_initial_call=True,
    )
    def _cluster(_away: str, ref: str) -> Any:
        service = view.given.plans
        matches = (
            [p for p in service.plans(view.given.current_user()).plans if f"{p.namespace}/{p.name}" == ref]
            if service
            else []
        )
        return plan_actions.buttons(view, matches[0]) if matches else no_update

    @app.callback(
        Output("plan-work", "children"),
        Output("plan-work-said", "children"),
        Output("plan-acted", "children"),
        Input(plan_actions.ASKED, "data"),
        State("plan-ref", "data"),
        prevent_initial_call=True,
    )
    @acts(view, Right.REVIEW)
    def _open(request: Mapping[str, Any] | None, ref: str) -> tuple[Any, Any, Any]:
        if not request:
            return no_update, no_update, no_update
        try:
            return open_form(view, str(request["act"]), parse_plan_ref(ref)), None, None
        except CotenantError as error:
            announce(f"{error.message} {error.fix}".strip())
            return None, panels.trouble(error), None


def _act() -> list[Output]:
    """Return the outputs of every act: the work area, its error, its message, the moment."""
    return [
        Output("plan-work", "children", allow_duplicate=True),
        Output("plan-work-said", "children", allow_duplicate=True),
        Output("plan-acted", "children", allow_duplicate=True),
        Output("plans-acted", "data", allow_duplicate=True),
    ]


def _on(
    app: Dash, view: View, right: Right, button: str, states: Sequence[State], act: Callable[..., str], *also: Input
) -> None:
    """Do `act(service, person, plan, *states)` at a click of `button` or an input of `also`, and say what it says."""

    @app.callback(
        *_act(), Input(button, "n_clicks"), *also, *states, State("plan-ref", "data"), prevent_initial_call=True
    )
    @acts(view, right)
    def _run_action(*values: Any) -> Answer:
        clicks, rest, ref = values[: 1 + len(also)], values[1 + len(also) : -1], values[-1]

        def done(service: PlanService, who: Person) -> tuple[str, PlanRef]:
            return act(service, who, parse_plan_ref(ref), *rest), parse_plan_ref(ref)

        return answer_action(view, done) if any(clicks) else _no_update_answer()


def _register_decisions(app: Dash, view: View) -> None:
    def approve(
        service: PlanService, who: Person, ref: PlanRef, scope: str, reason: str | None, generation: int | None
    ) -> str:
        chosen = DecisionScope(scope)
        if generation is None:
            raise UsageError("nothing was shown to be approved", fix="Open the form again.")
        approved = service.approve(who, ref, chosen, reason or "", generation=int(generation))
        return approved_words(approved, chosen, view.now_seconds())

    def reject(service: PlanService, who: Person, ref: PlanRef, reason: str | None) -> str:
        service.reject(who, ref, reason or "")
        return f"Rejected {ref}: nothing is reserved, and what is reserved is released."

    states = [
        State("plan-approve-scope", "value"),
        State("plan-approve-reason", "value"),
        State(plan_actions.SHOWN, "data"),
    ]
    _on(app, view, Right.APPROVE, "plan-approve-now", states, approve)
    why = State("plan-reject-reason", "value")
    _on(app, view, Right.APPROVE, "plan-reject-now", [why], reject, Input("plan-reject-reason", "n_submit"))


def _register_lines(app: Dash, view: View) -> None:
    """Keep what a form would write equal to what is chosen in it."""

    def on(what: str, right: Right, inputs: Sequence[str], act: Callable[..., Callable[[PlanService], Plan]]) -> None:
        @app.callback(
            Output(f"plan-{what}-lines", "children"),
            *(Input(f"plan-{what}-{name}", key) for name, _, key in (id_.partition(".") for id_ in inputs)),
            State("plan-ref", "data"),
            prevent_initial_call=True,
        )
        @acts(view, right)
        def _lines(*values: Any) -> Any:
            return _lines_of(view, act(view.given.current_user(), parse_plan_ref(values[-1]), *values[:-1]))

    def approve(who: Person, ref: PlanRef, scope: str, reason: str | None) -> Callable[[PlanService], Plan]:
        return partial(_approve, who, ref, DecisionScope(scope), reason or "")

    def reject(who: Person, ref: PlanRef, reason: str | None) -> Callable[[PlanService], Plan]:
        return partial(_reject, who, ref, reason or "")

    def skip(who: Person, ref: PlanRef, start: str) -> Callable[[PlanService], Plan]:
        return partial(_skip, who, ref, float(start))

    def unskip(who: Person, ref: PlanRef, start: str) -> Callable[[PlanService], Plan]:
        return partial(_unskip, who, ref, float(start))

    def policy(who: Person, ref: PlanRef, auto: bool, *limits: Any) -> Callable[[PlanService], Plan]:
        return lambda service: service.set_policy(who, ref, plan_forms.policy(bool(auto), limits))

    on("approve", Right.APPROVE, ["scope.value", "reason.value"], approve)
    on("reject", Right.APPROVE, ["reason.value"], reject)
    on("skip", Right.PLAN, ["start.value"], skip)
    on("unskip", Right.PLAN, ["start.value"], unskip)
    on("policy", Right.ADMINISTER, ["auto.checked", "hit.value", "idle.value", "cost.value"], policy)


def _register_changes(app: Dash, view: View) -> None:
    def skip(service: PlanService, who: Person, ref: PlanRef, start: str) -> str:
        service.skip(who, ref, float(start))
        return f"Skipped the occurrence of {ref} that begins {display.moment(float(start))}."

    def unskip(service: PlanService, who: Person, ref: PlanRef, start: str) -> str:
        service.restore(who, ref, float(start))
        return f"The occurrence of {ref} that begins {display.moment(float(start))} happens after all."

    def policy(service: PlanService, who: Person, ref: PlanRef, auto: bool, *limits: Any) -> str:
        plan = service.set_policy(who, ref, plan_forms.policy(bool(auto), limits))
        does = "approves itself within its limits" if plan.policy.auto else "does not approve itself"
        return f"Plan {ref} now {does}."

    _on(app, view, Right.PLAN, "plan-skip-now", [State("plan-skip-start", "value")], skip)
    _on(app, view, Right.PLAN, "plan-unskip-now", [State("plan-unskip-start", "value")], unskip)
    limits = [State(f"plan-policy-{key}", "value") for key in ("hit", "idle", "cost")]
    _on(app, view, Right.ADMINISTER, "plan-policy-now", [State("plan-policy-auto", "checked"), *limits], policy)


def _register_edit(app: Dash, view: View) -> None:
    @app.callback(
        *_act(),
        Input("plan-edit-now", "n_clicks"),
        State({"plan-term": ALL}, "value"),
        State("plan-edit-of", "data"),
        State("plan-ref", "data"),
        prevent_initial_call=True,
    )
    @acts(view, Right.PLAN)
    def _edit(clicks: int | None, values: Sequence[Any], generation: int, ref: str) -> Answer:
        form = _field_values(0, "plan-term", values)

        def act(service: PlanService, who: Person) -> tuple[str, PlanRef]:
            terms = plan_forms.terms(form, PlanTerms.of(service.plan(who, parse_plan_ref(ref))))
            service.edit(who, parse_plan_ref(ref), terms, int(generation))
            return f"Changed plan {ref}.", parse_plan_ref(ref)

        return answer_action(view, act) if clicks else _no_update_answer()

    @app.callback(
        Output("plan-edit-preview", "children"),
        Input("plan-edit-look", "n_clicks"),
        State({"plan-term": ALL}, "value"),
        State("plan-edit-of", "data"),
        State("plan-ref", "data"),
        prevent_initial_call=True,
    )
    @acts(view, Right.REVIEW)
    def _preview(clicks: int | None, values: Sequence[Any], generation: int, ref: str) -> Any:
        form = _field_values(0, "plan-term", values)

        def draw_preview(service: PlanService, who: Person) -> Component:
            terms = plan_forms.terms(form, PlanTerms.of(service.plan(who, parse_plan_ref(ref))))
            preview = service.preview(who, parse_plan_ref(ref), terms)
            lines = _lines_of(view, lambda tried: tried.edit(who, parse_plan_ref(ref), terms, int(generation)))
            return html.Div([plan_actions.preview_table(preview, view.currency, "Under these terms"), *lines])

        return _draw_or_failure(view, draw_preview) if clicks else no_update


def _register_new(app: Dash, view: View) -> None:
    @app.callback(
        Output("plan-new-form", "children"),
        Input(plan_actions.NEW_ASKED, "data"),
        prevent_initial_call=True,
    )
    @acts(view, Right.PLAN)
    def _new(request: Mapping[str, Any] | None) -> Any:
        if not request:
            return no_update
        return plan_actions.new_form(plan_forms.fresh(view.now_seconds(), str(request["workload"])))

    @app.callback(
        Output("new-next", "children"),
        Output("new-fields", "className"),
        Input({"new-term": ALL}, "value"),
        prevent_initial_call=False,
    )
    def _next(values: Sequence[Any]) -> tuple[Any, Any]:
        form = _typed_inputs("new-term", values)
        class_name = f"plan-fields kind-{form.get('when', 'schedule')}"
        if form.get("when") != "schedule":
            return "It happens once.", class_name
        try:
            rule: Recurrence = plan_forms.recurrence(form)
            return plan_actions.next_three(in_cluster(view.given.plans).next_windows(rule, NEXT)), class_name
        except CotenantError as error:
            return f"{error.message}. {error.fix}", class_name


def _register_make(app: Dash, view: View) -> None:
    @app.callback(
        Output("new-preview", "children"),
        Input("new-look", "n_clicks"),
        State({"new-term": ALL}, "value"),
        prevent_initial_call=True,
    )
    @acts(view, Right.REVIEW)
    def _preview(clicks: int | None, values: Sequence[Any]) -> Any:
        form = _field_values(0, "new-term", values)

        def draw_preview(service: PlanService, who: Person) -> Component:
            workload, terms = _workload(form), plan_forms.terms(form)
            lines = _lines_of(view, lambda tried: tried.make(who, workload, terms))
            preview = service.preview_new(who, workload, terms)
            return html.Div([plan_actions.preview_table(preview, view.currency), *lines])

        return _draw_or_failure(view, draw_preview) if clicks else no_update

    @app.callback(
        Output("plan-new-form", "children", allow_duplicate=True),
        Output("plan-new-said", "children"),
        Output("plan-new-acted", "children"),
        Output("plans-acted", "data", allow_duplicate=True),
        Input("new-now", "n_clicks"),
        State({"new-term": ALL}, "value"),
        prevent_initial_call=True,
    )
    @acts(view, Right.PLAN)
    def _make(clicks: int | None, values: Sequence[Any]) -> Answer:
        form = _field_values(0, "new-term", values)

        def act(service: PlanService, who: Person) -> tuple[str, PlanRef]:
            plan = service.make(who, _workload(form), plan_forms.terms(form))
            ref = story.ref_to(plan)
            return f"Made plan {ref}. It is reserved once somebody approves it.", ref

        return answer_action(view, act) if clicks else _no_update_answer()


def _workload(form: Mapping[str, Any]) -> WorkloadRef:
    return WorkloadRef.required(str(form.get("workload") or "").strip())


def _field_values(at: int, kind: str, values: Sequence[Any]) -> dict[str, Any]:
    """Return the values of the form's fields by key, from the `at`-th state of the callback."""
    return {entry["id"][kind]: value for entry, value in zip(ctx.states_list[at], values, strict=True)}


def _typed_inputs(kind: str, values: Sequence[Any]) -> dict[str, Any]:
    return {entry["id"][kind]: value for entry, value in zip(ctx.inputs_list[0], values, strict=True)}


def _draw_or_failure(view: View, draw: Callable[[PlanService, Person], Component]) -> Component:
    """Return what `look` returns, or why there is nothing to show."""
    try:
        return draw(in_cluster(view.given.plans), view.given.current_user())
    except CotenantError as error:
        announce(f"{error.message} {error.fix}".strip())
        return panels.trouble(error)


def _no_update_answer() -> Answer:
    return no_update, no_update, no_update, no_update
