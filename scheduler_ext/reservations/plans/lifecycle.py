"""The life of an occurrence: what phase it is in and for how many pods capacity is wanted now. Pure.

    Proposed --approval--> Approved --start - lead--> Reserved --start--> Held --end--> Extended
        |                     |                          |                  |               |
        v                     v deadline passed          v  demand fell, approval withdrawn v  no more demand
     Rejected               Missed                      Released --nothing left--> Scored, or Failed

Capacity is wanted only between Approved and Released, for as many pods as the forecast and the present ask for less
those that run: what a pod leaves is reserved again while it is wanted. A plan's standby alone is free at any time while
its approval holds. The next occurrence begins when this one is over; one that would begin while this one is held ends
it (Replace).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from cotenant.base.kubernetes.moments import moment
from cotenant.base.text import counted
from cotenant.scheduler_ext.reservations.model.plan import (
    Expected,
    OccurrenceProgress,
    Plan,
    PlanCondition,
    PlanDecision,
    PlanPhase,
    PlanReservation,
    PlanStatus,
    Realisation,
    Span,
    WindowSource,
)
from cotenant.scheduler_ext.reservations.model.plan_service import PlanGuardResult
from cotenant.scheduler_ext.reservations.model.settings import PlanSettings
from cotenant.scheduler_ext.reservations.plans import schedule
from cotenant.scheduler_ext.reservations.plans.decision import covers_occurrence
from cotenant.scheduler_ext.reservations.plans.guards import first_blocking_verdict
from cotenant.scheduler_ext.reservations.plans.hold import CHANGE_INTERVAL_SECONDS, ReservedPods, reserve_pods
from cotenant.scheduler_ext.reservations.plans.lead import Lead
from cotenant.scheduler_ext.reservations.plans.score import ReservationUse, observe, score
from cotenant.scheduler_ext.reservations.plans.size import Counts, most

APPROVED: Final = "Approved"
RESERVED: Final = "Reserved"
NO_DEMAND: Final = "NoDemand"
TAKEN_OVER: Final = "TakenOver"
OBSERVED_SHARE: Final = 0.5
"""Share of the control period within which nothing is counted anew: each count is a write of the status."""
STANDBY_PERIODS: Final = 10
"""Control periods between two counts outside the windows."""


@dataclass(frozen=True, slots=True, eq=False)
class PodForecast:
    """Forecast of the pods that are needed beyond those that run anyway, slot by slot.

    wanted: at the plan's quantile; median: at 0.5, what says whether demand is still high.
    """

    start_seconds: float
    step_seconds: float
    wanted: Counts
    median: Counts

    @property
    def end_seconds(self) -> float:
        """End of the last slot."""
        return self.start_seconds + self.step_seconds * len(self.wanted)

    def covers(self, at_seconds: float) -> bool:
        """Return whether the forecast covers a moment, Unix seconds."""
        return self.start_seconds <= at_seconds < self.end_seconds

    def most(self, begin_seconds: float, end_seconds: float) -> int:
        """Most pods wanted between two moments, Unix seconds."""
        return most(self.wanted, self.start_seconds, self.step_seconds, begin_seconds, end_seconds)

    def usual(self, at_seconds: float) -> int:
        """Pods that are needed by the median at one moment."""
        return most(self.median, self.start_seconds, self.step_seconds, at_seconds, at_seconds + 1)


@dataclass(frozen=True, slots=True)
class PlanObservation:
    """The facts that a decision uses. units: the present occurrence's; expected: of the back-test.

    taken_over: in words, that somebody has set another floor than the plan did; "" where nobody has.
    size_note: what the capacity of a pod may lack, as a sentence; "" if nothing.
    """

    use: ReservationUse
    lead: Lead
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
    """The status to write, pods that capacity is wanted for, those that run included, and for how many it is free.

    free 0: everything is given back that is not used. It is never more than what was approved.
    """

    status: PlanStatus
    want: int = 0
    free: int = 0


@dataclass(frozen=True, slots=True)
class _Turn:
    plan: Plan
    seen: PlanObservation
    now: float
    settings: PlanSettings


def step(plan: Plan, observation: PlanObservation, now_seconds: float, settings: PlanSettings) -> PlanStep:
    """One step of a plan's life cycle. Idempotent: the same input gives the same status, but for the elapsed time."""
    turn = _Turn(plan, observation, now_seconds, settings)
    status = plan.status
    if status.phase is None or status.phase.over:
        status = _propose_next_occurrence(turn, status)
    status = _with_expectation(turn, status)
    while True:
        phase = status.phase or PlanPhase.PROPOSED
        next_step = _PHASES[phase](turn, status) if phase in _PHASES else PlanStep(status)
        if next_step.status.phase == phase:
            return _with_standby(turn, next_step)
        status = next_step.status


