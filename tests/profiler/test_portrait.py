"""Portraits: what they remember, that updating equals rebuilding, and the pattern they tell."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cotenant.base.identity import ContainerRef, NodeRef, WorkloadRef
from cotenant.base.resource import Resource
from cotenant.base.usage.histogram import CPU_BUCKETS
from cotenant.base.usage.portrait import Pattern, Portraits
from cotenant.base.usage.usage import Statistic, TimeGrid, Usage
from cotenant.profiler.portrait import build, update
from cotenant.profiler.settings import PortraitSettings

DAY = 86_400
MONDAY = 1_699_833_600  # 2023-11-13T00:00:00Z
NODES = [NodeRef("a"), NodeRef("b")]
DEFAULTS = PortraitSettings()
HOURS = np.arange(14 * 288) / 12.0
NOISE = np.random.default_rng(0).normal(0, 1, len(HOURS))


def usage_of(values: np.ndarray, start: int = MONDAY, resource: Resource = Resource.CPU) -> Usage[NodeRef]:
    refs = tuple(NodeRef(str(i)) for i in range(len(values)))
    grid = TimeGrid(start, 300, values.shape[1])
    return Usage(refs, grid, values.astype(np.float32), resource, Statistic.MEAN)


def portrait_of(series: np.ndarray, resource: Resource = Resource.CPU) -> Portraits[NodeRef]:
    return build(NODES[:1], np.array([0]), usage_of(series[None], resource=resource), DEFAULTS)


def test_the_columns_of_a_small_example() -> None:
    # Two pods of one container on Monday 00:00..00:35; the gap counts for neither.
    values = np.array([[1, 2, 3, 4, 5, 6, 7.0], [9, np.nan, 1, 1, 1, 1, 1.0]])
    portraits = build(NODES, np.array([0, 0]), usage_of(values), DEFAULTS)
    assert portraits.samples.tolist() == [13, 0]
    # Sums 28 and 14.
    assert portraits.mean[0] == pytest.approx(42 / 13)
    assert portraits.maximum[0] == 9
    assert np.isnan(portraits.maximum[1])
    # First half hour: (21 + 13) / 11; second: (7 + 1) / 2. Workdays are row 0.
    assert (portraits.slot_sums[0, 0, :2].tolist(), portraits.slot_counts[0, 0, :2].tolist()) == ([34, 8], [11, 2])
    assert not portraits.slot_counts[0, 1].any()
    assert portraits.slot_maxima[0, 0, :2].tolist() == [9, 7]
    assert portraits.daily_maxima[0, -1] == 9
    assert np.isnan(portraits.daily_maxima[0, :-1]).all()
    assert (portraits.first_seconds[0], portraits.last_seconds[0]) == (MONDAY, MONDAY + 6 * 300)
    assert portraits.coverage.tolist() == [1.0, 0.0]
    assert portraits.span_days == pytest.approx([30 / 1440, 0])


@pytest.mark.parametrize(("resource", "level"), [(Resource.CPU, 3e6), (Resource.MEMORY, 12e12)])
def test_a_total_of_thousands_of_cores_has_quantiles_and_a_pattern(resource: Resource, level: float) -> None:
    series = level * (1 + 0.5 * np.sin(2 * np.pi * HOURS / 24))
    portrait = portrait_of(series, resource)
    low, middle, high = portrait.percentiles((0.05, 0.5, 0.95))[0]
    # A bucket ends up to 5 % above its samples; the newest half day, the lower one, draws the median below the level.
    assert [low, high] == pytest.approx(np.quantile(series, [0.05, 0.95]), rel=0.06)
    assert low < 0.8 * level < middle < level
    assert portrait.pattern == (Pattern.DAILY,)


def test_a_container_keeps_the_buckets_of_the_vertical_pod_autoscaler() -> None:
    refs = (ContainerRef(WorkloadRef("shop", "Deployment", "web"), "app"),)
    container = build(refs, np.array([0]), usage_of(np.full((1, 288), 3e6)), DEFAULTS)
    assert container.histograms.buckets == CPU_BUCKETS
    # Its last bucket, which begins at 1,021 cores, ends at the highest sample.
    assert container.percentile(0.5)[0] == 3e6


def test_coverage_counts_slots_where_no_pod_had_a_sample() -> None:
    values = np.array([[1, np.nan, np.nan, 1.0], [np.nan, 1, np.nan, np.nan]])
    # Slots 0, 1 and 3 of 4.
    assert build(NODES[:1], np.array([0, 0]), usage_of(values), DEFAULTS).coverage[0] == 0.75


def test_startup_samples_are_kept_apart() -> None:
    # The pod starts inside slot 1; 10 minutes later is inside slot 3, so slots 1, 2 and 3 began within the start-up.
    values = np.array([[1, 90, 80, 70, 2, 3.0]])
    portraits = build(NODES[:1], np.array([0]), usage_of(values), DEFAULTS, np.array([MONDAY + 400.0]))
    assert portraits.startup_max[0] == 90
    assert portraits.startup_samples[0] == 3
    assert portraits.maximum[0] == 3
    assert portraits.samples[0] == 3
    assert portraits.coverage[0] == 1.0


def test_an_unknown_pod_start_means_no_startup_phase() -> None:
    portraits = build(NODES[:1], np.array([0]), usage_of(np.array([[5.0]])), DEFAULTS, np.array([np.nan]))
    assert np.isnan(portraits.startup_max[0])
    assert portraits.samples[0] == 1


def test_a_day_that_is_no_longer_kept_leaves_the_maximum() -> None:
    keeping = PortraitSettings(days_kept=7)
    values = np.ones((1, 8 * 288))
    values[0, 5] = 100.0
    week = build(NODES[:1], np.array([0]), usage_of(values[:, : 7 * 288]), keeping)
    assert week.maximum[0] == 100
    later = update(week, NODES[:1], np.array([0]), usage_of(values[:, 7 * 288 :], MONDAY + 7 * DAY), keeping)
    assert later.maximum[0] == 1


def test_usage_that_does_not_follow_is_refused() -> None:
    portraits = portrait_of(np.ones(10))
    with pytest.raises(ValueError, match="does not follow"):
        update(portraits, NODES[:1], np.array([0]), usage_of(np.ones((1, 3))), DEFAULTS)


def test_an_hourly_step_is_refused() -> None:
    hourly = Usage((NODES[0],), TimeGrid(MONDAY, 3600, 1), np.ones((1, 1), np.float32), Resource.CPU, Statistic.MEAN)
    with pytest.raises(ValueError, match="half an hour"):
        build(NODES[:1], np.array([0]), hourly, DEFAULTS)


def assert_same(first: Portraits[NodeRef], other: Portraits[NodeRef]) -> None:
    assert first.refs == other.refs
    assert first.end_seconds == other.end_seconds
    exact = ("startup_max", "startup_samples", "first_seconds", "last_seconds", "seen", "daily_maxima", "daily_counts")
    for name in (*exact, "slot_counts", "slot_maxima"):
        np.testing.assert_array_equal(getattr(first, name), getattr(other, name), name)
    for name in ("square_sums", "daily_sums", "slot_sums", "mean", "coverage"):
        np.testing.assert_allclose(getattr(first, name), getattr(other, name), rtol=1e-9, err_msg=name)
    np.testing.assert_allclose(first.histograms.weights, other.histograms.weights, rtol=1e-9)


amounts = st.one_of(st.just(float("nan")), st.floats(0, 2e6, width=32))


@settings(deadline=None, max_examples=60)
@given(st.data(), st.integers(0, 287), st.sampled_from([1, 30]))
def test_updating_equals_rebuilding(data: st.DataObject, offset: int, repeat: int) -> None:
    values = data.draw(hnp.arrays(np.float64, st.tuples(st.just(3), st.integers(0, 40)), elements=amounts))
    values = np.repeat(values, repeat, axis=1)
    start, rows, starts = MONDAY + 300 * offset, np.array([0, 1, 0]), np.array([MONDAY + 1800.0, np.nan, MONDAY + DAY])
    cut = data.draw(st.integers(0, values.shape[1]))
    rebuilt = build(NODES, rows, usage_of(values, start), DEFAULTS, starts)
    part = build(NODES, rows, usage_of(values[:, :cut], start), DEFAULTS, starts)
    joined = update(part, NODES, rows, usage_of(values[:, cut:], start + 300 * cut), DEFAULTS, starts)
    assert_same(joined, rebuilt)


def test_a_new_ref_joins_an_update() -> None:
    values = np.arange(20.0).reshape(2, 10)
    values[1, :5] = np.nan
    early = build(NODES[:1], np.array([0]), usage_of(values[:1, :5]), DEFAULTS)
    late = update(early, NODES, np.array([0, 1]), usage_of(values[:, 5:], MONDAY + 1500), DEFAULTS)
    assert_same(late, build(NODES, np.array([0, 1]), usage_of(values), DEFAULTS))


def test_refs_in_another_order_go_to_their_own_portrait() -> None:
    values = np.arange(20.0).reshape(2, 10)
    early = build(NODES, np.array([0, 1]), usage_of(values[:, :5]), DEFAULTS)
    turned = usage_of(values[::-1, 5:], MONDAY + 1500)
    late = update(early, NODES[::-1], np.array([0, 1]), turned, DEFAULTS)
    assert_same(late, build(NODES, np.array([0, 1]), usage_of(values), DEFAULTS))


@pytest.mark.parametrize(
    ("pattern", "series"),
    [
        (Pattern.UNKNOWN, np.full(288, 100.0)),
        (Pattern.IDLE, 3 + 0.5 * NOISE),
        (Pattern.FLAT, 500 + 20 * NOISE),
        (Pattern.DAILY, 500 + 300 * np.sin(2 * np.pi * HOURS / 24) + 30 * NOISE),
        (Pattern.WEEKLY, np.where(HOURS // 24 % 7 < 5, 900, 300) + 30 * NOISE),
        (Pattern.TREND, 200 + 2 * HOURS + 10 * NOISE),
        (Pattern.BURSTY, np.where(NOISE > 1.5, 900, 50)),
    ],
)
def test_patterns(pattern: Pattern, series: np.ndarray) -> None:
    assert portrait_of(series).pattern == (pattern,)


def test_flat_memory_of_large_numbers_is_flat() -> None:
    # 64 GiB +- 1 MiB: the variance is far below what float64 squares can resolve and must not be read as a season.
    assert portrait_of(64 * 2.0**30 + 2.0**20 * NOISE, Resource.MEMORY).pattern == (Pattern.FLAT,)


def test_a_portrait_without_samples_is_unknown() -> None:
    portraits = portrait_of(np.full(3 * 288, np.nan))
    assert portraits.pattern == (Pattern.UNKNOWN,)
    assert np.isnan(portraits.percentile(0.9)[0])


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 60), st.integers(1, 40)), min_size=1, max_size=8))
def test_pods_that_come_and_go_leave_what_each_of_them_alone_would(lives: list[tuple[int, int, int]]) -> None:
    size = 120
    values = np.full((len(lives), size), np.nan)
    for row, (_, first, count) in enumerate(lives):
        values[row, first : first + count] = 10 * row + np.arange(count) % 7
    starts = np.array([MONDAY + 300.0 * first for _, first, _ in lives])
    target = np.array([container for container, _, _ in lives])
    pooled = build(NODES, target, usage_of(values), DEFAULTS, starts)
    each = [
        build(NODES, target[i : i + 1], usage_of(values[i : i + 1]), DEFAULTS, starts[i : i + 1])
        for i in range(len(lives))
    ]
    # Sums and counts add up over pods; maxima are the highest of theirs. Values are whole: no sum rounds.
    for column in ("slot_sums", "slot_counts", "daily_counts", "startup_samples", "square_sums"):
        assert (getattr(pooled, column) == sum(getattr(portraits, column) for portraits in each)).all()
    for column in ("daily_maxima", "startup_max", "slot_maxima"):
        highest = np.fmax.reduce([getattr(portraits, column) for portraits in each])
        np.testing.assert_array_equal(getattr(pooled, column), highest)
    weights = sum(portraits.histograms.weights for portraits in each)
    np.testing.assert_allclose(pooled.histograms.weights, weights, rtol=1e-12)
