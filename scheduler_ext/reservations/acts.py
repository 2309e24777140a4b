"""EDGE: the actions of a person on a reservation plan: each is a request and a function that computes its write.

Commands, routes and pages make a request. The service executes it, or only lists what it would write.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from cotenant.base.errors import UnseenVersion, UsageError
from cotenant.base.identity import WorkloadRef
from cotenant.base.kube import KubeClient
from cotenant.base.kubernetes.intent import Intent
from cotenant.base.people import Person, Right
from cotenant.scheduler_ext.reservations.model.plan import (
    Approval,
    ApprovalPolicy,
    DecisionScope,
    Plan,
    PlanDecision,
    WindowSource,
    proposal_name,
)
from cotenant.scheduler_ext.reservations.model.plan_service import PlanEvent, PlanRef, PlanTerms
from cotenant.scheduler_ext.reservations.model.plan_states import decision_text
from cotenant.scheduler_ext.reservations.plans.schedule import decision_in_force
from cotenant.scheduler_ext.reservations.service import plans
from cotenant.scheduler_ext.reservations.service import terms as plan_terms


@dataclass(frozen=True, slots=True)
class ApprovePlan:
    """Request to approve a plan with `standby` standby pods; None keeps the plan's number.

    `generation` is that of the plan that was read: if the plan has changed since, the request is refused.
    """

    plan: PlanRef
    scope: DecisionScope
    reason: str = ""
    standby: int | None = None
    generation: int | None = None


@dataclass(frozen=True, slots=True)
class RejectPlan:
    """Request to reject a plan, which needs a reason: the plan's capacity is released, and no more is reserved."""

    plan: PlanRef
    reason: str
    scope: DecisionScope = DecisionScope.SERIES


@dataclass(frozen=True, slots=True)
class SkipOccurrence:
    """Request to skip the occurrence of a plan that starts at `start_seconds` (Unix time)."""

    plan: PlanRef
    start_seconds: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RestoreOccurrence:
    """Request to restore a skipped occurrence of a scheduled plan."""

    plan: PlanRef
    start_seconds: float


@dataclass(frozen=True, slots=True)
class MakePlan:
    """Request to create a plan, which still needs an approval; without a name it is named after the workload."""

    workload: WorkloadRef
    terms: PlanTerms
    name: str = ""

    @property
    def plan(self) -> PlanRef:
        """Namespace and name of the plan to be created."""
        kind = "schedule" if self.terms.recurring else "once"
        return PlanRef(self.workload.namespace, self.name.strip() or f"{proposal_name(self.workload)}-{kind}")


@dataclass(frozen=True, slots=True)
class EditPlan:
    """Request to change the terms of a plan that still has `generation`; only approvers may edit an approved plan."""

    plan: PlanRef
    terms: PlanTerms
    generation: int


@dataclass(frozen=True, slots=True)
class SetPlanPolicy:
    """Request to set the conditions under which a plan is approved automatically."""

    plan: PlanRef
    policy: ApprovalPolicy


@dataclass(frozen=True, slots=True)
class PlanContext:
    """Inputs of an action: `by` is the person's name as written into the plan; `plan` is as read, None for a new one.

    `tries` is True for a request that only lists the fields that would be written.
    """

    client: KubeClient
    who: Person
    by: str
    now_seconds: float
    plan: Plan | None
    tries: bool = False

    @property
    def live(self) -> Plan:
        """The plan as read from the cluster; only for actions on an existing plan."""
        assert self.plan is not None, "the service has read the plan"
        return self.plan


def _approve(request: ApprovePlan, context: PlanContext) -> Intent:
    plan = context.live
    approval = Approval(PlanDecision.APPROVED, request.scope, context.by, context.now_seconds, request.reason)
    _require_first(plan, approval, request.standby)
    if request.generation is None and not context.tries:
        raise UnseenVersion(
            f"the approval of plan {request.plan} does not name the generation of the plan that was read",
            fix="Read the plan and send its generation, so that no later version of it is approved.",
        )
    if request.generation not in (None, plan.generation):
        raise UsageError(
            f"plan {plan.namespace}/{plan.name} has changed since you read it: it is generation "
            f"{plan.generation} now, and you saw {request.generation}",
            fix="Read the plan again.",
        )
    return plans.decide_plan(plan, approval, request.standby)


def _reject(request: RejectPlan, context: PlanContext) -> Intent:
    reason = request.reason.strip()
    rejection = Approval(PlanDecision.REJECTED, request.scope, context.by, context.now_seconds, reason)
    _require_first(context.live, rejection, None)
    return plans.decide_plan(context.live, rejection)


