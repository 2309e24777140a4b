"""Plans of the cluster on the reservations pages: phases in words, bars, next step and timeline. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from cotenant.base import measures
from cotenant.base.identity import WorkloadRef
from cotenant.base.kubernetes.pod_identity import Condition
from cotenant.base.resource import Resource
from cotenant.dashboard.figures import display
from cotenant.dashboard.figures.gantt import Bar
from cotenant.dashboard.reservations.proposed_plans import WindowDemand, proposal_merit, ref_of
from cotenant.dashboard.sources.workload_story import Row
from cotenant.scheduler_ext.reservations.model import plan_scores
from cotenant.scheduler_ext.reservations.model.life_cycle import PLAN_STATES, PlanPhase
from cotenant.scheduler_ext.reservations.model.plan import (
    DecisionScope,
    PeakWindow,
    Plan,
    PlanDecision,
    Span,
    proposal_name,
)
from cotenant.scheduler_ext.reservations.model.plan_service import PlanHistoryEntry, PlanRef
from cotenant.scheduler_ext.reservations.model.plan_states import (
    available_pods,
    by_need,
    decision_text,
    phase_of,
    rank_of,
    state_of,
    used_reservations,
    wanted_pods,
)
from cotenant.scheduler_ext.reservations.plans.schedule import decision_in_force

PLAN_KIND: Final = "ReservationPlan"
"""Stands in the URL's `open` for a plan, in the place of a workload's kind."""
SOON_SECONDS: Final = 900.0
"""Time before its reservation from which on a plan counts as moving (about to change)."""


@dataclass(frozen=True, slots=True)
class PlanListEntry:
    """One workload in the list: its row of PLANS (the forecast), and its plans in the cluster."""

    workload: WorkloadRef
    row: Row | None
    plans: tuple[Plan, ...]


@dataclass(frozen=True, slots=True)
class TimelineEvent:
    """An event on a plan's timeline: Unix time (None if unknown), title, details, and whether it has happened."""

    seconds: float | None
    title: str
    words: str = ""
    done: bool = False


def ref_to(plan: Plan) -> PlanRef:
    """Return the plan's namespace and name, by which the `PlanService` finds it."""
    return PlanRef(plan.namespace, plan.name)


def window_of(plan: Plan) -> Span | None:
    """Return the window of the present occurrence; without one, the window in the plan's spec."""
    return plan.status.window or plan.window


def more_windows(plan: Plan) -> tuple[PeakWindow, ...]:
    """Return the forecast's windows other than the present occurrence."""
    return tuple(peak for peak in plan.windows if peak.span != window_of(plan))


def condition(plan: Plan, kind: str) -> Condition | None:
    """Return the plan's condition of a type; None if it has none."""
    return next((condition for condition in plan.status.conditions if condition.type == kind), None)


def bar_label(plan: Plan) -> str:
    """Return the label beside the plan's bar: its phase, then pods available and used, its score, or why it failed."""
    phase = phase_of(plan)
    if phase.holds:
        available = f"{available_pods(plan)} of {wanted_pods(plan)} available"
        return f"{phase.value.lower()}: {available}, {used_reservations(plan)} used"
    if phase is PlanPhase.SCORED and plan.status.score:
        return f"over: {plan_scores.short_summary(plan.status.score)}"
    if phase in (PlanPhase.FAILED, PlanPhase.MISSED):
        reserved = condition(plan, "Reserved")
        return f"{phase.value.lower()}: {reserved.message if reserved and reserved.message else 'no capacity in time'}"
    return phase.value.lower()


def bars(plan: Plan, windows: Sequence[Span]) -> list[Bar]:
    """Return a bar for the present occurrence, in its phase, and one for each later one, approved or proposed."""
    present = window_of(plan)
    name, state = f"{plan.namespace}/{plan.owner.name}", state_of(plan).bar
    begin = int(plan.status.reserve_at_seconds)
    rank = rank_of(plan)
    present_bars = [_bar(name, present, wanted_pods(plan), state, bar_label(plan), begin)] if present else []
    approved = is_series_approved(plan)
    source = "by its schedule" if plan.recurring else "by the forecast"
    later = ("approved", "approved with every occurrence") if approved else ("proposed", source)
    later_bars = [
        _bar(name, window, plan.most_in(window), *later) for window in windows if present is None or window > present
    ]
    return [replace(bar, rank=rank) for bar in (*present_bars, *later_bars)]


