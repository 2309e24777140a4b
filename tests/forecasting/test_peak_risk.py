"""Calibration of node peaks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.core.settings.sections.node_peak import NodePeakSettings
from forecasting.peak_records import records
from forecasting.peak_risk import Prepared, calibrate, lowered, upper_quantile


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=200), st.floats(0, 0.99))
def test_no_more_than_the_risk_lies_above_the_quantile(values, risk):
    values = np.sort(values)
    found = upper_quantile(values, risk)
    assert (values > found).sum() <= risk * len(values)
    assert found in values


def test_little_evidence_lowers_the_risk():
    given = NodePeakSettings(prior_days=10)
    # 10 days of evidence: half; 30 days: three quarters; none: nothing is risked.
    assert lowered(0.04, 10, given) == pytest.approx(0.02)
    assert lowered(0.04, 30, given) == pytest.approx(0.03)
    assert lowered(0.04, 0, given) == 0


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
