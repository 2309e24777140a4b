"""The worst day of tested peaks: which 24 hours, how many nodes at once, for how long and how far."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cotenant.base.identity import NodeRef
from cotenant.base.reasons import SENTENCES, Reason
from cotenant.base.resource import Resource
from cotenant.base.usage.peak import WorstDay, sentence
from cotenant.base.usage.usage import Statistic, TimeGrid, Usage
from cotenant.forecasting.backtest.worst_day import FEWEST_DAYS, seconds_above, worst_day, worst_span
from cotenant.forecasting.node_peaks.node_peak import NodeLimits, node_peaks
from cotenant.forecasting.node_peaks.peak_records import PastPeaks
from cotenant.forecasting.settings import NodePeakSettings

SIX_HOURS, SLOTS = 21_600, 288


def past(highest: np.ndarray) -> PastPeaks:
    return PastPeaks(np.full(highest.shape, 500.0), highest, np.full(len(highest), 1000.0))


def calm(nodes: int = 3, days: int = 4) -> np.ndarray:
    return np.full((nodes, 4 * days), 400.0)


def day_of(of: PastPeaks, seconds: np.ndarray | None = None) -> WorstDay:
    return worst_day(of, [SIX_HOURS * block for block in range(of.peaks.shape[1])], 0.01, seconds)


def test_the_day_on_which_most_nodes_are_short_counts_not_the_deepest_one() -> None:
    highest = calm()
    highest[0, 2] = 990.0  # one node, by 49 % of its limit
    highest[0, 9] = highest[1, 11] = 590.0  # two nodes within 24 hours, by 9 % of theirs
    day = day_of(past(highest), np.array([1800.0, 3000.0, 0.0]))
    assert (day.short_nodes, day.nodes, day.start_seconds) == (2, 3, 9 * SIX_HOURS)
    assert day.deepest_ratio == pytest.approx(0.09)
    assert day.mean_short_seconds == 2400.0  # the mean of 30 and 50 minutes: the third node was never short
    # Sixteen blocks of six hours are four days.
    assert sentence(day, Resource.CPU) == (
        "CPU at a risk of 1 %: in the worst 24 hours of 4 tested days, from 1970-01-03 06:00 UTC, 2 of 3 nodes used "
        "more than the peak kept for prod, for 40 minutes each on average; the highest excess was 9.0 % of a node."
    )


def test_of_days_with_as_many_nodes_the_deepest_counts() -> None:
    highest = calm()
    highest[0, 1], highest[1, 8] = 600.0, 700.0
    assert day_of(past(highest)).start_seconds == 8 * SIX_HOURS


def test_a_node_that_is_short_twice_in_a_day_is_one_node() -> None:
    highest = calm()
    highest[0, 4:7] = 600.0
    assert day_of(past(highest)).short_nodes == 1


def test_without_a_node_above_its_peak_the_sentence_says_so() -> None:
    day = day_of(past(calm()))
    assert (day.reason, day.start_seconds, day.deepest_ratio, day.mean_short_seconds) == (
        Reason.OK,
        None,
        None,
        None,
    )
    expected = "Memory at a risk of 1 %: no node used more than the peak kept for prod in 4 tested days."
    assert sentence(day, Resource.MEMORY) == expected


def test_few_tested_days_are_a_reason_and_no_zero() -> None:
    highest = calm(days=FEWEST_DAYS)[:, 1:]
    day = day_of(past(highest))
    assert (day.reason, day.start_seconds) == (Reason.FEW_TESTED_DAYS, None)
    assert sentence(day, Resource.CPU) == f"CPU at a risk of 1 %: {SENTENCES[Reason.FEW_TESTED_DAYS]}"


def test_blocks_that_were_not_tested_or_measured_have_no_part() -> None:
    highest = calm(nodes=4, days=5)
    highest[0, 3], highest[1, 3], highest[2, 3] = 600.0, np.nan, 600.0
    of = past(highest)
    of.peaks[2, 3] = np.nan  # not tested: its peak is not known
    of.peaks[3, :] = np.nan  # a node too young for any
    day = day_of(of)
    # Of the day from block 3 on, nodes 1 and 2 are known in the other blocks.
    assert (day.short_nodes, day.nodes) == (1, 3)


def test_how_long_is_unknown_where_a_short_node_has_no_samples_above() -> None:
    highest = calm()
    highest[:2, 6] = 600.0
    for seconds in (None, np.array([600.0, np.nan, 0.0]), np.array([600.0, 0.0, 0.0])):
        day = day_of(past(highest), seconds)
        assert day.mean_short_seconds is None
        assert "for a time that is not stored" in sentence(day, Resource.CPU)


def test_one_node_is_not_called_an_average() -> None:
    text = sentence(WorstDay(0.001, 90, 1, 1, 0, 600.0, 0.024), Resource.CPU)
    assert "at a risk of 0.1 %" in text and "1 of 1 node used" in text and "for 10 minutes;" in text and "2.4 %" in text


def test_seconds_are_those_of_samples_above_the_peak_in_force_then() -> None:
    # Two blocks of three samples of 300 s; peaks 5 and 7: above are 6 and 9 of the first, 8 of the second.
    usage = np.array([[6.0, 5.0, 9.0, 7.0, 8.0, np.nan], [np.nan] * 6])
    values = seconds_above(usage, np.array([[5.0, 7.0], [5.0, 7.0]]), 300)
    assert values[0] == 900.0 and np.isnan(values[1])


@given(hnp.arrays(float, st.tuples(st.integers(1, 5), st.integers(12, 30)), elements=st.floats(0, 1000)))
def test_no_other_24_hours_have_more_short_nodes(highest: np.ndarray) -> None:
    of = past(highest)
    short = highest > 500.0 + 1e-3
    counts = [short[:, first : first + 4].any(axis=1).sum() for first in range(short.shape[1])]
    span = worst_span(of)
    assert (span is None) == (max(counts) == 0)
    if span is not None:
        assert counts[span.start] == max(counts)
        assert short[:, span.start].any()  # it begins with a node above, and not with calm hours


def test_an_event_of_all_nodes_in_a_calm_past_is_found_in_what_peaks_are_tested_on() -> None:
    # 40 days of ten nodes at 30 to 31 % of their limit; on day 30, at noon, seven of them use 80 % for 45 minutes.
    rng = np.random.default_rng(7)
    values = 300 + 10 * rng.random((10, 40 * SLOTS))
    noon = 30 * SLOTS + SLOTS // 2
    values[:7, noon : noon + 9] = 800.0
    refs = tuple(NodeRef(f"n{i}") for i in range(10))
    usage = Usage(refs, TimeGrid(0, 300, 40 * SLOTS), values.astype(np.float32), Resource.CPU, Statistic.MEAN)
    peaks = node_peaks(usage, NodeLimits.of(np.full(10, 1000.0)), (0.01,), NodePeakSettings())
    assert peaks.tested is not None
    blocks = peaks.tested.peaks.shape[1]
    starts = [40 * 86_400 - SIX_HOURS * back for back in range(blocks, 0, -1)]
    day = worst_day(peaks.tested, starts, 0.01)
    assert (day.short_nodes, day.nodes, day.start_seconds) == (7, 10, 30 * 86_400 + 43_200)
    # 800 less a peak that cannot be below the 310 of the days before, of a limit of 1000.
    assert day.deepest_ratio is not None and 0 < day.deepest_ratio <= 0.49
