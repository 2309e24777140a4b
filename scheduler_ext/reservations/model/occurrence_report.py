"""How an occurrence of a plan went: what was expected, what came, and what would have been without it. Pure.

Page, REST and command say it with these words. Nothing is estimated that was not recorded: where a figure is missing,
the answer says why.
"""

from __future__ import annotations

from dataclasses import dataclass

from cotenant.base.text import counted, percent
from cotenant.scheduler_ext.reservations.model import plan_scores
from cotenant.scheduler_ext.reservations.model.plan import Plan, Score, Span

UNRECORDED = "not recorded: an earlier version scored it"


@dataclass(frozen=True, slots=True)
class OccurrenceReport(Span):
    """One occurrence that is over. Pods beyond the baseline, at one time; moments in Unix seconds.

    covered: whether no pod waited without a reservation. ready_seconds: how long before the start all reservations were
    available; negative is late. lent_core_hours: of the idle ones, what batch used. None: not recorded, or no coverage
    where no pod needed any. without: what would have happened had nothing been reserved, or why that is not known.
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
    """Return the reports of the occurrences that are over, the newest first."""
    return [_report(score) for score in plan.status.scores]


def lines(report: OccurrenceReport, currency: str) -> list[tuple[str, str]]:
    """Question and answer, for people."""
    lent = "" if report.lent_core_hours is None else f", batch ran in {report.lent_core_hours:.1f} of them"
    share = "" if report.coverage is None else f", coverage {percent(report.coverage)}"
    waited = f"{_pods(report.waiting_pods)} found no reserved capacity{share}"
    needed = UNRECORDED if report.needed_pods is None else f"{_pods(report.needed_pods)} beyond the baseline"
    return [
        (
            "Expected peak",
            UNRECORDED if report.expected_pods is None else f"{_pods(report.expected_pods)} beyond the baseline",
        ),
        ("Peak that came", needed),
        (
            "Reserved pods",
            f"{report.reserved_pods}, {plan_scores.available_words(report.ready_seconds)}; {report.used_pods} used",
        ),
        ("Covered", "yes: every pod of the peak found reserved capacity" if report.covered else f"no: {waited}"),
        ("Idle while reserved", f"{report.idle_core_hours:.1f} core-hours, {report.cost:.2f} {currency}{lent}"),
        ("Without it", report.without),
    ]


def _report(score: Score) -> OccurrenceReport:
    return OccurrenceReport(
        start_seconds=score.start_seconds,
        end_seconds=score.end_seconds,
        expected_pods=score.planned,
        needed_pods=score.needed,
        reserved_pods=score.reserved,
        used_pods=score.used,
        waiting_pods=score.missed,
        covered=score.missed == 0,
        coverage=score.coverage if plan_scores.is_needed(score) else None,
        ready_seconds=score.lead_seconds,
        idle_core_hours=score.idle_core_hours,
        lent_core_hours=score.lent_core_hours,
        cost=score.cost,
        without=_outcome_without_plan(score),
    )


def _outcome_without_plan(score: Score) -> str:
    """Return a sentence on the outcome without the plan: other pods that could have taken the capacity first."""
    if score.used == 0:
        return "The same: no pod used a reservation."
    if score.others_waiting is None:
        return "Not known, because the other pods that waited for a node meanwhile were not counted."
    if score.others_waiting == 0:
        return (
            "Probably the same: no other pod that fits waited for a node meanwhile, so no known pod would have taken "
            "the capacity first."
        )
    late = min(score.used, score.others_waiting)
    return (
        f"An upper bound, not measured: up to {late} of the {_pods(score.used)} might have waited, since "
        f"{_pods(score.others_waiting)} of others lacked a node at one time and fit into what was reserved."
    )


def _pods(number: int) -> str:
    return counted(number, "pod")
