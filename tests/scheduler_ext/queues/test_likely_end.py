"""When a pod that runs is likely to end, and when enough is free."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.kubernetes.observed import LAG_SECONDS, outlasts_its_end
from cotenant.scheduler_ext.queues.quota_report import LEAST_RUNS, expected_end, when_free

RUNS = (60.0, 120.0, 180.0, 240.0, 600.0)
SECONDS = st.floats(0, 1e6)


@pytest.mark.parametrize(
    ("ran", "end"),
    [
        (0.0, 180.0),  # the median of all five
        (130.0, 240.0),  # of 180, 240 and 600
        (300.0, 600.0),  # 600 alone
        (601.0, None),  # none ran so long
    ],
)
def test_a_pod_ends_as_the_median_of_those_that_ran_longer_than_it_has(ran: float, end: float | None) -> None:
    assert expected_end(0.0, ran, RUNS) == end


def test_too_few_runs_say_nothing_and_a_deadline_says_something_without_them() -> None:
    assert expected_end(0.0, 10.0, RUNS[:4]) is None
    assert expected_end(0.0, 10.0, RUNS[:4], deadline_seconds=90.0) == 90.0
    assert expected_end(0.0, 10.0, RUNS, deadline_seconds=90.0) == 90.0


def test_a_pod_that_runs_long_after_its_deadline_is_not_counted_on() -> None:
    # its kubelet would have ended it after 90 s; for a minute that may only not be seen yet
    assert expected_end(0.0, 90.0 + LAG_SECONDS - 1, (), deadline_seconds=90.0) == 90.0 + LAG_SECONDS - 1
    assert expected_end(0.0, 90.0 + LAG_SECONDS, RUNS, deadline_seconds=90.0) is None


def test_enough_is_free_when_the_first_ends_leave_it_together() -> None:
    # In the order of time 2 are left at 10 and 3 more at 20.
    assert [when_free(needed, [(20.0, 3), (10.0, 2)]) for needed in (1, 2, 3, 5, 6)] == [10.0, 10.0, 20.0, 20.0, None]


@given(st.lists(SECONDS, max_size=12), SECONDS, SECONDS, st.none() | SECONDS)
def test_an_end_is_never_past_and_never_after_the_deadline(
    runs: list[float], started: float, ran: float, deadline: float | None
) -> None:
    now = started + ran
    end = expected_end(started, now, sorted(runs), deadline)
    if end is not None:
        assert end >= now
        assert deadline is None or end <= max(now, started + deadline)
    assert end is not None or deadline is None or outlasts_its_end(started + deadline, now)
    assert end is None or deadline is not None or len(runs) >= LEAST_RUNS