def _bar(name: str, window: Span, pods: int, state: str, note: str, reserve_at_seconds: int = 0) -> Bar:
    start, end = int(window.start_seconds), int(window.end_seconds)
    return Bar(name, start, end, pods, phase=state, said=note, reserve_at_seconds=reserve_at_seconds)


def is_series_approved(plan: Plan) -> bool:
    """Return whether the plan is approved for all occurrences, not only for the next one."""
    approval = plan.approval
    chosen = (PlanDecision.APPROVED, DecisionScope.SERIES)
    return approval is not None and (approval.decision, approval.scope) == chosen


def wishes(plan: Plan, windows: Sequence[Span], resource: Resource) -> list[WindowDemand]:
    """Return the capacity that a plan has yet to reserve in each window, less what is reserved; empty if suspended."""
    amount, present, phase = plan.per_pod.get(resource.value, 0), window_of(plan), phase_of(plan)
    if plan.suspended:
        return []
    demands = []
    if present and not phase.over and phase not in (PlanPhase.REJECTED, PlanPhase.RELEASED):
        missing = max(0, wanted_pods(plan) - available_pods(plan))
        demands.append(WindowDemand(present.start_seconds, present.end_seconds, missing * amount))
    later = [window for window in windows if present is None or window > present]
    return demands + [
        WindowDemand(window.start_seconds, window.end_seconds, plan.most_in(window) * amount) for window in later
    ]


def merge_entries(rows: Sequence[Row], plans: Sequence[Plan]) -> list[PlanListEntry]:
    """Return one entry per workload in PLAN_STATES' order; proposed peaks without a plan follow proposed plans."""
    by_ref = {ref_of(row): row for row in rows}
    grouped: dict[WorkloadRef, list[Plan]] = {}
    for plan in by_need(plans):
        grouped.setdefault(plan.workload, []).append(plan)
    entries = [PlanListEntry(ref, by_ref.get(ref), tuple(group)) for ref, group in grouped.items()]
    bare = [
        PlanListEntry(ref, row, ()) for ref, row in by_ref.items() if ref not in grouped and row["start"] is not None
    ]
    entries += [entry for entry in bare if entry.row and str(entry.row["reason"]) == "ok"]
    return sorted(entries, key=_place)


def _place(entry: PlanListEntry) -> tuple[int, bool, float]:
    phase = phase_of(entry.plans[0]) if entry.plans else PlanPhase.PROPOSED
    merit = proposal_merit(entry.row) if phase is PlanPhase.PROPOSED else 0.0
    return list(PLAN_STATES).index(phase), not entry.plans, -merit


def rows_without_plan(rows: Sequence[Row], plans: Sequence[Plan]) -> list[Row]:
    """Return the rows whose plan is not in the cluster; the others are drawn and counted from the cluster's plans."""
    written = {(plan.namespace, plan.name) for plan in plans}
    return [row for row in rows if (str(row["namespace"]), proposal_name(ref_of(row))) not in written]


def reserve_words(plan: Plan, now_seconds: float) -> str:
    """Return a sentence that says when the plan's capacity is reserved."""
    window, status = window_of(plan), plan.status
    capacity = f"Capacity for {display.counted(wanted_pods(plan), 'pod')}"
    if window is None:
        return f"{capacity} is reserved once the plan has a future window."
    if not status.reserve_at_seconds:
        before = display.moment(window.start_seconds)
        return f"{capacity} is reserved before {before}; the manager will set the exact time shortly."
    start, lead = display.clock(window.start_seconds), _lead(plan)
    if status.reserve_at_seconds <= now_seconds:
        is_approved = phase_of(plan) is PlanPhase.APPROVED or phase_of(plan).holds
        when = "now" if is_approved else "as soon as the plan is approved"
        return f"{capacity} is reserved {when}: start {start} UTC − lead {lead} has passed."
    wait = display.duration(measures.length_seconds(now_seconds, status.reserve_at_seconds))
    return f"{capacity} will be reserved at {display.moment(status.reserve_at_seconds)}, in {wait}."


