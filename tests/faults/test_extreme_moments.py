"""Moments that few think of: the year 2038, a time to live below zero, a hundred ends in one second."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.errors import UsageError
from cotenant.base.kubernetes.intent import Apply, Delete
from cotenant.base.kubernetes.moments import moment, moment_of
from cotenant.scheduler_ext.reservations.decide import decide
from cotenant.scheduler_ext.reservations.guard import Guard
from cotenant.scheduler_ext.reservations.model.plan import Recurrence
from cotenant.scheduler_ext.reservations.model.settings import ReservationSettings
from cotenant.scheduler_ext.reservations.plans import schedule
from cotenant.scheduler_ext.reservations.view import ReservationView
from tests.scheduler_ext.reservations.builders import NOW, placeholder, reservation

LAST_OF_32_BITS = 2**31 - 1
"""19 January 2038, 03:14:07 UTC."""


def test_a_daily_window_goes_on_past_the_last_second_of_32_bits() -> None:
    daily = Recurrence("0 3 * * *", "Etc/UTC", 3600.0)
    texts = [
        datetime.fromtimestamp(s, UTC).isoformat()[:13] for s in islice(schedule.starts(daily, LAST_OF_32_BITS), 2)
    ]
    assert texts == ["2038-01-20T03", "2038-01-21T03"]
    late = reservation(phase="Available", expires="2038-01-19T03:14:08Z")
    assert late.deadline_seconds == LAST_OF_32_BITS + 1 and not late.expired(LAST_OF_32_BITS)


@given(st.integers(0, 2**35))
def test_a_moment_is_read_back_to_the_second_also_after_2038(seconds: int) -> None:
    assert moment_of(moment(float(seconds)), "it") == seconds


def test_a_leap_second_is_a_moment_or_refused_in_words() -> None:
    try:
        assert moment_of("2016-12-31T23:59:60Z", "it") == pytest.approx(moment_of("2017-01-01T00:00:00Z", "it"), abs=1)
    except UsageError as refused:
        assert "2016-12-31T23:59:60Z" in refused.message


def test_a_time_to_live_below_zero_holds_nothing_for_ever() -> None:
    try:
        over = reservation(phase="Available", ttl="-5s")
    except UsageError as refused:
        assert "ttl" in refused.message
    else:
        assert over.expired(NOW)


@pytest.mark.parametrize("now", [NOW, NOW + 3600])
def test_a_hundred_reservations_that_end_in_one_second_are_all_given_back_in_one_round(now: float) -> None:
    # Made at 7,200 s for 2,800 s, all end at 10,000 s; in the second case the API server was away for an hour.
    names = [f"r{number:03}" for number in range(100)]
    reservations = {name: reservation(name, phase="Available", ttl="2800s") for name in names}
    placeholders = tuple(placeholder(name) for name in names)
    served = Guard((), now + 30, "1")
    view = ReservationView(reservations, reserved=placeholders, guard=served, nodes=frozenset({"n1"}), now_seconds=now)
    writes = decide(view, ReservationSettings())
    ended = [i.address.name for i in writes.intents if isinstance(i, Apply) and i.body["status"]["phase"] == "Failed"]
    freed = [i.uid for i in writes.intents if isinstance(i, Delete)]
    assert sorted(ended) == names
    assert sorted(freed) == sorted(pod.uid for pod in placeholders)  # each once, and no other


def test_what_ends_first_is_given_back_first() -> None:
    lives = {"late": "2700s", "early": "2500s", "middle": "2600s"}
    reservations = {name: reservation(name, phase="Available", ttl=ttl) for name, ttl in lives.items()}
    placeholders = tuple(placeholder(name) for name in lives)
    served = Guard((), NOW + 30, "1")
    view = ReservationView(reservations, reserved=placeholders, guard=served, nodes=frozenset({"n1"}), now_seconds=NOW)
    freed = [i.uid for i in decide(view, ReservationSettings()).intents if isinstance(i, Delete)]
    assert freed == ["early-hold-0", "middle-hold-0", "late-hold-0"]
