"""Figures about a plan's past occurrences, and sentences with them for pages, REST and commands. Pure.

Coverage comes first: it says whether pods found capacity. The hit ratio says how much of the reserved capacity was
used; it is near 100 % for a plan that reserved almost nothing, so it is never shown without the coverage.

The report of an occurrence has what was expected, what happened, and what would have happened without the plan. A
figure that was not recorded is not estimated: the report says why it is missing.
"""

from __future__ import annotations

from dataclasses import dataclass

from cotenant.base.text import counted, percent
from cotenant.scheduler_ext.reservations.model.plan import Plan, Score, Span


def hit_ratio(used: float, reserved: float) -> float:
    """Return the used share of the reserved pod-time (both in the same unit); 0 if nothing was reserved."""
    return used / reserved if reserved > 0 else 0.0


def coverage(used: float, needed: float) -> float:
    """Return the share of the needed pod-time that had reserved capacity (same unit); 1 if none was needed."""
    return used / needed if needed > 0 else 1.0


def is_needed(score: Score) -> bool:
    """Return whether any pod needed reserved capacity; if none did, the coverage is 1 and has no meaning."""
    return score.used > 0 or score.missed > 0 or bool(score.needed)


def lead_seconds(start_seconds: float, available_at_seconds: float | None) -> int | None:
    """Return how many seconds before a window's start all capacity was reserved; negative if late, None if never."""
    return None if available_at_seconds is None else int(start_seconds - available_at_seconds)


def lead_words(seconds: int | None) -> str:
    """Return a lead time as text: "19 min before the start", "265 min after the start", "never"."""
    if seconds is None:
        return "never"
    minutes = round(abs(seconds) / 60)
    length = f"{minutes:,} min" if abs(seconds) >= 60 else f"{abs(seconds)} s"
    return f"{length} {'before' if seconds >= 0 else 'after'} the start" if seconds else "at the start"


def available_words(seconds: int | None) -> str:
    """Return a lead time as a clause: "capacity was complete 19 min before the start"."""
    return "capacity was never complete" if seconds is None else f"capacity was complete {lead_words(seconds)}"


def coverage_words(score: Score) -> str:
    """Return an occurrence's coverage as a clause, such as "Coverage 95 % of the needed pod-time"."""
    if not is_needed(score):
        return "No pod needed the reserved capacity"
    return f"Coverage {percent(score.coverage)} of the needed pod-time"


def hit_words(score: Score) -> str:
    """Return an occurrence's hit ratio as a clause, such as "80 % of the reserved pod-time used"."""
    return f"{percent(score.hit_ratio)} of the reserved pod-time used"


def summary(score: Score) -> str:
    """Return a sentence about an occurrence: its coverage, pods, lead time and idle core-hours."""
    pods = f"{score.used} of {_pods(score.reserved)} used a reservation"
    missed = f", {_pods(score.missed)} waited without a reservation" if score.missed else ""
    lent = "" if score.lent_core_hours is None else f" (batch pods used {score.lent_core_hours:,.1f} of them)"
    return (
        f"{coverage_words(score)}: {pods}{missed}, {available_words(score.lead_seconds)}. "
        f"{score.idle_core_hours:,.1f} core-hours were idle{lent}; {hit_words(score)}."
    )


def short_summary(score: Score) -> str:
    """Return a summary of an occurrence that fits into a table cell: coverage and pods."""
    covered = f"coverage {percent(score.coverage)}" if is_needed(score) else "not needed"
    waited = f", {score.missed} waited" if score.missed else ""
    return f"{covered}: {score.used} of {score.reserved} used{waited}"


def _pods(number: int) -> str:
    return counted(number, "pod")


UNRECORDED = "unknown: an earlier version of cotenant did not record it"


@dataclass(frozen=True, slots=True)
class OccurrenceReport(Span):
    """The report of one past occurrence. Numbers of pods are the most at one time beyond the baseline; None: unknown.

    `covered` is True if no pod waited without a reservation. `coverage` is None also if no pod needed any capacity.
    `ready_seconds` is how long before the start all Reservations were available, negative if late. `lent_core_hours`
    are the idle core-hours that batch pods used. `without` says what would have happened without the plan.
    """

    expected_pods: int | None
    needed_pods: int | None
    reserved_pods: int
    used_pods: int
    waiting_pods: int
    covered: bool
    coverage: float | None
    ready_seconds: int | None
    idle_core_hours: float
    lent_core_hours: float | None
    cost: float
    without: str


def reports(plan: Plan) -> list[OccurrenceReport]:
    """Return the reports of a plan's past occurrences, newest first."""
    return [
        OccurrenceReport(
            start_seconds=score.start_seconds,
            end_seconds=score.end_seconds,
            expected_pods=score.planned,
            needed_pods=score.needed,
            reserved_pods=score.reserved,
            used_pods=score.used,
            waiting_pods=score.missed,
            covered=score.missed == 0,
            coverage=score.coverage if is_needed(score) else None,
            ready_seconds=score.lead_seconds,
            idle_core_hours=score.idle_core_hours,
            lent_core_hours=score.lent_core_hours,
            cost=score.cost,
            without=_outcome_without_plan(score),
        )
        for score in plan.status.scores
    ]


def lines(report: OccurrenceReport, currency: str) -> list[tuple[str, str]]:
    """Return the report as pairs of a question and its answer, for people."""
    lent = "" if report.lent_core_hours is None else f" (batch pods used {report.lent_core_hours:.1f} core-hours of it)"
    share = "" if report.coverage is None else f", coverage {percent(report.coverage)}"
    waited = f"{_pods(report.waiting_pods)} found no reserved capacity{share}"
    needed = UNRECORDED if report.needed_pods is None else f"{_pods(report.needed_pods)} beyond the baseline"
    return [
        (
            "Expected peak",
            UNRECORDED if report.expected_pods is None else f"{_pods(report.expected_pods)} beyond the baseline",
        ),
        ("Peak that came", needed),
        ("Reserved pods", f"{report.reserved_pods}, {available_words(report.ready_seconds)}; {report.used_pods} used"),
        ("Covered", "yes: every pod of the peak found reserved capacity" if report.covered else f"no: {waited}"),
        ("Idle while reserved", f"{report.idle_core_hours:.1f} core-hours, {report.cost:.2f} {currency}{lent}"),
        ("Without the plan", report.without),
    ]


def _outcome_without_plan(score: Score) -> str:
    """Return a sentence about the outcome without the plan, when other pods could have taken the capacity first."""
    if score.used == 0:
        return "The same as with the plan: no pod used a reservation."
    if score.others_waiting is None:
        return "Unknown, because other pods that waited for a node were not counted."
    if score.others_waiting == 0:
        return (
            "Probably the same as with the plan: no waiting pod of another workload fitted into the capacity, so none "
            "would have taken it first."
        )
    late = min(score.used, score.others_waiting)
    return (
        f"An upper bound, not measured: up to {late} of the {_pods(score.used)} might have waited, because "
        f"{_pods(score.others_waiting)} of other workloads lacked a node at one time and fitted into this capacity."
    )
