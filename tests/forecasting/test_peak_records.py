"""Records of node peaks at past decisions."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.forecasting.node_peaks.peak_records import block_maxima, records

GAP = np.nan


def test_blocks_are_counted_back_from_the_end_and_half_missing_is_a_gap() -> None:
    # 8 slots a day: blocks of 2; 5 slots: the oldest is left over.
    assert block_maxima(np.array([[9.0, 1, 2, 4, 3]]), 8).tolist() == [[2, 4]]
    values = block_maxima(np.array([[1.0, GAP, GAP, GAP]]), 8)
    assert values[0, 0] == 1
    assert np.isnan(values[0, 1])


def test_a_decision_sees_what_stood_before_it_and_is_judged_by_the_day_after() -> None:
    # Four days of blocks: maxima 1, 5, 3, 2; decisions at the last five borders.
    blocks = np.repeat([[1.0, 5, 3, 2]], 4, axis=1)
    peak_records = records(blocks, 5)
    # Now: all four days known.
    assert (
        peak_records.highest[0, -1],
        peak_records.week[0, -1],
        peak_records.day[0, -1],
        peak_records.days[0, -1],
    ) == (5, 5, 2, 4)
    # A day before: days 1, 5, 3 known, and 2 came; now, nothing has come.
    assert (peak_records.day[0, 0], peak_records.after[0, 0]) == (3, 2)
    assert np.isnan(peak_records.after[0, 1:]).all()


def test_an_unknown_day_does_not_shorten_the_week() -> None:
    blocks = np.repeat([[8.0] + [1.0] * 6 + [GAP, 1.0]], 4, axis=1)
    # Seven known days back from now reach over the gap to the second-oldest day, not to the 8.
    assert records(blocks, 1).week[0, 0] == 1
    assert records(blocks, 1).days[0, 0] == 8
    assert records(np.repeat([[8.0] + [1.0] * 5 + [GAP, 1.0]], 4, axis=1), 1).week[0, 0] == 8


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.floats(0, 0.4))
def test_statistics_are_ordered(seed: int, missing: float) -> None:
    rng = np.random.default_rng(seed)
    blocks = rng.exponential(100, (3, 70))
    blocks[rng.random(blocks.shape) < missing] = GAP
    peak_records = records(blocks, 10)
    has_days = peak_records.days > 0
    for higher, lower in (("highest", "week"), ("week", "day")):
        assert (getattr(peak_records, higher)[has_days] >= getattr(peak_records, lower)[has_days]).all()
