"""Decides a plan's phase, and for how many pods it wants capacity now. Pure.

`model.life_cycle` says what each phase means and which may follow. Capacity is wanted only between Approved and
Released: for the pods that the forecast or the present need requires, less those that run. Capacity that a pod leaves
is reserved again while it is wanted. Standby capacity is kept unused at any time while the plan is approved. The next
occurrence begins when the present one is over; if it is due while capacity is reserved, it replaces the present one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from cotenant.base.kubernetes.pod_identity import Condition
from cotenant.base.text import counted
from cotenant.scheduler_ext.reservations.model.life_cycle import PLAN_STATES, PlanPhase, Stage
from cotenant.scheduler_ext.reservations.model.plan import (
    Expected,
    OccurrenceProgress,
    Plan,
    PlanDecision,
    PlanReservation,
    PlanStatus,
    Realisation,
    Span,
    WindowSource,
)
from cotenant.scheduler_ext.reservations.model.plan_service import PlanGuardResult
from cotenant.scheduler_ext.reservations.model.settings import PlanSettings
from cotenant.scheduler_ext.reservations.plans import schedule
from cotenant.scheduler_ext.reservations.plans.guards import first_blocking_verdict
from cotenant.scheduler_ext.reservations.plans.schedule import covers_occurrence
from cotenant.scheduler_ext.reservations.plans.score import ReservationUse, observe, score
from cotenant.scheduler_ext.reservations.plans.size import (
    CHANGE_INTERVAL_SECONDS,
    Counts,
    ReservedPods,
    most,
    reserve_pods,
)
from cotenant.scheduler_ext.reservations.status import merge_conditions

APPROVED: Final = "Approved"
RESERVED: Final = "Reserved"
NO_DEMAND: Final = "NoDemand"
TAKEN_OVER: Final = "TakenOver"
OBSERVED_SHARE: Final = 0.5
"""Share of the control period within which use is not counted again, because each count writes the status."""
STANDBY_PERIODS: Final = 10
"""Control periods between two counts of use outside the windows."""


@dataclass(frozen=True, slots=True, eq=False)
class PodForecast:
    """Forecast of the pods that are needed beyond the baseline pods, one number for each slot of `step_seconds`.

    `wanted` is at the plan's quantile; `median` is at 0.5 and says whether demand is still high after the window.
    """

    start_seconds: float
    step_seconds: float
    wanted: Counts
    median: Counts

    @property
    def end_seconds(self) -> float:
        """End of the last slot (Unix time)."""
        return self.start_seconds + self.step_seconds * len(self.wanted)

    def covers(self, at_seconds: float) -> bool:
        """Return whether a Unix time is within the forecast."""
        return self.start_seconds <= at_seconds < self.end_seconds

    def most(self, begin_seconds: float, end_seconds: float) -> int:
        """Return the highest number of wanted pods between two Unix times."""
        return most(self.wanted, self.start_seconds, self.step_seconds, begin_seconds, end_seconds)

    def usual(self, at_seconds: float) -> int:
        """Return the median forecast of the needed pods at a Unix time."""
        return most(self.median, self.start_seconds, self.step_seconds, at_seconds, at_seconds + 1)


@dataclass(frozen=True, slots=True)
class PlanObservation:
    """The inputs of a plan's next step: the use of its capacity, lead time, guards, forecast, and `units`.

    `units` are the Reservations of the present occurrence; `expected` is the result of the back-test. `taken_over` is a
    sentence if somebody else has changed the minReplicas that the plan had set, `size_note` one about what the capacity
    may lack; either is "" if there is nothing to say.
    """

    use: ReservationUse
    lead_seconds: int
    guards: tuple[PlanGuardResult, ...] = ()
    outlook: PodForecast | None = None
    expected: Expected | None = None
    units: tuple[PlanReservation, ...] = ()
    price_per_core_hour: float = 0.0
    settings_digest: str = ""
    taken_over: str = ""
    size_note: str = ""


@dataclass(frozen=True, slots=True)
class PlanStep:
    """The result of a step: the status to write, and for how many pods to reserve, at most what was approved.

    `want` includes pods that run already. `free` is the number of pods whose capacity is kept unused, with standby; if
    it is 0, all unused capacity is released.
    """

    status: PlanStatus
    want: int = 0
    free: int = 0


@dataclass(frozen=True, slots=True)
class _StepInputs:
    plan: Plan
    seen: PlanObservation
    now: float
    settings: PlanSettings


def step(plan: Plan, observation: PlanObservation, now_seconds: float, settings: PlanSettings) -> PlanStep:
    """Return the next step of a plan's life cycle; repeated on equal observations, it adds only elapsed time."""
    inputs = _StepInputs(plan, observation, now_seconds, settings)
    status = plan.status
    if status.phase is None or status.phase.over:
        window = next_window(plan, now_seconds, observation.lead_seconds)
        if window is not None:
            fresh = replace(status, phase=PlanPhase.PROPOSED, window=window, units=(), progress=_since_last(status))
            status = replace(fresh, count=plan.most_in(window))
        elif status.phase is None:
            status = replace(status, phase=PlanPhase.PROPOSED)
    # the parts that are shown in any case: units, expectation, and the lead until capacity is reserved
    expected, digest = observation.expected, observation.settings_digest
    status = replace(
        status,
        units=observation.units,
        expected=expected or status.expected,
        settings_digest=digest if expected else status.settings_digest,
    )
    if status.window is not None and status.phase is not None and not (status.phase.holds or status.phase.over):
        status = _with_lead(inputs, status, status.window)
    while True:
        phase = status.phase or PlanPhase.PROPOSED
        next_step = _STEPS[PLAN_STATES[phase].stage](inputs, status)
        if next_step.status.phase == phase:
            return _with_standby(inputs, next_step)
        status = next_step.status


