"""Schedules in local time: daylight saving, skips, deadlines, and one occurrence per local time whatever the rule."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.errors import UsageError
from cotenant.scheduler_ext.reservations.model.plan import Recurrence, Span
from cotenant.scheduler_ext.reservations.plans import schedule

BERLIN = "Europe/Berlin"


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def rule(text: str, zone: str = BERLIN, hours: float = 2, **more: object) -> Recurrence:
    return Recurrence(text, zone, hours * 3600, **more)  # type: ignore[arg-type]


def first(recurrence: Recurrence, after: str, count: int) -> list[str]:
    starts = islice(schedule.starts(recurrence, at(after)), count)
    return [datetime.fromtimestamp(s, UTC).isoformat()[:16] for s in starts]


def test_a_local_hour_stays_where_people_see_it_when_the_clock_changes() -> None:
    # Berlin is UTC+1 until 2027-03-28 01:00 UTC, then UTC+2.
    texts = first(rule("0 18 * * *"), "2027-03-27T00:00", 2)
    assert texts == ["2027-03-27T17:00", "2027-03-28T16:00"]


def test_a_time_that_is_skipped_runs_at_the_next_valid_minute() -> None:
    # 02:30 does not exist on 28 March 2027: after 01:59 comes 03:00, which is 01:00 UTC.
    texts = first(rule("30 2 * * *"), "2027-03-27T12:00", 2)
    assert texts == ["2027-03-28T01:00", "2027-03-29T00:30"]


def test_a_time_that_comes_twice_runs_once() -> None:
    # On 31 October 2027 the clock shows 02:30 at 00:30 and again at 01:30 UTC.
    texts = first(rule("30 2 * * *"), "2027-10-30T12:00", 2)
    assert texts == ["2027-10-31T00:30", "2027-11-01T01:30"]


def test_every_hour_of_a_long_day_runs_once_by_the_clock_on_the_wall() -> None:
    # 25 hours pass on that day, 24 times are shown: 02:00 is not run a second time.
    day = first(rule("0 * * * *"), "2027-10-30T21:59", 24)
    assert day[:4] == ["2027-10-30T22:00", "2027-10-30T23:00", "2027-10-31T00:00", "2027-10-31T02:00"]
    assert day[-1] == "2027-10-31T22:00"


def test_a_day_that_a_zone_leaves_out_runs_at_the_beginning_of_the_next() -> None:
    # Samoa had no 30 December 2011: midnight of the 31st is 10:00 UTC of the 30th.
    texts = first(rule("0 12 30 12 *", "Pacific/Apia"), "2011-12-01T00:00", 1)
    assert texts == ["2011-12-30T10:00"]


def test_occurrences_that_are_skipped_are_left_out() -> None:
    friday = at("2027-03-05T17:00")
    assert first(rule("0 18 * * 1-5", skip=(friday,)), "2027-03-04T18:00", 1) == ["2027-03-08T17:00"]


def test_a_window_that_the_next_would_overlap_is_replaced_by_it() -> None:
    span = next(schedule.occurrences(rule("0 * * * *", "Etc/UTC", hours=3), at("2027-03-05T17:30")))
    assert span == Span(at("2027-03-05T18:00"), at("2027-03-05T19:00"))


def test_an_occurrence_may_be_reserved_late_until_its_deadline() -> None:
    daily = rule("0 18 * * *", "Etc/UTC", starting_deadline_seconds=600.0)
    today, tomorrow = at("2027-03-05T18:00"), at("2027-03-06T18:00")
    late = schedule.current(daily, today + 599, 900, 0)
    over = schedule.current(daily, today + 600, 900, 0)
    assert late is not None
    assert late.start_seconds == today
    assert over is not None
    assert over.start_seconds == tomorrow


def test_an_occurrence_that_is_done_with_does_not_come_again() -> None:
    daily = rule("0 18 * * *", "Etc/UTC")
    released_early = at("2027-03-05T18:20")
    span = schedule.current(daily, at("2027-03-05T18:30"), 900, released_early)
    assert span is not None
    assert span.start_seconds == at("2027-03-06T18:00")


@pytest.mark.parametrize("text", ["", "0 18 * *", "61 * * * *", "0 0 31 2 *", "a b c d e", "0 0 0 18 * *"])
def test_a_schedule_that_cannot_be_read_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        schedule.check(rule(text))
    assert repr(text) in refused.value.message


def test_a_zone_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError, match="Mars/Olympus") as refused:
        schedule.check(rule("0 18 * * *", "Mars/Olympus"))
    assert "IANA" in refused.value.fix


FIELDS = st.tuples(
    st.sampled_from(["0", "30", "15,45", "*/20"]),
    st.sampled_from(["*", "0", "2", "1-3", "*/2", "18"]),
    st.sampled_from(["*", "1", "28-31"]),
    st.just("*"),
    st.sampled_from(["*", "0", "1-5"]),
)
ZONES = st.sampled_from(
    [BERLIN, "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "Etc/UTC", "Asia/Kathmandu"]
)


@settings(max_examples=60, deadline=None)
@given(FIELDS, ZONES, st.integers(1_600_000_000, 1_900_000_000))
def test_no_local_time_ever_occurs_twice_and_starts_ascend(fields: tuple[str, ...], zone: str, after: int) -> None:
    values = list(islice(schedule.starts(rule(" ".join(fields), zone), after), 40))
    walls = [datetime.fromtimestamp(s, ZoneInfo(zone)).strftime("%F %R") for s in values]
    assert len(set(walls)) == len(walls)
    assert values == sorted(set(values))
    assert all(s > after for s in values)
