"""Calibration of node peaks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.core.settings.sections.forecasts import NodePeakSettings
from forecasting.node_peaks.peak_records import MEMORY_SHAPES, SHAPES, records
from forecasting.node_peaks.peak_risk import Prepared, calibrate, thresholds, upper_quantile
from forecasting.node_peaks.peak_tails import EXCEEDANCES, TAILS


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=200), st.floats(0, 0.99))
def test_no_more_than_the_risk_lies_above_the_quantile(values, risk):
    values = np.sort(values)
    found = upper_quantile(values, risk)
    assert (values > found).sum() <= risk * len(values)
    assert found in values


TAIL = TAILS["record"]


def test_scores_of_many_days_decide_alone():
    scores = np.sort(np.random.default_rng(2).normal(0, 1, 20_000))
    of_cluster = thresholds(scores, TAIL, (0.05, 0.01), 1e6, NodePeakSettings())
    assert of_cluster == pytest.approx([upper_quantile(scores, 0.05), upper_quantile(scores, 0.01)], abs=0.02)


def test_a_small_risk_goes_beyond_the_highest_score_of_a_few_days_and_by_the_clusters_own_scale():
    scores = np.linspace(-1, 1, 201)
    one, ten = (thresholds(of, TAIL, (0.05, 0.001), 6, NodePeakSettings()) for of in (scores, 10 * scores))
    assert 1 < one[0] < one[1]
    # Median 0, q90 0.8: what the tail says in units of 0.8, never beyond its highest point.
    assert one[1] <= 0.8 * TAIL[-1] + 1e-9
    assert ten == pytest.approx([10 * value for value in one])


def test_little_evidence_lowers_the_risk():
    scores = np.linspace(-1, 1, 2001)
    short, long = (thresholds(scores, TAIL, (0.1,), days, NodePeakSettings())[0] for days in (3, 300))
    assert short > long
    # Of even scores there is nothing to standardise: they decide, at the lowered risk alone.
    assert thresholds(np.full(50, 2.0), TAIL, (0.1,), 3, NodePeakSettings()) == [2.0]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=100), st.floats(0.5, 200))
def test_a_smaller_risk_never_gets_a_lower_threshold(values, days):
    falling = thresholds(np.sort(values), TAIL, (0.3, 0.05, 0.01, 0.001), days, NodePeakSettings())
    assert falling == sorted(falling)


def test_every_shape_has_a_rising_tail():
    for shape in (*SHAPES, *MEMORY_SHAPES):
        assert len(TAILS[shape.name]) == len(EXCEEDANCES)
        assert list(TAILS[shape.name]) == sorted(TAILS[shape.name])


def test_few_nodes_risk_less_than_many_on_the_same_past():
    blocks = np.random.default_rng(6).uniform(80, 100, (2, 80))
    few, many = (calibrate(Prepared.of(records(np.tile(blocks, (n, 1)), 81), np.full(2 * n, 1000.0)), 0.05,
                           NodePeakSettings()) for n in (1, 20))  # fmt: skip
    assert few is not None
    assert many is not None
    assert (few.peaks > many.peaks[:2]).all()


def test_five_of_six_parts_of_the_past_decisions_are_tested():
    # 14 days: decisions from a week of record on that have an outcome stand on six days and a border.
    blocks = np.random.default_rng(3).uniform(90, 100, (40, 56))
    calibration = calibrate(Prepared.of(records(blocks, 57), np.full(40, 1000.0)), 0.05, NodePeakSettings())
    assert calibration is not None
    assert (calibration.days == 5).all()


def test_without_an_outcome_there_is_no_calibration():
    assert calibrate(Prepared.of(records(np.full((2, 28), 5.0), 5), np.full(2, 10.0)), 0.01, NodePeakSettings()) is None


def test_a_constant_class_is_lent_down_to_its_level():
    found = calibrate(Prepared.of(records(np.full((5, 80), 5.0), 53), np.full(5, 10.0)), 0.01, NodePeakSettings())
    assert found is not None
    # All days are 5 of 10: base and peak are 0.5 and nothing was ever passed.
    assert found.peaks == pytest.approx(0.5)
    assert (found.violation == 0).all()


def test_a_node_that_breaks_the_class_rule_decides_by_its_own_past():
    rng = np.random.default_rng(1)
    blocks = rng.uniform(90, 100, (200, 120))
    # One node's days alternate between 100 and 1..400: the class knows nothing like it.
    blocks[0] = np.repeat(np.where(np.arange(30) % 2, rng.uniform(1, 400, 30), 100.0), 4)
    of = Prepared.of(records(blocks, 93), np.full(200, 1000.0))
    alone, together = (calibrate(of, 0.02, NodePeakSettings(node_tolerance=t, prior_days=0)) for t in (2.0, 50.0))
    assert alone is not None
    assert together is not None
    assert alone.peaks[0] > together.peaks[0]
    assert alone.peaks[1:] == pytest.approx(together.peaks[1:], abs=0.02)
