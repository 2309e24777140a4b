"""Change windows: what a text means, when one is open, and when the next one opens."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.errors import UsageError
from cotenant.changes.decide.change_windows import DAYS, is_open, next_opening_text, opens, parse_window


def at(text: str, zone: str = "UTC") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


@pytest.mark.parametrize(
    ("window", "moment", "inside"),
    [
        # 2026-11-20 is a Friday.
        ("mon-fri 20:00-06:00 UTC", "2026-11-20T20:00", True),
        ("mon-fri 20:00-06:00 UTC", "2026-11-20T19:59", False),
        # Begun on Friday, it lasts into Saturday; what would begin on Saturday does not exist.
        ("mon-fri 20:00-06:00 UTC", "2026-11-21T05:59", True),
        ("mon-fri 20:00-06:00 UTC", "2026-11-21T20:30", False),
        ("sat+sun 00:00-24:00 UTC", "2026-11-22T23:59", True),
        ("daily 01:00-05:00 UTC", "2026-11-20T05:00", False),
        # From Friday over the weekend to Monday.
        ("fri-mon 10:00-11:00 UTC", "2026-11-23T10:30", True),
        ("fri-mon 10:00-11:00 UTC", "2026-11-24T10:30", False),
    ],
)
def test_a_moment_is_in_a_window_or_not(window: str, moment: str, inside: bool) -> None:
    assert parse_window(window).holds(at(moment)) is inside


def test_a_window_is_in_its_own_zone_all_year() -> None:
    window = parse_window("daily 02:00-04:00 Europe/Berlin")
    # 01:30 UTC is 02:30 in winter and 03:30 in summer.
    assert window.holds(at("2026-01-10T01:30")) and window.holds(at("2026-07-10T01:30"))
    assert not window.holds(at("2026-01-10T00:30")) and window.holds(at("2026-07-10T00:30"))


@pytest.mark.parametrize(
    "text", ["", "monday 1:00-2:00 UTC", "daily 25:00-26:00 UTC", "daily 1:00-2:00", "daily 1:00-2:00 Mars/Base",
             "daily 24:00-02:00 UTC", "daily 01:75-02:00 UTC", "daily 1:00-2:00 ../../etc/passwd"],
)  # fmt: skip
def test_a_text_that_is_no_window_is_refused_with_how_to_write_one(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_window(text)
    assert repr(text) in str(refused.value) and refused.value.fix


@given(
    st.sampled_from(DAYS), st.integers(0, 1439), st.integers(0, 1440), st.integers(0, 2_000_000_000),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"]),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_the_next_opening_is_inside_and_none_is_nearer(day: str, start: int, end: int, now: int, zone: str) -> None:
    text = f"{day} {start // 60:02}:{start % 60:02}-{end // 60:02}:{end % 60:02} {zone}"
    window = parse_window(text)
    moment = opens([window], now)
    if moment is None:  # only an hour that its zone's clocks jump over
        assert zone not in {"UTC", "Asia/Kolkata"}
        return
    assert moment >= now and window.holds(moment)
    assert moment == now or not window.holds(now)


def test_without_windows_every_moment_will_do() -> None:
    assert is_open([], 0.0) and opens([], 5.0) == 5.0
    # Friday 19:00 -> 20:00 is an hour away.
    assert next_opening_text(["fri 20:00-21:00 UTC"], at("2026-11-20T19:00")) == "Fri 20:00 UTC, in 1.0 hours"
