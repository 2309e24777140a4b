"""Histograms against a sample-by-sample restatement of VPA's rules, and their algebra as properties."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cotenant.base.resource import DeviceResource, Resource
from cotenant.base.usage.histogram import (
    CPU_BUCKETS,
    MEMORY_BUCKETS,
    YEAR_ONE_SECONDS,
    Buckets,
    HistogramBatch,
    buckets_of,
    total_buckets_of,
)

DAY = 86_400
START = 1_700_006_400  # 2023-11-15T00:00:00Z


class OneByOne:
    """VPA's decaying histogram for one series, one sample at a time, in plain Python floats."""

    def __init__(self, buckets: Buckets, half_life: int) -> None:
        self.buckets, self.half_life = buckets, half_life
        self.weights = [0.0] * buckets.count
        self.total = 0.0
        self.reference = YEAR_ONE_SECONDS

    def add(self, value: float, weight: float, seconds: int) -> None:
        if seconds > self.reference + 100 * self.half_life:
            since = seconds - YEAR_ONE_SECONDS
            remainder = since % self.half_life
            since += -remainder if 2 * remainder < self.half_life else self.half_life - remainder
            factor = math.ldexp(1.0, max(-5000, (self.reference - since - YEAR_ONE_SECONDS) // self.half_life))
            self.weights = [w * factor for w in self.weights]
            self.total *= factor
            self.reference = since + YEAR_ONE_SECONDS
        decayed = weight * 2 ** ((seconds - self.reference) / self.half_life)
        bucket = 0
        if value >= self.buckets.first:
            ratio = self.buckets.growth - 1
            bucket = int(math.log(value * ratio / self.buckets.first + 1) / math.log(self.buckets.growth))
        self.weights[min(bucket, self.buckets.count - 1)] += decayed
        self.total += decayed

    def percentile(self, fraction: float) -> float:
        full = [b for b, w in enumerate(self.weights) if w >= self.buckets.epsilon]
        if not full:
            return math.nan
        partial, bucket = 0.0, full[0]
        while bucket < full[-1]:
            partial += self.weights[bucket]
            if partial >= fraction * self.total:
                break
            bucket += 1
        bucket = min(bucket + 1, self.buckets.count - 1)
        return self.buckets.first * (self.buckets.growth**bucket - 1) / (self.buckets.growth - 1)


def grid(slots: int, step: int = 300) -> np.ndarray:
    return START + step * np.arange(slots, dtype=np.int64)


def filled(values: np.ndarray, step: int = 300, half_life: int = DAY) -> HistogramBatch:
    return HistogramBatch.empty(len(values), CPU_BUCKETS, half_life).add(values, grid(values.shape[1], step))


amounts = st.one_of(st.just(float("nan")), st.floats(0, 2e6, width=32))
matrices = hnp.arrays(np.float32, st.tuples(st.integers(1, 4), st.integers(1, 40)), elements=amounts)
fractions = st.floats(0, 1)


def test_both_layouts_have_176_buckets() -> None:
    # log(1000 * 0.05 / 0.01 + 1) / log(1.05) = log(5001) / log(1.05) = 174.57: 175 and one more without an end.
    # 1e12 * 0.05 / 1e7 + 1 is the same 5001.
    assert CPU_BUCKETS.count == MEMORY_BUCKETS.count == 176
    # Starts: 0, first, first * (1 + 1.05).
    assert CPU_BUCKETS.starts[:3] == pytest.approx([0, 10, 20.5])
    assert CPU_BUCKETS.starts[-1] >= CPU_BUCKETS.maximum > CPU_BUCKETS.starts[-2]


@given(st.floats(0, 1e13))
def test_every_value_lies_in_its_bucket(value: float) -> None:
    bucket = int(MEMORY_BUCKETS.find(np.array([value]))[0])
    # VPA's rule takes a logarithm, so a value on a border may fall on either side of it by a rounding error.
    assert MEMORY_BUCKETS.starts[bucket] * (1 - 1e-12) <= value
    assert bucket == 175 or value <= MEMORY_BUCKETS.starts[bucket + 1] * (1 + 1e-12)


@pytest.mark.slow
@settings(deadline=None)
@given(matrices, st.sampled_from([300, 3_600, 7 * DAY]), st.sampled_from([3_600, 43_200, DAY]), fractions)
def test_weights_reference_and_percentile_equal_the_sample_by_sample_rule(
    values: np.ndarray, step: int, half_life: int, fraction: float
) -> None:
    batch = filled(values, step, half_life)
    for row, series in enumerate(values):
        naive = OneByOne(CPU_BUCKETS, half_life)
        for value, seconds in zip(series.tolist(), grid(values.shape[1], step).tolist(), strict=True):
            if not math.isnan(value):
                naive.add(value, 1.0, seconds)
        assert batch.reference_seconds[row] == naive.reference
        assert batch.weights[row] == pytest.approx(naive.weights, rel=1e-9)
        # The threshold may hit a partial sum exactly, where the order of summation decides: compare beside it too.
        near = [naive.percentile(min(1.0, max(0.0, fraction + d))) for d in (-1e-9, 0.0, 1e-9)]
        assert any(batch.percentile(fraction)[row] == pytest.approx(p, nan_ok=True) for p in near)


@settings(deadline=None)
@given(matrices, st.data())
def test_adding_in_two_parts_equals_adding_at_once(values: np.ndarray, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, values.shape[1]))
    times = grid(values.shape[1], DAY)
    parts = HistogramBatch.empty(len(values), CPU_BUCKETS, 3_600)
    parts = parts.add(values[:, :cut], times[:cut]).add(values[:, cut:], times[cut:])
    histogram = filled(values, DAY, 3_600)
    np.testing.assert_array_equal(parts.reference_seconds, histogram.reference_seconds)
    np.testing.assert_allclose(parts.weights, histogram.weights, rtol=1e-9)
    np.testing.assert_allclose(parts.total, histogram.total, rtol=1e-9)


@settings(deadline=None)
@given(matrices)
def test_pooled_rows_equal_the_merged_rows(values: np.ndarray) -> None:
    times = grid(values.shape[1])
    pooled = HistogramBatch.empty(1, CPU_BUCKETS, DAY).add(values, times, np.zeros(len(values), dtype=np.int64))
    merged = HistogramBatch.empty(1, CPU_BUCKETS, DAY)
    for row in values:
        merged = merged.merge(HistogramBatch.empty(1, CPU_BUCKETS, DAY).add(row[None], times))
    np.testing.assert_array_equal(pooled.reference_seconds, merged.reference_seconds)
    np.testing.assert_allclose(pooled.weights, merged.weights, rtol=1e-9)


@settings(deadline=None)
@given(matrices, st.integers(0, 400))
def test_merge_commutes(values: np.ndarray, days_later: int) -> None:
    early, late = filled(values), HistogramBatch.empty(len(values), CPU_BUCKETS, DAY)
    late = late.add(values * 0.5, grid(values.shape[1]) + days_later * DAY)
    batch, other = early.merge(late), late.merge(early)
    np.testing.assert_array_equal(batch.weights, other.weights)
    np.testing.assert_array_equal(batch.total, other.total)
    np.testing.assert_array_equal(batch.reference_seconds, other.reference_seconds)


@given(hnp.arrays(np.float64, st.integers(1, 200), elements=st.floats(10, 9e5)), st.floats(0.01, 1))
def test_a_percentile_lies_within_one_bucket_of_the_exact_one(values: np.ndarray, fraction: float) -> None:
    # All samples at one moment: no decay, so the exact answer is the ceil(fraction * n)-th smallest.
    batch = HistogramBatch.empty(1, CPU_BUCKETS, DAY)
    batch = batch.add(values[:, None], grid(1), np.zeros(len(values), dtype=np.int64))
    exact = np.sort(values)[max(0, math.ceil(fraction * len(values) - 1e-9) - 1)]
    # The end of the exact value's bucket, at most 5 % of the value plus the first bucket above it.
    assert exact * (1 - 1e-9) <= batch.percentile(fraction)[0] <= exact * 1.05 + 10.001


def test_the_percentile_is_the_end_of_its_bucket() -> None:
    # 15 m lies in bucket 1 = [10, 20.5); 5 m in bucket 0 = [0, 10). Half the weight is in bucket 0.
    batch = filled(np.array([[5.0, 15.0]]))
    assert batch.percentiles((0.49, 0.9))[0] == pytest.approx([10.0, 20.5])


def test_the_last_bucket_answers_with_its_start() -> None:
    assert filled(np.array([[5e6]])).percentile(0.9)[0] == CPU_BUCKETS.starts[-1]


def test_the_last_bucket_ends_at_the_highest_sample_where_that_is_known() -> None:
    start = CPU_BUCKETS.starts[-1]
    batch = filled(np.array([[15.0, 5e6], [15.0, 5e6], [15.0, start], [15.0, 20.0]]))
    highest = np.array([5e6, np.nan, 5e6, 20.0])
    # The first bucket of all is [10, 20.5); the one before the last ends where the last begins, and 20 m are far below.
    values = batch.percentiles((0.4, 0.9), highest)
    assert values == pytest.approx(np.array([[20.5, 5e6], [20.5, start], [20.5, 5e6], [20.5, 20.5]]))


@pytest.mark.parametrize("resource", [*Resource, DeviceResource.GPU_CORE])
def test_totals_have_the_buckets_of_a_container_and_further_ones(resource: Resource | DeviceResource) -> None:
    container, totals = buckets_of(resource), total_buckets_of(resource)
    np.testing.assert_array_equal(totals.starts[: container.count], container.starts)
    assert totals.starts[-1] >= 1000 * container.maximum > totals.starts[-2]
    # Each bucket is 5 % wider than the one before it.
    widths = np.diff(totals.starts)
    assert widths[1:] / widths[:-1] == pytest.approx(np.full(totals.count - 2, 1.05))


@settings(deadline=None)
@given(matrices, st.sampled_from([300, 3_600]), st.lists(fractions, min_size=1, max_size=4))
def test_a_small_total_has_the_numbers_that_a_container_has(values: np.ndarray, step: int, levels: list[float]) -> None:
    small = np.fmin(values, np.float32(CPU_BUCKETS.starts[-2]))
    layouts = (buckets_of(Resource.CPU), total_buckets_of(Resource.CPU))
    times = grid(values.shape[1], step)
    container, total = (HistogramBatch.empty(len(small), b, DAY).add(small, times) for b in layouts)
    np.testing.assert_array_equal(total.total, container.total)
    np.testing.assert_array_equal(total.percentiles(levels), container.percentiles(levels))


def test_a_day_old_sample_weighs_half() -> None:
    # Reference = START (a whole day), weights 1 and 2 a day later: p60 of {0 m: 1/3, 15 m: 2/3} is in bucket 1.
    batch = filled(np.array([[0.0, 15.0]]), step=DAY)
    assert batch.weights[0, :2] == pytest.approx([1.0, 2.0])
    assert batch.percentiles((0.3, 0.6))[0] == pytest.approx([10.0, 20.5])


def test_gaps_infinities_and_left_out_rows_add_nothing() -> None:
    values = np.array([[np.nan, np.inf, -np.inf], [1.0, 1.0, 1.0]])
    batch = HistogramBatch.empty(2, CPU_BUCKETS, DAY).add(values, grid(3), np.array([0, -1]))
    assert batch.total.tolist() == [0, 0]
    assert np.isnan(batch.percentile(0.5)).all()
    assert batch.reference_seconds.tolist() == [YEAR_ONE_SECONDS] * 2


def test_select_reorders_and_fills_with_empty_ones() -> None:
    batch = filled(np.array([[5.0], [100.0]])).select(np.array([1, -1, 0]))
    assert np.isnan(batch.percentile(0.5)).tolist() == [False, True, False]
    assert batch.percentile(0.5)[2] == pytest.approx(10.0)


def test_merging_different_half_lives_is_refused() -> None:
    with pytest.raises(ValueError, match="half life"):
        filled(np.array([[1.0]])).merge(filled(np.array([[1.0]]), half_life=3_600))


def test_a_single_old_sample_keeps_its_weight_over_a_thousand_half_lives() -> None:
    values = np.array([[5.0, *[float("nan")] * 6]])
    batch = filled(values, 7 * DAY, 3_600)
    # told from its own reference time a lone sample weighs 2 to a power between -0.5 and 0.5
    assert 2**-0.5 <= batch.total[0] <= 2**0.5
