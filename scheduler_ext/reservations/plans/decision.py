"""Which occurrence of a plan a person's decision is about. Pure."""

from __future__ import annotations

from cotenant.base.usage.usage import DAY_SECONDS
from cotenant.scheduler_ext.reservations.model.plan import (
    Approval,
    DecisionScope,
    Plan,
    PlanDecision,
    PlanStatus,
    WindowSource,
)
from cotenant.scheduler_ext.reservations.plans import schedule


def decision_in_force(plan: Plan) -> Approval | None:
    """Return a person's decision on the present occurrence; None without one, or where it was of an earlier one."""
    decision = plan.approval
    return decision if decision is not None and covers_occurrence(plan, decision, plan.status) else None


def covers_occurrence(plan: Plan, approval: Approval, status: PlanStatus) -> bool:
    """Return whether a decision is about the present occurrence.

    For once, an approval ends with the score of its occurrence. A rejected occurrence gets none, so its end is known
    by time: the first window of the schedule that was not over at the time of the decision; a forecast reaches a day
    ahead.
    """
    if approval.scope is DecisionScope.SERIES:
        return True
    if approval.decision is PlanDecision.APPROVED or status.window is None or not approval.at_seconds:
        return approval.at_seconds >= status.last_end_seconds
    if plan.recurring:
        back = approval.at_seconds - plan.recurring.duration_seconds
        meant = next(
            (s for s in schedule.occurrences(plan.recurring, back) if s.end_seconds > approval.at_seconds), None
        )
        return meant is not None and status.window.start_seconds <= meant.start_seconds
    return plan.source is WindowSource.MANUAL or status.window.start_seconds <= approval.at_seconds + DAY_SECONDS
