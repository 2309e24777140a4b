"""What is said of a peak that is over, and of what would have been without its reservation."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cotenant.scheduler_ext.reservations.model.plan import Plan, PlanOwner, PlanStatus, Score, WindowSource
from cotenant.scheduler_ext.reservations.model.plan_scores import lines, reports

SCORE = Score(
    0.0, 7200.0, reserved=4, used=3, missed=1, hit_ratio=0.8, coverage=0.9, idle_core_hours=1.5, cost=0.1,
    lead_seconds=780, lent_core_hours=0.5, planned=4, needed=4, others_waiting=0,
)  # fmt: skip


def plan(score: Score | None, *history: Score) -> Plan:
    status = PlanStatus(score=score, history=history)
    return Plan("shop", "web", WindowSource.MANUAL, PlanOwner("Deployment", "web"), {"cpu": 2000}, 4, status=status)


def report_lines(score: Score) -> dict[str, str]:
    return dict(lines(reports(plan(score))[0], "USD"))


def test_a_peak_is_told_by_what_was_expected_and_what_came() -> None:
    # 780 s are 13 min
    assert report_lines(SCORE) | {"Without the plan": ""} == {
        "Expected peak": "4 pods beyond the baseline",
        "Peak that came": "4 pods beyond the baseline",
        "Reserved pods": "4, capacity was complete 13 min before the start; 3 used",
        "Covered": "no: 1 pod found no reserved capacity, coverage 90 %",
        "Idle while reserved": "1.5 core-hours, 0.10 USD (batch pods used 0.5 core-hours of it)",
        "Without the plan": "",
    }
    assert report_lines(replace(SCORE, missed=0))["Covered"] == "yes: every pod of the peak found reserved capacity"
    assert "5 min after the start" in report_lines(replace(SCORE, lead_seconds=-300))["Reserved pods"]
    assert "capacity was never complete" in report_lines(replace(SCORE, lead_seconds=None))["Reserved pods"]


def test_what_an_earlier_version_did_not_record_is_said_to_be_unknown() -> None:
    old = report_lines(replace(SCORE, planned=None, needed=None, others_waiting=None, lent_core_hours=None))
    assert old["Expected peak"] == old["Peak that came"] == "unknown: an earlier version of cotenant did not record it"
    assert old["Without the plan"].startswith("Unknown, because")
    assert old["Idle while reserved"] == "1.5 core-hours, 0.10 USD"


@given(st.integers(0, 50), st.one_of(st.none(), st.integers(0, 50)))
def test_without_it_no_more_pods_wait_than_used_it_or_than_others_could_have_displaced(
    used: int, others: int | None
) -> None:
    text = report_lines(replace(SCORE, used=used, others_waiting=others))["Without the plan"]
    if not used:
        assert text.startswith("The same")
    elif others is None:
        assert text.startswith("Unknown")
    elif not others:
        assert text.startswith("Probably the same")
    else:
        assert text.startswith(f"An upper bound, not measured: up to {min(used, others)} of the {used} pod")


def test_reports_are_the_newest_first_and_none_before_the_first_end() -> None:
    assert reports(plan(None)) == []
    older = replace(SCORE, start_seconds=-86_400.0, missed=0)
    assert [(r.start_seconds, r.covered) for r in reports(plan(SCORE, older))] == [(0.0, False), (-86_400.0, True)]
