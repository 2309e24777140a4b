"""EDGE: the actions of a person on a reservation plan: each is a request and a function that computes its write.

Commands, routes and pages make a request. The service executes it, or lists what it would write, by the same function.
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

    `generation` is that of the plan that was read: a plan that has changed since is not approved.
    """

    plan: PlanRef
    scope: DecisionScope
    reason: str = ""
    standby: int | None = None
    generation: int | None = None


@dataclass(frozen=True, slots=True)
class RejectPlan:
    """Request to reject a plan, which needs a reason: reserved capacity is released, and no more is reserved."""

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
    """Request to change a plan's terms if it still has this generation. Approved plans need the right to approve."""

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
    """Inputs of an action: `by` is the person's name as written into the plan; `plan` is live, or None for a new one.

    `tries` is True if only the fields that would be written are requested.
    """

    client: KubeClient
    who: Person
    by: str
    now_seconds: float
    plan: Plan | None
    tries: bool = False

    @property
    def live(self) -> Plan:
        """The live plan; only for actions on an existing plan."""
        assert self.plan is not None, "the service has read it"
        return self.plan


def _approve(asked: ApprovePlan, context: PlanContext) -> Intent:
    plan = context.live
    approval = Approval(PlanDecision.APPROVED, asked.scope, context.by, context.now_seconds, asked.reason)
    _require_first(plan, approval, asked.standby)
    if asked.generation is None and not context.tries:
        raise UnseenVersion(
            f"the approval of plan {asked.plan} does not name the generation of the plan that was read",
            fix="Read the plan and send its generation, so that no later version of it is approved.",
        )
    if asked.generation not in (None, plan.generation):
        raise UsageError(
            f"plan {plan.namespace}/{plan.name} has changed since you read it: it is generation "
            f"{plan.generation} now, and you saw {asked.generation}",
            fix="Read the plan again.",
        )
    return plans.decide_plan(plan, approval, asked.standby)


def _reject(asked: RejectPlan, context: PlanContext) -> Intent:
    reason = asked.reason.strip()
    rejection = Approval(PlanDecision.REJECTED, asked.scope, context.by, context.now_seconds, reason)
    _require_first(context.live, rejection, None)
    return plans.decide_plan(context.live, rejection)


def _require_first(plan: Plan, asked: Approval, standby: int | None) -> None:
    """Raise UsageError if somebody else has already made the same decision: it is not overwritten."""
    first = decision_in_force(plan)
    if first is None or first.decision is not asked.decision or first.by in ("", asked.by):
        return
    if asked.scope is DecisionScope.SERIES and first.scope is DecisionScope.ONCE:
        return  # that was of one occurrence, this is of all
    if standby in (None, plan.standby):
        raise UsageError(
            f"plan {plan.namespace}/{plan.name} was {decision_text(first)}",
            fix="There is nothing to decide: edit its terms, skip a window, or make the opposite decision.",
        )


def _skip(asked: SkipOccurrence, context: PlanContext) -> Intent:
    plan = context.live
    if plan.source is WindowSource.MANUAL:
        raise UsageError(f"plan {asked.plan} has only one window to skip", fix="Reject the plan.")
    if plan.recurring:
        return plan_terms.skip_start_patch(plan, asked.start_seconds, context.now_seconds)
    window = plan.status.window or plan.window
    if window is None or window.start_seconds != asked.start_seconds:
        raise UsageError(f"the forecast has moved the window of plan {asked.plan}", fix="Read the plan again.")
    reason = asked.reason.strip() or "skipped"
    rejection = Approval(PlanDecision.REJECTED, DecisionScope.ONCE, context.by, context.now_seconds, reason)
    return plans.decide_plan(plan, rejection)


def new_plan(asked: MakePlan) -> Plan:
    """Return the plan that a request creates; fields that its terms do not set have the API's defaults."""
    when = asked.terms.recurring or asked.terms.window
    assert when is not None, "checked terms have one of them"
    return plan_terms.plan_with_terms(
        plans.new_plan(asked.workload, asked.plan.name, asked.terms.pods, when), asked.terms
    )


def _edit(asked: EditPlan, context: PlanContext) -> Intent:
    """Return the patch of the new terms; a plan that a person approved needs the right to approve."""
    if context.live.approved_by_person:
        context.who.require(Right.APPROVE, asked.plan.namespace)
    return plan_terms.edit_patch(context.live, asked.terms, asked.generation)


def require_valid(asked: Any, now_seconds: float) -> None:
    """Raise UsageError if no plan could have the request's values; nothing is then written to the ledger."""
    if isinstance(asked, RejectPlan) and not asked.reason.strip():
        raise UsageError("a rejection needs a reason", fix="Give a short reason.")
    if isinstance(asked, ApprovePlan) and asked.standby is not None:
        plan_terms.checked_standby(asked.standby)
    if isinstance(asked, MakePlan | EditPlan):
        plan_terms.validate_terms(asked.terms, now_seconds)
    if isinstance(asked, MakePlan):
        plan_terms.checked_name(asked.plan.name)
    if isinstance(asked, SetPlanPolicy):
        plan_terms.checked_policy(asked.policy)


@dataclass(frozen=True, slots=True)
class PlanAct:
    """An action: its request, its required right, its ledger event, its write, and the message when it is done."""

    request: type[Any]
    right: Right
    event: PlanEvent
    writes: Callable[[Any, PlanContext], Intent]
    done: str


ACTS: Final = (
    PlanAct(ApprovePlan, Right.APPROVE, PlanEvent.APPROVED, _approve, "Approved {plan} for {extent}. {next}"),
    PlanAct(RejectPlan, Right.APPROVE, PlanEvent.REJECTED, _reject,
            "Rejected plan {plan}: its reserved capacity is released, and no more is reserved."),
    PlanAct(SkipOccurrence, Right.PLAN, PlanEvent.SKIPPED, _skip,
            "Skipped the occurrence of plan {plan} that begins {start}."),
    PlanAct(RestoreOccurrence, Right.PLAN, PlanEvent.RESTORED,
            lambda asked, at: plan_terms.restore_start_patch(at.live, asked.start_seconds, at.now_seconds),
            "The occurrence of plan {plan} that begins {start} is no longer skipped."),
    PlanAct(MakePlan, Right.PLAN, PlanEvent.MADE, lambda asked, at: plans.plan_creation(at.client, new_plan(asked)),
            "Created plan {plan}. It reserves capacity once somebody approves it."),
    PlanAct(EditPlan, Right.PLAN, PlanEvent.EDITED, _edit, "Changed plan {plan}."),
    PlanAct(SetPlanPolicy, Right.ADMINISTER, PlanEvent.POLICY,
            lambda asked, at: plan_terms.with_policy(at.live, asked.policy), "Plan {plan} now {does}."),
)  # fmt: skip


def act_of(asked: Any) -> PlanAct:
    """Return the action of ACTS that a request belongs to."""
    return next(act for act in ACTS if act.request is type(asked))