def next_window(plan: Plan, now_seconds: float, lead_seconds: float) -> Span | None:
    """Return the window of the present occurrence; None if the plan has no further window."""
    done = plan.status.last_end_seconds
    if plan.suspended:
        return None
    if plan.recurring:
        return schedule.current(plan.recurring, now_seconds, lead_seconds, done)
    spans = (peak.span for peak in plan.peaks)
    return next((s for s in spans if s.start_seconds >= done and s.end_seconds > now_seconds), None)


def last_chance(plan: Plan, window: Span) -> float:
    """Return the Unix time until which capacity for an occurrence may still be reserved."""
    return schedule.last_chance(plan.recurring, window) if plan.recurring else window.end_seconds


def _since_last(status: PlanStatus) -> OccurrenceProgress:
    """Return the progress since the last score, which only standby has; empty if nothing was counted since."""
    counted = status.progress.as_of_seconds > status.last_end_seconds
    return status.progress if counted else OccurrenceProgress()


def _with_lead(inputs: _StepInputs, status: PlanStatus, window: Span) -> PlanStatus:
    """Return the status with this window, whose capacity is reserved the lead time before it begins."""
    lead = inputs.seen.lead_seconds
    return replace(status, window=window, lead_seconds=lead, reserve_at_seconds=window.start_seconds - lead)


def _step_before_reservation(inputs: _StepInputs, status: PlanStatus) -> PlanStep:
    """Return the step in the phases Proposed, Approved and Rejected, in which no capacity is wanted yet."""
    status = _update_window(inputs, status)
    window = status.window
    if window is None:
        return PlanStep(_with_condition(inputs, status, APPROVED, "NoOccurrence", "No further occurrence."))
    phase, reason, message = _decide_occurrence(inputs, status)
    status = replace(status, phase=phase, count=inputs.plan.most_in(window))
    status = _with_condition(inputs, status, APPROVED, reason, message, phase is PlanPhase.APPROVED)
    if inputs.now >= last_chance(inputs.plan, window):
        return _given_up(inputs, status, window)
    if phase is not PlanPhase.APPROVED or inputs.now < status.reserve_at_seconds:
        return PlanStep(status)
    blocked = first_blocking_verdict(inputs.seen.guards)
    if blocked:
        return PlanStep(_with_condition(inputs, status, RESERVED, blocked.reason, blocked.message))
    if _demand(inputs, window, 0) == 0:
        return PlanStep(_with_condition(inputs, status, RESERVED, NO_DEMAND, "The forecast no longer needs more pods."))
    return PlanStep(replace(status, phase=PlanPhase.RESERVED))


