"""Static predictors of a node's 24-hour peak: their formulas on numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cotenant_lab.backtest.peaks import (
    PEAK_BASELINES,
    BorgDefault,
    CranePeak,
    KoordinatorMin,
    Larger,
    MaxOfDays,
    NoOvercommit,
    NSigma,
    ResourceCentralLike,
    VpaLike,
    node_total,
    oracle,
)

DAY = 288
LIMITS = np.array([4.0, 2.0])


def two_pods(days: int = 14) -> np.ndarray:
    """Pod 0 uses 1 and, in the first slot of each day, 3; pod 1 always 0.5."""
    usage = np.stack([np.full(days * DAY, 1.0), np.full(days * DAY, 0.5)]).astype(np.float32)
    usage[0, ::DAY] = 3.0
    return usage


def test_the_total_caps_each_pod_at_its_limit_and_is_a_gap_only_where_nothing_was_measured() -> None:
    usage = np.array([[9.0, 1.0, np.nan], [1.0, np.nan, np.nan]])
    # min(9, 4) + min(1, 2) = 5; 1 alone; nothing.
    assert node_total(usage, LIMITS) == pytest.approx([5.0, 1.0, np.nan], nan_ok=True)
    # The highest of them.
    assert oracle(usage, LIMITS) == 5.0


def test_shares_of_limits_do_not_look_at_usage() -> None:
    # 4 + 2 = 6; 0.9 x 6 = 5.4.
    assert NoOvercommit().peaks(two_pods(), LIMITS, DAY) == 6.0
    assert BorgDefault().peaks(two_pods(), LIMITS, DAY) == pytest.approx(5.4)


def test_the_maximum_of_days_looks_back_no_further_than_its_days() -> None:
    usage = two_pods()
    usage[0, 3 * DAY + 5] = 3.5  # day 3 of 14: within 14 days, not within 7
    # 3 + 0.5 daily; 3.5 + 0.5 once; x 1.1 = 3.85.
    assert MaxOfDays().peaks(usage, LIMITS, DAY) == pytest.approx(3.5)
    assert MaxOfDays(days=14).peaks(usage, LIMITS, DAY) == pytest.approx(4.0)
    assert MaxOfDays(factor=1.1).peaks(usage, LIMITS, DAY) == pytest.approx(3.85)


def test_vpa_adds_fifteen_percent_to_each_pods_percentile() -> None:
    # The 3s are 1 of 288 samples: p90 of pod 0 is 1. 1.15 x (1 + 0.5) = 1.725.
    assert VpaLike().peaks(two_pods(), LIMITS, DAY) == pytest.approx(1.725)


def test_koordinator_takes_the_larger_of_the_pods_sum_and_their_total() -> None:
    usage = np.full((2, 14 * DAY), 0.1, dtype=np.float32)
    usage[0, : 14 * DAY : 30] = 1.0  # 3.3 % of samples each, never together: a pod's p95 stays at 0.1, ...
    usage[1, 15::30] = 1.0  # ... of the total 6.7 % are 1.1
    # pods: 1.1 x (0.1 + 0.1) = 0.22; total: 1.1 x 1.1 = 1.21.
    assert KoordinatorMin().peaks(usage, LIMITS, DAY) == pytest.approx(1.21, rel=1e-6)
    # The other way round with peaks at one time of both: p95 of pods 1 each -> 2.2; of the total 1.1 x 2 = 2.2;
    both = np.full((2, 14 * DAY), 0.1, dtype=np.float32)
    both[:, ::10] = 1.0
    assert KoordinatorMin().peaks(both, LIMITS, DAY) == pytest.approx(2.2, rel=1e-6)


def test_koordinators_histogram_rounds_up_to_the_end_of_a_bucket() -> None:
    usage = np.full((1, 14 * DAY), 0.06, dtype=np.float32)
    # Buckets of 0.025 growing by 5 %: they start at 0, 0.025, 0.05125, 0.0788125: 0.06 rounds up to 0.0788125.
    values = KoordinatorMin(first_bucket=0.025).peaks(usage, np.array([1.0]), DAY)
    assert values == pytest.approx(1.1 * 0.0788125)


def test_a_young_pod_counts_with_its_limit() -> None:
    usage = two_pods()
    usage[1, :-23] = np.nan  # 23 samples: one too few
    # 4 would be pod 0's limit; its own peak is 1 (p99 of the last 10 h, without the daily 3) + limit 2.
    assert ResourceCentralLike().peaks(usage, LIMITS, DAY) == pytest.approx(3.0)
    # N-sigma: pod 0 has mean 1/4, no deviation in the last 10 h: 1 + limit 2.
    assert NSigma().peaks(usage, LIMITS, DAY) == pytest.approx(3.0)
    usage[1, -24] = 0.5
    assert ResourceCentralLike().peaks(usage, LIMITS, DAY) == pytest.approx(1.5)
    # Koordinator waits a whole day: 1.1 x 1 + 2.
    assert KoordinatorMin().peaks(usage, LIMITS, DAY) == pytest.approx(3.1)


def test_n_sigma_uses_the_sample_deviation() -> None:
    usage = np.tile(np.array([1.0, 2.0], dtype=np.float32), 60)[None, :]
    # Ratio to the limit 10: 60 x 0.1 and 60 x 0.2: mean 0.15, sample deviation 0.05 x sqrt(120 / 119).
    expected = 10 * (0.15 + 5 * 0.05 * np.sqrt(120 / 119))
    assert NSigma().peaks(usage, np.array([10.0]), DAY) == pytest.approx(expected, rel=1e-6)
    # Never above the limit: 0.15 + 5 sigma of a limit of 2 would be 2.75.
    assert NSigma().peaks(usage, np.array([2.0]), DAY) == pytest.approx(2.0)


def test_crane_predicts_the_highest_point_of_the_total() -> None:
    slots = np.arange(14 * DAY)
    wave = (1 + 0.5 * np.sin(2 * np.pi * slots / DAY)).astype(np.float32)
    # Two pods of a wave between 0.5 and 1.5: the total's highest slot is 3, which the maximum of the slot finds.
    assert CranePeak().peaks(np.stack([wave, wave]), LIMITS, DAY) == pytest.approx(3.0, rel=0.02)


def test_the_larger_of_two_is_taken_node_by_node() -> None:
    usage = np.stack([two_pods(), 0.1 * two_pods()])
    limits = np.stack([LIMITS, LIMITS])
    both = Larger((MaxOfDays(), BorgDefault(share=0.2, name="a fifth")), name="larger")
    # Node 0: max(3.5, 1.2); node 1: max(0.35, 1.2).
    assert both.peaks(usage, limits, DAY) == pytest.approx([3.5, 1.2])


@given(arrays(np.float32, (3, 2, 60), elements=st.floats(0, 8, width=32)), st.integers(0, 59))
@settings(max_examples=40)
def test_every_prediction_is_between_zero_and_the_limits_and_nodes_do_not_mix(usage: np.ndarray, gap: int) -> None:
    usage[0, 0, :gap] = np.nan
    limits = np.broadcast_to(LIMITS, (3, 2))
    for predictor in PEAK_BASELINES:
        together = predictor.peaks(usage, limits, DAY)
        assert together.shape == (3,)
        assert (together >= 0).all()
        assert (together <= limits.sum(axis=-1) * (1 + 1e-6)).all()
        alone = predictor.peaks(usage[1], LIMITS, DAY)
        assert alone == pytest.approx(together[1], rel=1e-6)


def test_a_node_of_silent_pods_keeps_their_limits() -> None:
    silent = np.full((2, 3 * DAY), np.nan, dtype=np.float32)
    for predictor in PEAK_BASELINES:
        if not isinstance(predictor, BorgDefault):
            assert predictor.peaks(silent, LIMITS, DAY) == 6.0, predictor.name
