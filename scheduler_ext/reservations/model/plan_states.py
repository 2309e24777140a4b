"""The phases of plans and the counts of plans by phase, as pages, REST and commands show them. Pure.

A count names what it counts: plans, windows or workloads. A plan has one phase, whatever its number of windows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cotenant.base.text import counted, moment, visible
from cotenant.scheduler_ext.reservations.model.life_cycle import PLAN_STATES, Phase, PlanGroup, PlanPhase, PlanState
from cotenant.scheduler_ext.reservations.model.plan import Approval, Plan

_ORDER: Final = tuple(PLAN_STATES)
_THERE: Final = (Phase.AVAILABLE, Phase.SUCCEEDED)


def decision_text(decision: Approval) -> str:
    """Return who decided and when, as text: "approved by ana, Thu 12 Nov 21:54 UTC"."""
    when = f", {moment(decision.at_seconds)}" if decision.at_seconds else ""
    return f"{decision.decision.value.lower()} by {visible(decision.by) or 'somebody'}{when}"


def phase_of(plan: Plan) -> PlanPhase:
    """Return a plan's phase; Proposed if the manager has not processed the plan yet."""
    return plan.status.phase or PlanPhase.PROPOSED


def state_of(plan: Plan) -> PlanState:
    """Return the words, group and colours with which a plan's phase is shown."""
    return PLAN_STATES[phase_of(plan)]


def rank_of(plan: Plan) -> int:
    """Return the position of a plan's phase in the order of lists and charts, from 0."""
    return _ORDER.index(phase_of(plan))


def by_need(plans: Iterable[Plan]) -> list[Plan]:
    """Sort plans for lists and charts: by the order of their phases in PLAN_STATES, then by window and name."""

    def key(plan: Plan) -> tuple[int, float, str, str]:
        window = plan.status.window or plan.window
        begin = window.start_seconds if window else float("inf")
        return rank_of(plan), begin, plan.namespace, plan.name

    return sorted(plans, key=key)


def available_pods(plan: Plan) -> int:
    """Return for how many of the wanted pods capacity is reserved or used; at most `wanted_pods`."""
    return min(sum(unit.phase in _THERE for unit in plan.status.units), wanted_pods(plan))


def used_reservations(plan: Plan) -> int:
    """Return how many Reservations of the present occurrence have been used by a pod."""
    return sum(bool(unit.used_by) for unit in plan.status.units)


def wanted_pods(plan: Plan) -> int:
    """Return for how many pods the present occurrence has reserved capacity; until then, the most that it will."""
    phase, window = plan.status.phase, plan.status.window or plan.window
    in_force = phase is not None and (phase.holds or phase.over)
    if in_force and plan.status.count:
        return plan.status.count
    return plan.most_in(window) if window else plan.count


@dataclass(frozen=True, slots=True)
class PlanCounts:
    """The number of plans, of their windows, and of plans by phase in the order of PLAN_STATES without empty phases."""

    plans: int
    windows: int
    by_phase: Mapping[PlanPhase, int]

    def of(self, group: PlanGroup) -> int:
        """Return the number of plans in one group of phases."""
        return sum(count for phase, count in self.by_phase.items() if PLAN_STATES[phase].group is group)

    @property
    def words(self) -> str:
        """The counts in one line, such as "25 plans: 1 reserved in the window, 24 waiting for approval"."""
        parts = ", ".join(f"{count:,} {PLAN_STATES[phase].words}" for phase, count in self.by_phase.items())
        number = counted(self.plans, "plan")
        return f"{number}: {parts}" if parts else number


def counts(plans: Sequence[Plan]) -> PlanCounts:
    """Count plans by phase, and their windows; a schedule counts as one window, the next one."""
    number = Counter(phase_of(plan) for plan in plans)
    windows = sum(len(plan.peaks) or int(plan.recurring is not None) for plan in plans)
    return PlanCounts(len(plans), windows, {phase: number[phase] for phase in _ORDER if number[phase]})
