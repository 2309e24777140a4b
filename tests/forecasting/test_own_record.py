"""Nodes whose record is surely long enough: nothing that Koordinator's sum of pods says can change their peaks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.identity import NodeRef
from cotenant.base.resource import Resource
from cotenant.base.usage.usage import Statistic, TimeGrid, Usage
from cotenant.forecasting.node_peaks.node_peak import FALLBACK, NodeLimits, has_own_record, node_peaks
from cotenant.forecasting.settings import NodePeakSettings

HOURS, NODES, START = 24, 4, 1_699_833_600
SETTINGS = NodePeakSettings()


def usage_of(values: np.ndarray) -> Usage[NodeRef]:
    refs = tuple(NodeRef(f"node-{number}") for number in range(len(values)))
    return Usage(refs, TimeGrid(START, 3600, values.shape[1]), values, Resource.CPU, Statistic.MEAN)


@pytest.mark.slow
@given(st.integers(0, 2**32 - 1), st.integers(5, 13), st.floats(0.3, 1.0), st.sampled_from(Resource))
def test_a_sum_of_pods_that_is_left_out_changes_no_peak(seed: int, days: int, share: float, resource: Resource) -> None:
    rng = np.random.default_rng(seed)
    values = rng.lognormal(5, 0.5, (NODES, days * HOURS)).astype(np.float32)
    # whole blocks of six hours are missing, single slots too; some of the pods have a part of what is there
    values[np.repeat(rng.random((NODES, days * 4)) > share, 6, axis=1)] = np.nan
    values[rng.random(values.shape) < 0.1] = np.nan
    reported = np.isfinite(values) & (rng.random(values.shape) < 0.95) & (rng.random((NODES, 1)) < 0.8)
    own = has_own_record(reported, HOURS, SETTINGS)
    usage = Usage(usage_of(values).refs, usage_of(values).grid, values, resource, Statistic.MEAN)
    limits, older = NodeLimits.of(np.full(NODES, 1000.0)), rng.lognormal(5, 0.5, (NODES, 8))
    sums = rng.lognormal(6, 1, NODES)
    with_sum, spared = (
        node_peaks(usage, limits, (0.01, 0.05), SETTINGS, pods, older) for pods in (sums, np.where(own, 0.0, sums))
    )
    np.testing.assert_array_equal(with_sum.peaks, spared.peaks)
    assert all(model != FALLBACK for model, sure in zip(with_sum.model, own.tolist(), strict=True) if sure)


@pytest.mark.parametrize(("hours", "sure"), [(7 * HOURS, True), (156, True), (150, False), (6 * HOURS, False)])
def test_a_record_is_long_enough_with_seven_days(hours: int, sure: bool) -> None:
    # 7 days of record (`minimum_days`), of which the oldest counts from half of its blocks on: 6.5 days = 156 hours.
    reported = np.ones((1, hours), dtype=bool)
    assert has_own_record(reported, HOURS, SETTINGS).tolist() == [sure]
    peaks = node_peaks(usage_of(np.full((1, hours), 5, dtype=np.float32)), NodeLimits.of([10.0]), (0.01,), SETTINGS)
    assert (peaks.model[0] != FALLBACK) == sure


def test_pods_that_come_and_go_leave_no_sure_record() -> None:
    reported = np.zeros((2, 10 * HOURS), dtype=bool)
    reported[0, -3 * HOURS :] = True
    assert has_own_record(reported, HOURS, SETTINGS).tolist() == [False, False]