def _given_up(inputs: _StepInputs, status: PlanStatus, window: Span) -> PlanStep:
    """Return the step after a window without reserved capacity: Missed if approved, else the next occurrence."""
    if status.phase is PlanPhase.APPROVED:
        condition = next((c for c in status.conditions if c.type == RESERVED and c.message), None)
        reason, message = (
            (condition.reason, condition.message)
            if condition
            else ("Missed", "The deadline passed before capacity was reserved.")
        )
        ended = replace(status, phase=PlanPhase.SCORED if reason == NO_DEMAND else PlanPhase.MISSED)
        return PlanStep(_add_score(inputs, _with_condition(inputs, ended, RESERVED, reason, message)))
    following = next_window(inputs.plan, inputs.now, inputs.seen.lead_seconds)
    if following is None or following == window:
        return PlanStep(status)
    return _step_before_reservation(inputs, replace(status, window=following, phase=PlanPhase.PROPOSED))


def _update_window(inputs: _StepInputs, status: PlanStatus) -> PlanStatus:
    """Return the status with the spec's present window: an edit or the forecast may move it before the reservation."""
    window = next_window(inputs.plan, inputs.now, inputs.seen.lead_seconds)
    if window is None or window == status.window:
        return status
    passed = status.window is not None and inputs.now >= status.window.end_seconds
    if status.phase is PlanPhase.APPROVED and passed:
        return status  # it is missed first; the next look takes the next one
    return _with_lead(inputs, status, window)


def _decide_occurrence(inputs: _StepInputs, status: PlanStatus) -> tuple[PlanPhase, str, str]:
    """Return the phase of an occurrence (proposed, approved or rejected) with its reason and message.

    A person's decision takes precedence over the plan's policy. A policy approves only if `_against` finds no
    objection; otherwise the plan waits for a person, and its message is the objection.
    """
    approval = inputs.plan.approval
    if approval and covers_occurrence(inputs.plan, approval, status):
        by = f"by {approval.by}" if approval.by else "by somebody"
        word = f"{approval.decision.value} {by}{': ' + approval.reason if approval.reason else '.'}"
        if approval.decision is PlanDecision.APPROVED:
            return PlanPhase.APPROVED, "ByPerson", word
        return PlanPhase.REJECTED, "Rejected", word
    if not inputs.plan.policy.auto:
        return PlanPhase.PROPOSED, "Waiting", "Waiting for approval."
    against = _against(inputs, status.expected)
    if against:
        return PlanPhase.PROPOSED, "PolicyNotMet", against
    return PlanPhase.APPROVED, "ByPolicy", "The plan's policy approves the occurrence."


def _against(inputs: _StepInputs, expected: Expected | None) -> str:
    """Return why the policy does not approve, or "" if it does."""
    policy = inputs.plan.policy
    blocked = first_blocking_verdict(inputs.seen.guards)
    if blocked:
        return f"{blocked.guard}: {blocked.message}"
    limits = (policy.minimum_hit_ratio, policy.maximum_idle_core_hours, policy.maximum_cost)
    if expected is None:
        has_limits = any(limit is not None for limit in limits)
        return "The policy needs the result of a back-test, and the plan has none yet." if has_limits else ""
    least, idle, cost = limits
    checks = (
        (
            least is not None and expected.hit_ratio < least,
            f"The back-test used {expected.hit_ratio:.2f} of the reserved capacity, the policy needs {least}.",
        ),
        (
            idle is not None and expected.idle_core_hours > idle,
            f"{expected.idle_core_hours:.1f} idle core-hours a day are expected, the policy allows {idle}.",
        ),
        (cost is not None and expected.cost > cost, f"Daily cost is {expected.cost:.2f}, the policy allows {cost}."),
    )
    return next((word for fails, word in checks if fails), "")