def next_step(plan: Plan, now_seconds: float) -> str:
    """Return what happens next to the plan, or its result, in a sentence or two."""
    phase, status = phase_of(plan), plan.status
    reserved, approved = condition(plan, "Reserved"), condition(plan, "Approved")
    late = phase is not PlanPhase.APPROVED or status.reserve_at_seconds <= now_seconds
    why = reserved.message if reserved and reserved.status != "True" and late else ""
    if phase in (PlanPhase.PROPOSED, PlanPhase.APPROVED):
        asks = _asks(plan, approved) if phase is PlanPhase.PROPOSED else ""
        when = reserve_words(plan, now_seconds) if window_of(plan) else ""
        return " ".join(part for part in (asks, when, why if phase is PlanPhase.APPROVED else "") if part)
    if phase.holds:
        capacity = f"Capacity for {available_pods(plan)} of {display.counted(wanted_pods(plan), 'pod')} is reserved"
        stands = f"{capacity}; pods have used {used_reservations(plan)} Reservations."
        return f"{stands} {why}".strip()
    sentences = {
        PlanPhase.RELEASED: f"Unused capacity is released. {reserved.message if reserved else ''}".strip(),
        PlanPhase.REJECTED: (approved.message if approved else "") or "The plan was rejected: nothing is reserved.",
        PlanPhase.SCORED: f"The plan is over. {plan_scores.summary(status.score) if status.score else ''}".strip(),
    }
    return sentences.get(phase, why or "No capacity was available in time.")


def _asks(plan: Plan, approved: Condition | None) -> str:
    """Return why the plan is not approved yet."""
    decision = decision_in_force(plan)
    if decision and decision.by:
        return f"The plan was {decision_text(decision)}: the manager acts on this in its next run."
    if approved and approved.reason == "PolicyNotMet":
        return f"The plan's policy does not approve the plan: {approved.message}"
    return "Waiting for approval." if not plan.policy.auto else "The plan's auto-approval policy is being evaluated."


def any_plan_moving(plans: Sequence[Plan], now_seconds: float) -> bool:
    """Return whether any plan holds or releases capacity, has no phase yet, or reserves within SOON_SECONDS."""

    def moves(plan: Plan) -> bool:
        phase, status = phase_of(plan), plan.status
        if plan.status.phase is None or phase.holds or phase is PlanPhase.RELEASED:
            return True
        left_seconds = measures.length_seconds(now_seconds, status.reserve_at_seconds)
        return phase is PlanPhase.APPROVED and left_seconds < SOON_SECONDS

    return any(moves(plan) for plan in plans)


def timeline(plan: Plan, entries: Sequence[PlanHistoryEntry], now_seconds: float) -> list[TimelineEvent]:
    """Return people's decisions on a plan and the events of its occurrence, sorted by time; unknown times are last."""
    status, window = plan.status, window_of(plan)
    events = [
        TimelineEvent(d.seconds, d.event.value.removeprefix("plan-"), f"{d.actor}: {d.words}", True) for d in entries
    ]
    if window is None:
        return sorted(events, key=lambda m: m.seconds or 0.0)
    ends = status.score is not None and status.score.start_seconds == window.start_seconds
    there_at = status.progress.available_at_seconds
    holds = bool(status.phase and (status.phase.holds or status.progress.most_reserved or there_at))
    lead_words = f"start − lead of {_lead(plan)}" if plan.status.lead_seconds else ""
    events.append(TimelineEvent(status.reserve_at_seconds or None, "reservations are requested", lead_words, holds))
    phase = phase_of(plan)
    if there_at is not None or not phase.over:
        text = f"for {available_pods(plan)} of {display.counted(wanted_pods(plan), 'pod')}" if phase.holds else ""
        events.append(TimelineEvent(there_at, "reserved capacity is available", text, there_at is not None))
    events += [
        TimelineEvent(window.start_seconds, "the window begins", "", now_seconds >= window.start_seconds),
        TimelineEvent(window.end_seconds, "the window ends", "", now_seconds >= window.end_seconds),
    ]
    if status.score and ends:
        events.append(TimelineEvent(status.score.end_seconds, "scored", plan_scores.summary(status.score), True))
    return sorted(events, key=lambda m: (m.seconds is None, m.seconds or 0.0))


def _lead(plan: Plan) -> str:
    """Return the lead rounded up to minutes, because times are rounded down: start - lead is then the minute shown."""
    return display.duration(60 * math.ceil(plan.status.lead_seconds / 60))


def plans_mark(plans: Sequence[Plan], now_seconds: float) -> str:
    """Return a string that differs whenever the pages would show something else, so they are redrawn only then."""
    parts: list[Any] = [
        (p.namespace, p.name, p.generation, p.status.phase, p.status.window, p.status.count, p.status.units,
         p.status.reserve_at_seconds, [c.message for c in p.status.conditions], p.status.score,
         p.status.progress.most_used, p.status.progress.available_at_seconds)
        for p in plans
    ]  # fmt: skip
    return f"{hash(tuple(map(str, parts))):x}-{int(now_seconds // 60)}"
