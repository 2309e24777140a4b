"""What is told of scrape intervals, over several pulls."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.usage.quality import QualityRecord, ScrapeSpan, joined_scrapes
from cotenant.profiler.prometheus.sampling import intervals

HOUR = 3600


def record(*spans: tuple[int, int, int, int]) -> QualityRecord:
    """A pull with spans of (first hour, last hour, interval, series)."""
    scrapes = tuple(ScrapeSpan(a * HOUR, b * HOUR, every, max(300, 4 * every), n) for a, b, every, n in spans)
    return QualityRecord(0, "prom", 30.0, 1, 1, scrapes=scrapes)


def test_spans_of_one_interval_that_touch_are_one_and_others_stay_apart() -> None:
    first, second = record((0, 4, 30, 5), (2, 4, 300, 1)), record((4, 5, 30, 7), (6, 7, 300, 2))
    spans = [(s.start_seconds // HOUR, s.end_seconds // HOUR, s.interval_seconds, s.series)
             for s in joined_scrapes((first, second))]  # fmt: skip
    # 30 s from hour 0 to 4 and on to 5, at most 7 series; 300 s twice, with two hours between.
    assert spans == [(0, 5, 30, 7), (2, 4, 300, 1), (6, 7, 300, 2)]


def test_a_record_without_spans_knows_the_usual_interval_alone() -> None:
    assert (record().slowest_seconds, record().mixed) == (30.0, False)
    assert (record((0, 1, 15, 3), (0, 1, 60, 1)).slowest_seconds, record((0, 1, 15, 3), (0, 1, 60, 1)).mixed) == (
        60,
        True,
    )


@given(st.sampled_from(intervals.USUAL_INTERVALS), st.floats(0.725, 1.0))
def test_an_hour_of_which_a_part_was_lived_counts_as_its_interval_and_no_other(seconds: int, lived: float) -> None:
    # A series with samples near both ends of an hour lived 2,600 of 3,600 s at least. Slow ones may count as another.
    full_steps, part = 3599 // seconds, round(3599 * lived / seconds)
    if seconds <= 120:
        assert list(intervals.classes({full_steps: 9, part: 1})) == [intervals.nearest_usual(full_steps)]


@given(st.sets(st.sampled_from((10, 15, 30, 60, 120, 300, 600, 900)), min_size=1))
def test_intervals_that_differ_are_told_apart(chosen: set[int]) -> None:
    assert set(intervals.classes({3599 // seconds: 1 for seconds in chosen})) == chosen


def test_samples_in_some_windows_of_an_hour_tell_how_many_all_are() -> None:
    def hour_of(label: str) -> dict[int, int]:
        series = [({intervals.SAMPLES_LABEL: label}, np.array([7200.0]), np.array([3.0]))]
        return dict(intervals.by_hour([series])[7200])

    # 20 samples in four windows of five minutes, or 25 in five, are one a minute; one in each is 12 an hour.
    assert hour_of("4000020") == hour_of("5000025") == {60: 3}
    assert hour_of("4000004") == {12: 3}
    # as a question that reads every sample says it
    assert hour_of("240") == {240: 3}


def test_samples_of_three_hours_tell_a_slow_interval() -> None:
    # Three hours and three minutes are 10,980 s: 18.3 samples each 600 s, 12.2 each 900 s, 6.1 each half hour.
    assert intervals.slow_classes({18: 4, 19: 1, 12: 2, 6: 3, 3: 1}) == {600: 5, 900: 2, 1800: 3, 3600: 1}