def next_window(plan: Plan, now_seconds: float, lead_seconds: float) -> Span | None:
    """The present occurrence; None when there is none (any more)."""
    done = plan.status.last_end_seconds
    if plan.suspended:
        return None
    if plan.recurring:
        return schedule.current(plan.recurring, now_seconds, lead_seconds, done)
    spans = (peak.span for peak in plan.peaks)
    return next((s for s in spans if s.start_seconds >= done and s.end_seconds > now_seconds), None)


def last_chance(plan: Plan, window: Span) -> float:
    """Until when an occurrence may still be reserved."""
    return schedule.last_chance(plan.recurring, window) if plan.recurring else window.end_seconds


def _propose_next_occurrence(turn: _Turn, status: PlanStatus) -> PlanStatus:
    """The next occurrence as a proposal; the same status when there is none."""
    window = next_window(turn.plan, turn.now, turn.seen.lead.seconds)
    if window is None:
        return status if status.phase else replace(status, phase=PlanPhase.PROPOSED)
    fresh = replace(status, phase=PlanPhase.PROPOSED, window=window, units=(), progress=_since_last(status))
    return replace(fresh, count=turn.plan.most_in(window))


def _since_last(status: PlanStatus) -> OccurrenceProgress:
    """Return the progress counted since the last score, of standby alone."""
    counted = status.progress.as_of_seconds > status.last_end_seconds
    return status.progress if counted else OccurrenceProgress()


def _with_expectation(turn: _Turn, status: PlanStatus) -> PlanStatus:
    """Return the status with the parts that are shown in any case: lead, expectation, units."""
    expected, digest = turn.seen.expected, turn.seen.settings_digest
    status = replace(
        status,
        units=turn.seen.units,
        expected=expected or status.expected,
        settings_digest=digest if expected else status.settings_digest,
    )
    if status.window is None or status.phase is None or status.phase.holds or status.phase.over:
        return status
    lead = turn.seen.lead.seconds
    return replace(status, lead_seconds=lead, reserve_at_seconds=status.window.start_seconds - lead)


def _step_before_reservation(turn: _Turn, status: PlanStatus) -> PlanStep:
    """Proposed, Approved, Rejected: capacity is not wanted yet."""
    status = _update_window(turn, status)
    window = status.window
    if window is None:
        return PlanStep(_with_condition(turn, status, APPROVED, "NoOccurrence", "There is no further occurrence."))
    decided = _decide_occurrence(turn, status)
    status = replace(status, phase=decided.phase, count=turn.plan.most_in(window))
    status = _with_condition(
        turn, status, APPROVED, decided.reason, decided.message, decided.phase is PlanPhase.APPROVED
    )
    if turn.now >= last_chance(turn.plan, window):
        return _given_up(turn, status, window)
    if decided.phase is not PlanPhase.APPROVED or turn.now < status.reserve_at_seconds:
        return PlanStep(status)
    blocked = first_blocking_verdict(turn.seen.guards)
    if blocked:
        return PlanStep(_with_condition(turn, status, RESERVED, blocked.reason, blocked.message))
    if _demand(turn, window, 0) == 0:
        return PlanStep(
            _with_condition(turn, status, RESERVED, NO_DEMAND, "The forecast no longer asks for more pods.")
        )
    return PlanStep(replace(status, phase=PlanPhase.RESERVED))


def _given_up(turn: _Turn, status: PlanStatus, window: Span) -> PlanStep:
    """The window passed without reserved capacity: Missed when it was approved, else the next one is proposed."""
    if status.phase is PlanPhase.APPROVED:
        reason, message = _why_missed(status)
        ended = replace(status, phase=PlanPhase.SCORED if reason == NO_DEMAND else PlanPhase.MISSED)
        return PlanStep(_add_score(turn, _with_condition(turn, ended, RESERVED, reason, message)))
    following = next_window(turn.plan, turn.now, turn.seen.lead.seconds)
    if following is None or following == window:
        return PlanStep(status)
    return _step_before_reservation(turn, replace(status, window=following, phase=PlanPhase.PROPOSED))