def _require_first(plan: Plan, decision: Approval, standby: int | None) -> None:
    """Raise UsageError if somebody else has already made the same decision: it is not overwritten."""
    first = decision_in_force(plan)
    if first is None or first.decision is not decision.decision or first.by in ("", decision.by):
        return
    if decision.scope is DecisionScope.SERIES and first.scope is DecisionScope.ONCE:
        return  # that was of one occurrence, this is of all
    if standby in (None, plan.standby):
        raise UsageError(
            f"plan {plan.namespace}/{plan.name} was already {decision_text(first)}",
            fix="The plan has this decision already: edit the plan, skip a window, or make the opposite decision.",
        )


def _skip(request: SkipOccurrence, context: PlanContext) -> Intent:
    plan = context.live
    if plan.source is WindowSource.MANUAL:
        raise UsageError(f"plan {request.plan} has only one window", fix="To skip its window, reject the plan.")
    if plan.recurring:
        return plan_terms.skip_start_patch(plan, request.start_seconds, context.now_seconds)
    window = plan.status.window or plan.window
    if window is None or window.start_seconds != request.start_seconds:
        raise UsageError(f"the forecast has moved the window of plan {request.plan}", fix="Read the plan again.")
    reason = request.reason.strip() or "skipped"
    rejection = Approval(PlanDecision.REJECTED, DecisionScope.ONCE, context.by, context.now_seconds, reason)
    return plans.decide_plan(plan, rejection)


def new_plan(request: MakePlan) -> Plan:
    """Return the plan that a request creates; fields that its terms do not set have the API's defaults."""
    when = request.terms.recurring or request.terms.window
    assert when is not None, "validated terms have a window or a schedule"
    return plan_terms.plan_with_terms(
        plans.new_plan(request.workload, request.plan.name, request.terms.pods, when), request.terms
    )


def _edit(request: EditPlan, context: PlanContext) -> Intent:
    """Return the patch of the new terms; raise unless the person may approve, if a person has approved the plan."""
    if context.live.approved_by_person:
        context.who.require(Right.APPROVE, request.plan.namespace)
    return plan_terms.edit_patch(context.live, request.terms, request.generation)


def require_valid(request: Any, now_seconds: float) -> None:
    """Raise UsageError if a request's values are invalid whatever its plan is; called before the ledger gets a row."""
    if isinstance(request, RejectPlan) and not request.reason.strip():
        raise UsageError("a rejection needs a reason", fix="Give a short reason.")
    if isinstance(request, ApprovePlan) and request.standby is not None:
        plan_terms.checked_standby(request.standby)
    if isinstance(request, MakePlan | EditPlan):
        plan_terms.validate_terms(request.terms, now_seconds)
    if isinstance(request, MakePlan):
        plan_terms.checked_name(request.plan.name)
    if isinstance(request, SetPlanPolicy):
        plan_terms.checked_policy(request.policy)


@dataclass(frozen=True, slots=True)
class PlanAct:
    """An action on a plan: request type, required right, ledger event, function that makes the write, final message."""

    request: type[Any]
    right: Right
    event: PlanEvent
    writes: Callable[[Any, PlanContext], Intent]
    done: str


ACTS: Final = (
    PlanAct(ApprovePlan, Right.APPROVE, PlanEvent.APPROVED, _approve, "Approved plan {plan} for {extent}. {next}"),
    PlanAct(RejectPlan, Right.APPROVE, PlanEvent.REJECTED, _reject,
            "Rejected plan {plan}: its reserved capacity is released, and no more is reserved."),
    PlanAct(SkipOccurrence, Right.PLAN, PlanEvent.SKIPPED, _skip,
            "Skipped the occurrence of plan {plan} that begins at {start}."),
    PlanAct(RestoreOccurrence, Right.PLAN, PlanEvent.RESTORED,
            lambda asked, at: plan_terms.restore_start_patch(at.live, asked.start_seconds, at.now_seconds),
            "The occurrence of plan {plan} that begins at {start} is no longer skipped."),
    PlanAct(MakePlan, Right.PLAN, PlanEvent.MADE, lambda asked, at: plans.plan_creation(at.client, new_plan(asked)),
            "Created plan {plan}. It reserves capacity once somebody approves it."),
    PlanAct(EditPlan, Right.PLAN, PlanEvent.EDITED, _edit, "Changed plan {plan}."),
    PlanAct(SetPlanPolicy, Right.ADMINISTER, PlanEvent.POLICY,
            lambda asked, at: plan_terms.with_policy(at.live, asked.policy), "Plan {plan} now {does}."),
)  # fmt: skip


def act_of(request: Any) -> PlanAct:
    """Return the action in ACTS that handles requests of this type."""
    return next(act for act in ACTS if act.request is type(request))
