"""Ratios, counts, rests, ages and lengths of sentences: absence is no zero, and nothing is negative that cannot be."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base import measures
from cotenant.base.usage.extremes import extremes, highest, mean_of, median_of, spread_of
from cotenant.recommender.colocation.model.lendable import extremes_ahead, lending_nodes_count

NAN = math.nan


@pytest.mark.parametrize(("part", "total"), [(None, 4.0), (1.0, None), (1.0, 0.0), (0.0, 0.0), (None, None)])
def test_a_part_of_nothing_or_of_what_is_not_known_is_no_ratio(part: float | None, total: float | None) -> None:
    assert math.isnan(measures.ratio_of(part, total))


def test_a_ratio_is_part_by_whole_and_zero_is_one_where_zero_is_known() -> None:
    assert measures.ratio_of(3.0, 4.0) == 0.75
    assert measures.ratio_of(0.0, 4.0) == 0.0


@given(st.floats(0.0, 2.0), st.floats(0.0, 2.0))
def test_used_requested_beyond_it_and_neither_are_the_whole_where_nothing_exceeds_it(
    used: float, requested: float
) -> None:
    idle, rest = measures.requested_unused_ratio(used, requested), measures.neither_ratio(used, requested)
    assert idle >= 0.0 and rest >= 0.0
    assert used + idle + rest == pytest.approx(max(1.0, used, requested))


def test_nothing_is_requested_in_vain_or_free_where_one_of_both_is_not_known() -> None:
    # Of allocatable: 0.3 used, 0.7 requested: 0.4 requested beyond the use, and 1 - 0.7 that nobody has.
    assert measures.requested_unused_ratio(0.3, 0.7) == pytest.approx(0.4)
    assert measures.neither_ratio(0.3, 0.7) == pytest.approx(0.3)
    for used, requested in ((NAN, 0.7), (0.3, NAN)):
        assert math.isnan(measures.requested_unused_ratio(used, requested))
        assert math.isnan(measures.neither_ratio(used, requested))


@given(st.integers(0, 1000), st.integers(0, 1000))
def test_what_a_list_shows_and_what_it_leaves_out_are_all(count: int, most: int) -> None:
    assert measures.left_out_count(count, most) == count - min(count, most)
    assert measures.left_out_count(count, most) >= 0


def test_a_clock_that_is_ahead_makes_no_negative_age() -> None:
    assert measures.age_seconds(100.0, 160.0) == 0.0
    assert measures.age_seconds(160.0, 100.0) == 60.0
    assert measures.length_seconds(160.0, 100.0) == -60.0  # a span may end before it starts, and then says so


def test_texts_are_counted_by_whether_there_is_one() -> None:
    assert measures.matching_count(["", "refused", "", "late"]) == 2


def test_extremes_are_of_what_is_known_and_are_the_first_of_equal_ones() -> None:
    bounds = extremes([NAN, 5.0, 2.0, 9.0, 2.0, 9.0])
    assert bounds is not None
    assert (bounds.least, bounds.least_at, bounds.most, bounds.most_at) == (2.0, 2, 9.0, 3)
    assert extremes([NAN, NAN]) is None and extremes([]) is None
    assert highest([]) == 0.0 and highest([NAN, 3.0]) == 3.0


def test_mean_median_and_spread_leave_out_what_is_not_known() -> None:
    # of 1, 2, 6: mean 3, median 2, deviations -2, -1, 3: their squares' mean is 14 / 3
    line = [1.0, NAN, 2.0, 6.0]
    assert (mean_of(line), median_of(line)) == (3.0, 2.0)
    assert spread_of(line) == pytest.approx(math.sqrt(14 / 3))
    assert math.isnan(mean_of([])) and math.isnan(median_of([NAN])) and math.isnan(spread_of([]))


def test_the_present_is_part_of_the_range_from_now_on() -> None:
    # now 547 is below all that is ahead: it is the least, at place 0; the most is the second half hour ahead, place 2
    bounds = extremes_ahead(547.0, [560.0, 675.0, NAN])
    assert bounds is not None
    assert (bounds.least, bounds.least_at, bounds.most, bounds.most_at) == (547.0, 0, 675.0, 2)
    unknown_now = extremes_ahead(NAN, [560.0, 675.0])
    assert unknown_now is not None and (unknown_now.least, unknown_now.least_at) == (560.0, 1)
    assert extremes_ahead(547.0, [NAN, NAN]) is None  # the present alone is no forecast


def test_a_node_lends_where_each_of_its_amounts_is_known_and_above_zero() -> None:
    nodes = ["a", "a", "b", "b", "c", "c", "d", "d"]
    amounts = [1.0, 2.0, 1.0, 0.0, 1.0, None, NAN, 3.0]
    assert lending_nodes_count(nodes, amounts) == 1
    assert lending_nodes_count([], []) == 0


def test_the_time_that_is_left_is_that_of_the_rest_at_the_speed_so_far() -> None:
    assert measures.remaining_seconds(30.0, 0.25) == 90.0  # a quarter took 30 s, so the other three take 90 s
    assert measures.remaining_seconds(30.0, 1.0) == 0.0
    assert measures.remaining_seconds(30.0, 0.0) is None
    assert measures.remaining_seconds(30.0, measures.ratio_of(0, 0)) is None