def _step_while_reserved(inputs: _StepInputs, status: PlanStatus) -> PlanStep:
    """Return the step in the phases Reserved, Held and Extended, in which capacity is kept."""
    window = status.window
    if window is None:
        return PlanStep(replace(status, phase=PlanPhase.RELEASED))
    started = inputs.now >= window.start_seconds
    stop = _stop(inputs, status, window)
    ready_first = inputs.seen.use.complete and status.progress.available_at_seconds is None
    due = inputs.now - status.progress.as_of_seconds >= OBSERVED_SHARE * inputs.settings.interval_seconds
    if stop or due or ready_first:
        status = replace(status, progress=observe(status.progress, inputs.seen.use, inputs.now, started))
    if stop:
        return PlanStep(_with_condition(inputs, replace(status, phase=PlanPhase.RELEASED), RESERVED, *stop))
    first = not status.progress.changed_at_seconds
    current = ReservedPods(0) if first else ReservedPods(status.count, status.progress.changed_at_seconds)
    reserved_now = reserve_pods(current, _demand(inputs, window, status.count), inputs.now)
    progress = replace(status.progress, changed_at_seconds=reserved_now.changed_at_seconds)
    phase = PlanPhase.RESERVED if not started else PlanPhase.IN_WINDOW
    if inputs.now >= window.end_seconds:
        phase = PlanPhase.EXTENDED
    ready_pods = inputs.seen.use.free + inputs.seen.use.present
    reserved = f"Capacity for {ready_pods} of {counted(reserved_now.count, 'pod')} is reserved."
    word = f"{reserved} {inputs.seen.size_note}".strip()
    status = replace(status, phase=phase, count=reserved_now.count, progress=progress)
    if left_alone := _step_after_take_over(inputs, status, first):
        return left_alone
    status = _with_condition(
        inputs, status, RESERVED, "Held" if ready_pods >= reserved_now.count else "Reserving", word, ready_pods > 0
    )
    return PlanStep(status, reserved_now.count, max(0, reserved_now.count - inputs.seen.use.present))


def _step_after_take_over(inputs: _StepInputs, status: PlanStatus, first: bool) -> PlanStep | None:
    """Return the step if somebody else has set minReplicas: nothing more is wanted in this window; else None.

    The status records this before the annotation is removed, so that a process that stops in between does not raise
    minReplicas again. `first` is True if nothing was reserved in this window before.
    """
    earlier = [c for c in inputs.plan.status.conditions if c.type == RESERVED and c.reason == TAKEN_OVER and not first]
    if not earlier and not inputs.seen.taken_over:
        return None
    sentence = earlier[0].message if earlier else f"{inputs.seen.taken_over} The plan will not set it in this window."
    status = _with_condition(inputs, status, RESERVED, TAKEN_OVER, sentence)
    return PlanStep(status, 0 if earlier else status.count)


def _with_standby(inputs: _StepInputs, due: PlanStep) -> PlanStep:
    """Return the step with the plan's standby kept unused as well; its use outside the windows is counted here."""
    standby, status = _standby(inputs, due.status), due.status
    if not standby:
        return due
    if status.phase is PlanPhase.APPROVED and inputs.now < status.reserve_at_seconds:
        word = f"Capacity for {counted(standby, 'pod')} is reserved at all times. {inputs.seen.size_note}".strip()
        status = _with_condition(inputs, status, RESERVED, "Standby", word, inputs.seen.use.free > 0)
    progress = _since_last(status)
    passed, period = inputs.now - progress.as_of_seconds, inputs.settings.interval_seconds
    is_outside = status.phase is PlanPhase.APPROVED or (status.phase is not None and status.phase.over)
    if is_outside and passed >= STANDBY_PERIODS * period:
        # the use of the standby pods since the last count; the next occurrence's score has it
        status = replace(status, progress=observe(progress, inputs.seen.use, inputs.now, counts=True))
    return PlanStep(status, due.want, max(due.free, standby))


def _standby(inputs: _StepInputs, status: PlanStatus) -> int:
    """Return for how many pods capacity is kept unused regardless of the forecast: 0 unless the plan is approved."""
    plan, phase = inputs.plan, status.phase or PlanPhase.PROPOSED
    undecided = phase in (PlanPhase.PROPOSED, PlanPhase.REJECTED) or not _still_approved(inputs, status)
    off = plan.suspended or plan.deleting or not inputs.settings.enabled
    if off or undecided or plan.realisation is not Realisation.RESERVATION:
        return 0
    return 0 if first_blocking_verdict(inputs.seen.guards) and not phase.holds else min(plan.standby, plan.count)