def _why_missed(status: PlanStatus) -> tuple[str, str]:
    condition = next((c for c in status.conditions if c.type == RESERVED and c.message), None)
    return (
        (condition.reason, condition.message)
        if condition
        else ("Missed", "The deadline passed before capacity was reserved.")
    )


def _update_window(turn: _Turn, status: PlanStatus) -> PlanStatus:
    """The window as the spec says it now: until capacity is reserved, an edit or the forecast may move it."""
    window = next_window(turn.plan, turn.now, turn.seen.lead.seconds)
    if window is None or window == status.window:
        return status
    passed = status.window is not None and turn.now >= status.window.end_seconds
    if status.phase is PlanPhase.APPROVED and passed:
        return status  # it is missed first; the next look takes the next one
    lead = turn.seen.lead.seconds
    return replace(status, window=window, lead_seconds=lead, reserve_at_seconds=window.start_seconds - lead)


@dataclass(frozen=True, slots=True)
class _Decided:
    phase: PlanPhase
    reason: str
    message: str


def _decide_occurrence(turn: _Turn, status: PlanStatus) -> _Decided:
    """Return the decision on the occurrence, proposed, approved or rejected.

    A person's decision comes first, then the plan's policy. A policy approves only while nothing speaks against it
    (`_against`); else the plan waits for a person and gives the reason.
    """
    approval = turn.plan.approval
    if approval and covers_occurrence(turn.plan, approval, status):
        by = f"by {approval.by}" if approval.by else "by somebody"
        word = f"{approval.decision.value} {by}{': ' + approval.reason if approval.reason else '.'}"
        if approval.decision is PlanDecision.APPROVED:
            return _Decided(PlanPhase.APPROVED, "ByPerson", word)
        return _Decided(PlanPhase.REJECTED, "Rejected", word)
    if not turn.plan.policy.auto:
        return _Decided(PlanPhase.PROPOSED, "Waiting", "Waiting for approval.")
    against = _against(turn, status.expected)
    if against:
        return _Decided(PlanPhase.PROPOSED, "PolicyNotMet", against)
    return _Decided(PlanPhase.APPROVED, "ByPolicy", "The plan's policy approves it.")


def _against(turn: _Turn, expected: Expected | None) -> str:
    """Why the policy does not approve; empty when it does."""
    policy = turn.plan.policy
    blocked = first_blocking_verdict(turn.seen.guards)
    if blocked:
        return f"{blocked.guard}: {blocked.message}"
    limits = (policy.minimum_hit_ratio, policy.maximum_idle_core_hours, policy.maximum_cost)
    if expected is None:
        has_limits = any(limit is not None for limit in limits)
        return "The policy asks for figures of a back-test, and there is none yet." if has_limits else ""
    least, idle, cost = limits
    checks = (
        (
            least is not None and expected.hit_ratio < least,
            f"Expected hit ratio {expected.hit_ratio:.2f}, {least} asked.",
        ),
        (
            idle is not None and expected.idle_core_hours > idle,
            f"{expected.idle_core_hours:.1f} idle core-hours expected, {idle} allowed.",
        ),
        (cost is not None and expected.cost > cost, f"Expected cost {expected.cost:.2f}, {cost} allowed."),
    )
    return next((word for fails, word in checks if fails), "")


def _step_while_reserved(turn: _Turn, status: PlanStatus) -> PlanStep:
    """Reserved, Held, Extended: capacity is kept."""
    window = status.window
    if window is None:
        return PlanStep(replace(status, phase=PlanPhase.RELEASED))
    started = turn.now >= window.start_seconds
    stop = _stop(turn, status, window)
    ready_first = turn.seen.use.complete and status.progress.available_at_seconds is None
    due = turn.now - status.progress.as_of_seconds >= OBSERVED_SHARE * turn.settings.interval_seconds
    if stop or due or ready_first:
        status = replace(status, progress=observe(status.progress, turn.seen.use, turn.now, started))
    if stop:
        return PlanStep(_with_condition(turn, replace(status, phase=PlanPhase.RELEASED), RESERVED, *stop))
    first = not status.progress.changed_at_seconds
    current = ReservedPods(0) if first else ReservedPods(status.count, status.progress.changed_at_seconds)
    reserved_now = reserve_pods(current, _demand(turn, window, status.count), turn.now)
    progress = replace(status.progress, changed_at_seconds=reserved_now.changed_at_seconds)
    phase = PlanPhase.RESERVED if not started else PlanPhase.IN_WINDOW
    if turn.now >= window.end_seconds:
        phase = PlanPhase.EXTENDED
    ready_pods = turn.seen.use.free + turn.seen.use.present
    word = (
        f"Capacity for {ready_pods} of {counted(reserved_now.count, 'pod')} is reserved. {turn.seen.size_note}".strip()
    )
    status = replace(status, phase=phase, count=reserved_now.count, progress=progress)
    if left_alone := _step_after_take_over(turn, status, first):
        return left_alone
    status = _with_condition(
        turn, status, RESERVED, "Held" if ready_pods >= reserved_now.count else "Reserving", word, ready_pods > 0
    )
    return PlanStep(status, reserved_now.count, max(0, reserved_now.count - turn.seen.use.present))


