"""Whether the day ahead has a peak, and its windows: from past days, because the median path is flatter than any."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cotenant.base.usage.forecast import Window, WindowKind
from cotenant.base.usage.usage import TimeGrid
from cotenant.forecasting.backtest import windows as evaluated
from cotenant.forecasting.peak_time import peak_timing
from cotenant.forecasting.settings import ForecastingSettings
from cotenant.forecasting.windows import amplitude, daily_correlation, mean_votes, peak_expected, vote_limit, windows

START = 1_699_833_600
GRID = TimeGrid(START, 1800, 48)
DEFAULTS = ForecastingSettings()
FLAT = np.full((1, 48), 50.0, np.float32)


def of_days(days: np.ndarray) -> tuple[np.ndarray, TimeGrid]:
    """History (1, slots) of days (days, 48), and its grid."""
    return days.reshape(1, -1).astype(np.float32), TimeGrid(START - days.size * 1800, 1800, days.size)


def expected(days: np.ndarray, median: np.ndarray = FLAT, total: float = np.nan, least: float = 0.03) -> bool:
    rules = msgspec.structs.replace(DEFAULTS, cluster_peak_share=least)
    return bool(peak_expected(*of_days(days), median, rules, np.array([total]))[0])


def ahead(days: np.ndarray, median: np.ndarray = FLAT) -> tuple[Window, ...]:
    history, grid = of_days(days)
    timing = peak_timing(history, grid, median)
    return windows(median, timing, peak_expected(history, grid, median, DEFAULTS), GRID)[0]


def with_peaks(starts: list[int], base: float = 10.0, height: float = 100.0) -> np.ndarray:
    days = np.full((len(starts), 48), base)
    for day, start in enumerate(starts):
        days[day, start : start + 4] = height
    return days


def test_a_peak_that_wanders_is_announced_although_the_median_path_is_flat() -> None:
    wandering = with_peaks([20 + (7 * day) % 16 for day in range(14)])
    assert amplitude(FLAT)[0] == 0
    (peak,) = ahead(wandering)
    assert peak.kind is WindowKind.PEAK and peak.end_seconds - peak.start_seconds == 7200
    assert START + 20 * 1800 <= peak.start_seconds <= START + 36 * 1800


def test_the_window_covers_the_hour_that_was_busiest_and_has_the_median_s_height() -> None:
    median = np.full((1, 48), 40.0, np.float32)
    median[0, 24:28] = 90.0
    (peak,) = [w for w in ahead(with_peaks([30] * 14), median) if w.kind is WindowKind.PEAK]
    assert (peak.start_seconds, peak.height) == (START + 30 * 1800, 40.0)


def test_valleys_lie_outside_the_peak_and_are_not_shorter_than_the_setting() -> None:
    median = (100 - 80 * np.cos(2 * np.pi * np.arange(48) / 48))[None].astype(np.float32)
    day_windows = ahead(np.repeat(median, 14, axis=0), median)
    assert [w.kind for w in day_windows] == [WindowKind.VALLEY, WindowKind.PEAK, WindowKind.VALLEY]
    assert day_windows[1].start_seconds in {START + slot * 1800 for slot in (22, 23)}
    # Below 20 + 160 / 4 = 60 before slot 8 and from slot 41: cos(2 pi k / 48) > 0.5.
    assert day_windows[0].start_seconds == START and day_windows[2].end_seconds == GRID.end_seconds
    assert all(w.end_seconds - w.start_seconds >= 3600 for w in day_windows)


@pytest.mark.parametrize(("with_one", "announced"), [(14, True), (11, True), (7, False), (3, False), (0, False)])
def test_most_days_have_to_have_one(with_one: int, announced: bool) -> None:
    days = with_peaks([20] * 14)
    # Spread evenly over old and new days.
    days[np.argsort([(5 * day) % 14 for day in range(14)])[: 14 - with_one]] = 50.0
    assert expected(days) is announced


def test_newer_days_weigh_more() -> None:
    days = with_peaks([20] * 14)
    days[:7] = 50.0
    assert expected(days) and not expected(days[::-1])


def test_the_mean_vote_before_each_day_by_hand() -> None:
    votes, counts = np.array([[1.0, 0.0, 1.0]]), np.array([[True, True, False]])
    assert mean_votes(votes, counts)[0] == pytest.approx([0, 1, 0.85 / 1.85, 0.85 / 1.85])


def test_the_limit_moves_from_the_shipped_one_to_what_past_even_days_stayed_below() -> None:
    counts = np.ones((100, 14), dtype=bool)
    votes = np.repeat(np.linspace(0, 1, 100)[:, None], 15, axis=1)
    # Mean votes spread evenly: 88 % of even days lie below 0.88. The newer 7 of 14 days are tested: 700 against 100.
    assert vote_limit(votes, ~counts, counts) == pytest.approx((100 * 0.67 + 700 * 0.88) / 800)
    # Days with a peak and days that are not known say nothing.
    assert vote_limit(votes, counts, counts) == vote_limit(votes, ~counts, ~counts) == 0.67
    # Where all days are even, a peak is still expected where more than half of them had one.
    assert vote_limit(0 * votes, ~counts, counts) == 0.5


def test_the_path_tips_the_scale_where_days_do_not_decide() -> None:
    # Nine of fourteen days had a peak: 9 / 14 = 0.64, just below 0.67.
    days = with_peaks([20] * 14)
    days[np.argsort([(5 * day) % 14 for day in range(14)])[:5]] = 50.0
    moving = np.full((1, 48), 50.0, np.float32)
    moving[0, 20:24] = 90.0
    assert expected(days, moving) and not expected(days)


def test_days_a_little_above_the_least_count_where_every_day_was() -> None:
    days = np.full((14, 48), 100.0)
    days[:, 10:20] = 133.0
    swing = 33 / days[0].mean()
    assert 0.3 < swing < 0.32 and expected(days)
    days[3] = 100.0
    assert not expected(days)


def test_a_day_has_a_peak_by_the_same_measure_as_in_the_back_test() -> None:
    rng = np.random.default_rng(4)
    days = rng.gamma(rng.uniform(1, 60, (200, 1)), 1.0, (200, 48)).astype(np.float32)
    np.testing.assert_array_equal(evaluated.amplitude(days), amplitude(days) > evaluated.AMPLITUDE)
    assert 0.2 < evaluated.amplitude(days).mean() < 1


def test_the_peaks_of_a_total_are_measured_against_what_is_allocatable() -> None:
    # 40 cores of 1,000 on top of 600: 6 % of the mean, yet 4 % of the cluster, each day at the same time.
    days = np.full((14, 48), 600.0)
    days[:, 20:30] = 640.0
    assert not expected(days)
    assert expected(days, total=1000.0) and not expected(days, total=1000.0, least=0.05)
    # 2 cores in 1,000 are half of the mean and matter to nobody.
    small = with_peaks([20] * 14, 4.0, 6.0)
    assert expected(small) and not expected(small, total=1000.0)


def test_a_total_whose_days_do_not_repeat_has_no_peak_to_announce() -> None:
    wandering = with_peaks([(19 * day) % 44 for day in range(14)], 500.0, 640.0)
    assert daily_correlation(*(of_days(wandering)[0], 48))[0] < 0.3
    assert expected(with_peaks([20] * 14, 500.0, 640.0), total=1000.0) and not expected(wandering, total=1000.0)


def test_where_no_day_is_known_the_path_decides() -> None:
    median = np.full((1, 48), 10.0, np.float32)
    median[0, 30:36] = 90.0
    assert expected(np.full((5, 48), np.nan), median) and not expected(np.full((5, 48), np.nan))
    assert expected(np.zeros((0, 48)), median)


def test_an_unknown_path_has_no_window() -> None:
    assert ahead(with_peaks([20] * 14), np.full((1, 48), np.nan, np.float32)) == ()


def test_one_odd_half_hour_a_day_is_no_peak() -> None:
    days = np.full((14, 48), 100.0)
    days[:, 20] = 400.0
    # (p95 - p5) / mean is 0: a single slot of 48 lies above the 95th percentile.
    assert not expected(days)


def test_amplitude_by_hand() -> None:
    # 0..100 in 101 steps: p95 = 95, p5 = 5, mean 50.
    assert amplitude(np.arange(101, dtype=np.float32)[None]) == pytest.approx([1.8])
    assert amplitude(np.full((1, 48), np.nan)) == pytest.approx([0.0])


@settings(deadline=None, max_examples=40)
@given(level=st.floats(0, 2.0**40, width=32), count=st.integers(0, 20), total=st.sampled_from([np.nan, 1.0, 1e9]))
def test_constant_usage_never_has_a_peak(level: float, count: int, total: float) -> None:
    assert not expected(np.full((count, 48), level), np.full((1, 48), level, np.float32), total)


@settings(deadline=None, max_examples=40)
@given(
    start=st.integers(0, 44),
    count=st.integers(1, 20),
    base=st.floats(0.0, 50.0),
    rise=st.floats(1.0, 20.0),
    scale=st.sampled_from([1e-3, 1.0, 2.0**30]),
    holes=st.sets(st.integers(0, 48 * 20 - 1), max_size=12),
)
def test_the_same_clear_peak_each_day_is_announced_at_its_hour(
    start: int, count: int, base: float, rise: float, scale: float, holes: set[int]
) -> None:
    days = scale * with_peaks([start] * count, base, base * (1 + rise) + 1)
    median = days[:1].astype(np.float32)
    days.flat[[hole for hole in holes if hole < days.size and not start <= hole % 48 < start + 4]] = np.nan
    (peak,) = [w for w in ahead(days, median) if w.kind is WindowKind.PEAK]
    # At the edge of the day the votes of its one neighbour can shift it by a slot.
    assert abs(peak.start_seconds - START - start * 1800) <= 1800 * (start in {0, 44})


@settings(deadline=None, max_examples=40)
@given(
    history=hnp.arrays(
        np.float32,
        st.tuples(st.integers(0, 3), st.sampled_from([0, 10, 48, 100, 700])),
        elements=st.one_of(st.just(float("nan")), st.just(0.0), st.floats(0, 2.0**43, width=32)),
    ),
    total=st.sampled_from([np.nan, 0.0, 10.0]),
)
def test_any_history_is_answered_by_lawful_windows(history: np.ndarray, total: float) -> None:
    grid = TimeGrid(START - history.shape[1] * 1800, 1800, history.shape[1])
    median = np.ones((len(history), 48), np.float32)
    has_peak = peak_expected(history, grid, median, DEFAULTS, np.full(len(history), total))
    all_windows = windows(median, peak_timing(history, grid, median), has_peak, GRID)
    for row, flag in zip(all_windows, has_peak.tolist(), strict=True):
        assert [w.kind for w in row].count(WindowKind.PEAK) == int(flag)
        assert all(START <= w.start_seconds < w.end_seconds <= GRID.end_seconds for w in row)
        assert all(a.end_seconds <= b.start_seconds for a, b in pairwise(row))