def _stop(inputs: _StepInputs, status: PlanStatus, window: Span) -> tuple[str, str] | None:
    """Return (reason, message) if the capacity has to be released now, otherwise None."""
    plan = inputs.plan
    forced = (
        (not inputs.settings.enabled, "SwitchedOff", "The setting plans.enabled is off."),
        (plan.deleting, "Deleted", "The plan is being deleted."),
        (not _still_approved(inputs, status), "Withdrawn", "The approval was withdrawn."),
        (_is_next_due(inputs, window), "Replaced", "The next occurrence of the plan replaces this one."),
    )
    stop_reason = next(((reason, message) for fails, reason, message in forced if fails), None)
    if stop_reason:
        return stop_reason
    forecast = inputs.seen.outlook
    if inputs.now >= window.end_seconds:
        stays_high = inputs.seen.use.missed > 0 or (forecast is not None and forecast.usual(inputs.now) > 0)
        extends = stays_high and inputs.now < window.end_seconds + plan.extend_by_seconds
        return None if extends else ("Ended", "The window is over.")
    settled = inputs.now - status.progress.changed_at_seconds >= CHANGE_INTERVAL_SECONDS
    if plan.source is WindowSource.FORECAST and settled and forecast is not None:
        begin = max(inputs.now, window.start_seconds)
        if forecast.covers(begin) and forecast.most(begin, window.end_seconds) == 0:
            return "DemandFell", "The forecast needs no more pods in the rest of the window."
    return None


def _is_next_due(inputs: _StepInputs, window: Span) -> bool:
    """Return whether the next occurrence is due; that of a forecast is due only after the present window."""
    rule, lead = inputs.plan.recurring, inputs.seen.lead_seconds
    if rule:
        following = schedule.current(rule, inputs.now, lead, window.end_seconds)
    elif inputs.now >= window.end_seconds:
        later = (peak.span for peak in inputs.plan.peaks if peak.span.start_seconds >= window.end_seconds)
        following = next(later, None)
    else:
        return False
    return following is not None and inputs.now >= following.start_seconds - lead


def _still_approved(inputs: _StepInputs, status: PlanStatus) -> bool:
    """Return whether the approval still holds: a person may withdraw it, but later back-tests do not."""
    approval, plan = inputs.plan.approval, inputs.plan
    if approval is None or not covers_occurrence(plan, approval, status):
        return plan.policy.auto
    return approval.decision is PlanDecision.APPROVED


def _demand(inputs: _StepInputs, window: Span, reserved_pods: int) -> int:
    """Return for how many pods capacity is wanted now: the forecast's or the present need, at most the plan's count.

    Without a forecast, as before a new manager's first run, what is reserved stays, and grows with the pods that wait.
    """
    plan, outlook = inputs.plan, inputs.seen.outlook
    allowed = plan.most_in(window)
    if plan.source is not WindowSource.FORECAST:
        return allowed
    begin, needed_pods = max(inputs.now, window.start_seconds), reserved_pods or allowed
    if outlook is not None and outlook.covers(begin):
        needed_pods = outlook.most(begin, begin + inputs.seen.lead_seconds + outlook.step_seconds)
    return min(allowed, max(needed_pods, inputs.seen.use.present + inputs.seen.use.missed))


def _step_after_release(inputs: _StepInputs, status: PlanStatus) -> PlanStep:
    """Release unused Reservations, and score the occurrence once none is left."""
    if inputs.seen.use.free > _standby(inputs, status):
        return PlanStep(status)
    failed = status.progress.most_reserved == 0 and status.count > 0
    return PlanStep(_add_score(inputs, replace(status, phase=PlanPhase.FAILED if failed else PlanPhase.SCORED)))


def _add_score(inputs: _StepInputs, status: PlanStatus) -> PlanStatus:
    """Return the status with the occurrence's score; the previous score moves to the history."""
    occurrence_score = score(replace(inputs.plan, status=status), inputs.now, inputs.seen.price_per_core_hour)
    history = (*((status.score,) if status.score else ()), *status.history)[: inputs.plan.history_limit]
    return replace(status, score=occurrence_score, history=history)


def _with_condition(
    inputs: _StepInputs, status: PlanStatus, kind: str, reason: str, message: str, true: bool = False
) -> PlanStatus:  # fmt: skip
    """Return the status with one condition set; its transition time changes only with its truth."""
    conditions = merge_conditions(status.conditions, (Condition(kind, str(true), reason, message),), inputs.now)
    return replace(status, conditions=tuple(sorted(conditions, key=lambda c: c.type)))


_STEPS: Final[dict[Stage, Callable[[_StepInputs, PlanStatus], PlanStep]]] = {
    Stage.BEFORE: _step_before_reservation,
    Stage.KEPT: _step_while_reserved,
    Stage.LEAVING: _step_after_release,
    Stage.OVER: lambda _, status: PlanStep(status),
}