def _step_after_take_over(turn: _Turn, status: PlanStatus, first: bool) -> PlanStep | None:
    """The step of a floor that somebody else has set: nothing more is wanted in this window; None while nobody has.

    The status says so before the mark is taken away, so that a process that ends in between raises nothing again.
    first: whether nothing was reserved in this window before.
    """
    earlier = [c for c in turn.plan.status.conditions if c.type == RESERVED and c.reason == TAKEN_OVER and not first]
    if not earlier and not turn.seen.taken_over:
        return None
    words = earlier[0].message if earlier else f"{turn.seen.taken_over} It is left alone until the next window."
    status = _with_condition(turn, status, RESERVED, TAKEN_OVER, words)
    return PlanStep(status, 0 if earlier else status.count)


def _with_standby(turn: _Turn, due: PlanStep) -> PlanStep:
    """The step with the plan's standby free as well; outside the windows it is counted here."""
    standby, status = _standby(turn, due.status), due.status
    if not standby:
        return due
    if status.phase is PlanPhase.APPROVED and turn.now < status.reserve_at_seconds:
        word = f"Capacity for {standby} pods is kept ready at any time. {turn.seen.size_note}".strip()
        status = _with_condition(turn, status, RESERVED, "Standby", word, turn.seen.use.free > 0)
    if status.phase is PlanPhase.APPROVED or (status.phase and status.phase.over):
        status = _count_outside_windows(turn, status)
    return PlanStep(status, due.want, max(due.free, standby))


def _count_outside_windows(turn: _Turn, status: PlanStatus) -> PlanStatus:
    """Return the status with the use of the standby pods since the last count added, for a time outside the windows.

    Counted once in STANDBY_PERIODS intervals; before, the status is returned as it is. The next occurrence's score has
    it.
    """
    progress = _since_last(status)
    if turn.now - progress.as_of_seconds < STANDBY_PERIODS * turn.settings.interval_seconds:
        return status
    return replace(status, progress=observe(progress, turn.seen.use, turn.now, counts=True))


def _standby(turn: _Turn, status: PlanStatus) -> int:
    """Pods that capacity is free for whatever the forecast says: the plan's, while its approval holds."""
    plan, phase = turn.plan, status.phase or PlanPhase.PROPOSED
    undecided = phase in (PlanPhase.PROPOSED, PlanPhase.REJECTED) or not _still_approved(turn, status)
    off = plan.suspended or plan.deleting or not turn.settings.enabled
    if off or undecided or plan.realisation is not Realisation.RESERVATION:
        return 0
    return 0 if first_blocking_verdict(turn.seen.guards) and not phase.holds else min(plan.standby, plan.count)


def _stop(turn: _Turn, status: PlanStatus, window: Span) -> tuple[str, str] | None:
    """(reason, message) when the reservation has to be released now."""
    plan = turn.plan
    forced = (
        (not turn.settings.enabled, "SwitchedOff", "The setting plans.enabled is off."),
        (plan.deleting, "Deleted", "The plan is being deleted."),
        (not _still_approved(turn, status), "Withdrawn", "The approval was withdrawn."),
        (_is_next_due(turn, window), "Replaced", "The next occurrence takes its place."),
    )
    stop_reason = next(((reason, message) for fails, reason, message in forced if fails), None)
    if stop_reason:
        return stop_reason
    if turn.now >= window.end_seconds:
        return None if _extends(turn, window) else ("Ended", "The window is over.")
    if plan.source is WindowSource.FORECAST and _has_demand_fallen(turn, status, window):
        return "DemandFell", "The forecast no longer asks for more pods in the rest of the window."
    return None


