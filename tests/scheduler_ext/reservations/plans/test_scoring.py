"""What a plan's account says of batch in the held room."""

from __future__ import annotations

import pytest

from cotenant.scheduler_ext.reservations.model.plan import (
    OccurrenceProgress,
    Plan,
    PlanOwner,
    PlanStatus,
    Span,
    WindowSource,
)
from cotenant.scheduler_ext.reservations.plans.score import ReservationUse, lent_cores, observe, score

HOUR = 3600.0


@pytest.mark.parametrize(
    ("held_cores", "batch", "lendable", "lent"),
    [
        (4.0, 0.0, 10.0, 0.0),  # nobody runs there
        (4.0, 6.0, 10.0, 0.0),  # 10 - 4 could be lent without the held room: batch stands beside it
        (4.0, 8.0, 10.0, 2.0),  # two cores more than that
        (4.0, 14.0, 10.0, 4.0),  # less is offered by now than was: never more than is held
        (4.0, 1.0, 0.0, 1.0),  # nothing is offered any more, and what still runs stands in it
        (0.0, 8.0, 6.0, 0.0),
    ],
)
def test_batch_stands_in_held_room_with_what_it_could_not_have_without_it(
    held_cores: float, batch: float, lendable: float, lent: float
) -> None:
    assert lent_cores(held_cores, batch, lendable) == lent


def test_lent_core_hours_are_the_cores_of_each_look_times_its_period() -> None:
    progress = OccurrenceProgress(as_of_seconds=HOUR)
    # half an hour at 2 cores, half an hour unseen, an hour at 1 core: 2 core-hours
    for hours, lent in ((1.5, 2.0), (2.0, None), (3.0, 1.0)):
        progress = observe(progress, ReservationUse(2, 0, 0, complete=True, lent_cores=lent), hours * HOUR, counts=True)
    status = PlanStatus(window=Span(2 * HOUR, 3 * HOUR), progress=progress)
    plan = Plan("shop", "peak", WindowSource.MANUAL, PlanOwner("Deployment", "web"), {"cpu": 2000}, 2, status=status)
    assert score(plan, 3 * HOUR, 0.0).lent_core_hours == pytest.approx(2.0)


def test_where_nobody_looked_at_batch_the_score_says_nothing_of_it() -> None:
    progress = observe(
        OccurrenceProgress(as_of_seconds=HOUR), ReservationUse(2, 0, 0, complete=True), 2 * HOUR, counts=True
    )
    status = PlanStatus(window=Span(HOUR, 2 * HOUR), progress=progress)
    plan = Plan("shop", "peak", WindowSource.MANUAL, PlanOwner("Deployment", "web"), {"cpu": 2000}, 2, status=status)
    assert score(plan, 2 * HOUR, 0.0).lent_core_hours is None


def test_a_score_keeps_what_was_planned_what_was_needed_and_who_else_waited() -> None:
    progress = OccurrenceProgress(as_of_seconds=HOUR)
    # (used, missed, others): at one time 3 + 1 pods are needed; the most others are 2, and one look did not count them
    for used, missed, others in ((1, 0, 0), (3, 1, 2), (2, 0, None)):
        look = ReservationUse(3, used, missed, complete=True, others_waiting=others)
        progress = observe(progress, look, progress.as_of_seconds + 60, counts=True)
    status = PlanStatus(window=Span(HOUR, 2 * HOUR), progress=progress)
    plan = Plan("shop", "peak", WindowSource.MANUAL, PlanOwner("Deployment", "web"), {"cpu": 2000}, 3, status=status)
    plan_score = score(plan, 2 * HOUR, 0.0)
    assert (plan_score.planned, plan_score.needed, plan_score.others_waiting) == (3, 4, 2)