def _is_next_due(turn: _Turn, window: Span) -> bool:
    """Return whether the next occurrence is due.

    An occurrence of a schedule may be due at any time, of a forecast once this window is over.
    """
    rule, lead = turn.plan.recurring, turn.seen.lead.seconds
    if rule:
        following = schedule.current(rule, turn.now, lead, window.end_seconds)
    elif turn.now >= window.end_seconds:
        later = (peak.span for peak in turn.plan.peaks if peak.span.start_seconds >= window.end_seconds)
        following = next(later, None)
    else:
        return False
    return following is not None and turn.now >= following.start_seconds - lead


def _still_approved(turn: _Turn, status: PlanStatus) -> bool:
    """Return whether the plan is still approved.

    A person may withdraw an approval; the policy's stays, whatever later back-tests show.
    """
    approval, plan = turn.plan.approval, turn.plan
    if approval is None or not covers_occurrence(plan, approval, status):
        return plan.policy.auto
    return approval.decision is PlanDecision.APPROVED


def _extends(turn: _Turn, window: Span) -> bool:
    """Return whether demand stays high beyond the window, within what the plan allows."""
    if turn.now >= window.end_seconds + turn.plan.extend_by_seconds:
        return False
    outlook = turn.seen.outlook
    return turn.seen.use.missed > 0 or (outlook is not None and outlook.usual(turn.now) > 0)


def _has_demand_fallen(turn: _Turn, status: PlanStatus, window: Span) -> bool:
    settled = turn.now - status.progress.changed_at_seconds >= CHANGE_INTERVAL_SECONDS
    outlook = turn.seen.outlook
    begin = max(turn.now, window.start_seconds)
    return settled and outlook is not None and outlook.covers(begin) and outlook.most(begin, window.end_seconds) == 0


def _demand(turn: _Turn, window: Span, reserved_pods: int) -> int:
    """Pods that capacity is wanted for now: a forecast plan's follow forecast and present, up to its count."""
    plan, outlook = turn.plan, turn.seen.outlook
    allowed = plan.most_in(window)
    if plan.source is not WindowSource.FORECAST or outlook is None:
        return allowed
    begin = max(turn.now, window.start_seconds)
    if not outlook.covers(begin):
        return reserved_pods or allowed
    present = turn.seen.use.present + turn.seen.use.missed
    return min(allowed, max(outlook.most(begin, begin + turn.seen.lead.seconds + outlook.step_seconds), present))


def _step_after_release(turn: _Turn, status: PlanStatus) -> PlanStep:
    """Release free reservations; close the account once none is left."""
    if turn.seen.use.free > _standby(turn, status):
        return PlanStep(status)
    failed = status.progress.most_reserved == 0 and status.count > 0
    return PlanStep(_add_score(turn, replace(status, phase=PlanPhase.FAILED if failed else PlanPhase.SCORED)))


def _add_score(turn: _Turn, status: PlanStatus) -> PlanStatus:
    """The status with the occurrence's score, the one before in the history."""
    occurrence_score = score(replace(turn.plan, status=status), turn.now, turn.seen.price_per_core_hour)
    history = (*((status.score,) if status.score else ()), *status.history)[: turn.plan.history_limit]
    return replace(status, score=occurrence_score, history=history)


def _with_condition(
    turn: _Turn, status: PlanStatus, kind: str, reason: str, message: str, true: bool = False
) -> PlanStatus:  # fmt: skip
    """The status with one condition set; its time changes only with its truth."""
    before = next((c for c in status.conditions if c.type == kind), None)
    word = str(true)
    since = before.since if before and before.status == word and before.since else moment(turn.now)
    others = tuple(c for c in status.conditions if c.type != kind)
    conditions = (*others, PlanCondition(kind, word, reason, message, since))
    return replace(status, conditions=tuple(sorted(conditions, key=lambda c: c.type)))


_PHASES: Final[dict[PlanPhase, Callable[[_Turn, PlanStatus], PlanStep]]] = {
    PlanPhase.PROPOSED: _step_before_reservation,
    PlanPhase.APPROVED: _step_before_reservation,
    PlanPhase.REJECTED: _step_before_reservation,
    PlanPhase.RESERVED: _step_while_reserved,
    PlanPhase.IN_WINDOW: _step_while_reserved,
    PlanPhase.EXTENDED: _step_while_reserved,
    PlanPhase.RELEASED: _step_after_release,
}
