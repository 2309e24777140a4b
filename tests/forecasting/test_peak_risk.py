"""Calibration of node peaks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.forecasting.node_peaks.peak_records import MEMORY_SHAPES, SHAPES, PeakShape, records
from cotenant.forecasting.node_peaks.peak_risk import Prepared, calibrate, thresholds, upper_quantile
from cotenant.forecasting.node_peaks.peak_tails import EXCEEDANCES, TAILS
from cotenant.forecasting.settings import NodePeakSettings


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=200), st.floats(0, 0.99))
def test_no_more_than_the_risk_lies_above_the_quantile(values: list[float], risk: float) -> None:
    ordered = np.sort(values)
    found = upper_quantile(ordered, risk)
    assert (ordered > found).sum() <= risk * len(ordered)
    assert found in ordered


TAIL = TAILS["record"]


def test_scores_of_many_days_decide_alone() -> None:
    scores = np.sort(np.random.default_rng(2).normal(0, 1, 20_000))
    of_cluster = thresholds(scores, TAIL, (0.05, 0.01), 1e6, NodePeakSettings())
    assert of_cluster == pytest.approx([upper_quantile(scores, 0.05), upper_quantile(scores, 0.01)], abs=0.02)


def at(rate: float, points: tuple[float, ...]) -> float:
    """Score that a tail exceeds with a rate, linear in its logarithm."""
    return float(np.interp(-np.log(rate), -np.log(EXCEEDANCES), points))


def test_a_calm_fortnight_gets_the_tail_of_public_traces_whatever_its_own_calm() -> None:
    scores = np.linspace(-1, 1, 201) / 1000
    calm, calmer = (thresholds(of, TAIL, (0.01, 0.001), 6, NodePeakSettings()) for of in (scores, scores / 10))
    # 6 days beside 10 prior days: the tail weighs 0.625 and no own score is near: it may be exceeded in risk / 0.625.
    # The search stands on twenty places between two points.
    assert calm == pytest.approx([at(0.016, TAIL.scores), at(0.0016, TAIL.scores)], abs=0.005)
    assert calmer == pytest.approx(calm, abs=1e-6)


def test_a_restless_cluster_gets_the_tail_in_units_of_its_own_scores() -> None:
    scores = np.linspace(-1, 1, 201)
    one, ten = (thresholds(of, TAIL, (0.05, 0.001), 6, NodePeakSettings()) for of in (scores, 10 * scores))
    # Median 0, q90 0.8: z in units of 0.8 lies above the tail of scores at every point.
    assert (0.8 * np.array(TAIL.scaled) >= TAIL.scores).all()
    assert one[1] == pytest.approx(0.8 * at(0.0016, TAIL.scaled), abs=0.01)
    assert ten == pytest.approx([10 * value for value in one])


@pytest.mark.parametrize("shape", [*SHAPES, *MEMORY_SHAPES], ids=lambda shape: shape.name)
@pytest.mark.parametrize("scale", [0.0, 1e-3, 1.0])
def test_a_risk_below_a_tails_last_point_costs_more_at_every_step(shape: PeakShape, scale: float) -> None:
    scores = np.linspace(-1, 1, 201) * scale
    risks = (1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 1e-6)
    found = thresholds(scores, TAILS[shape.name], risks, 6, NodePeakSettings())
    assert (np.diff(found) > 0).all()
    # The last point is exceeded in 0.05 %: of a mixture with 0.625 of the tail it is risk 0.03 %.
    assert found[2] > max(TAILS[shape.name].scores[-1], 0.8 * scale * TAILS[shape.name].scaled[-1])


def test_little_evidence_leaves_more_to_the_tail() -> None:
    scores = np.linspace(-1, 1, 2001) / 1000
    short, long = (thresholds(scores, TAIL, (0.01,), days, NodePeakSettings())[0] for days in (3, 300))
    assert short > long


def test_evidence_is_counted_in_days_and_not_in_nodes() -> None:
    # Nodes that do what others do, as on a day on which all exceed together, are no further evidence.
    blocks = np.random.default_rng(8).uniform(80, 100, (20, 80))
    some, many = (
        calibrate(Prepared.of(records(np.tile(blocks, (n, 1)), 53), np.full(20 * n, 1000.0)), 0.01, NodePeakSettings())
        for n in (1, 50)
    )
    assert some is not None
    assert many is not None
    assert many.peaks == pytest.approx(np.tile(some.peaks, 50), abs=1e-9)
    assert many.days.tolist() == some.days.tolist() * 50


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=100), st.floats(0.5, 200))
def test_a_smaller_risk_never_gets_a_lower_threshold(values: list[float], days: float) -> None:
    falling = thresholds(np.sort(values), TAIL, (0.3, 0.05, 0.01, 0.001), days, NodePeakSettings())
    assert falling == sorted(falling)


def test_every_shape_has_a_rising_tail() -> None:
    for shape in (*SHAPES, *MEMORY_SHAPES):
        for points in (TAILS[shape.name].scores, TAILS[shape.name].scaled):
            assert len(points) == len(EXCEEDANCES)
            assert list(points) == sorted(points)


def test_few_nodes_risk_less_than_many_on_the_same_past() -> None:
    blocks = np.random.default_rng(6).uniform(80, 100, (2, 80))
    few, many = (calibrate(Prepared.of(records(np.tile(blocks, (n, 1)), 81), np.full(2 * n, 1000.0)), 0.05,
                           NodePeakSettings()) for n in (1, 20))  # fmt: skip
    assert few is not None
    assert many is not None
    assert (few.peaks > many.peaks[:2]).all()


def test_five_of_six_parts_of_the_past_decisions_are_tested() -> None:
    # 14 days: decisions from a week of record on that have an outcome stand on six days and a border.
    blocks = np.random.default_rng(3).uniform(90, 100, (40, 56))
    calibration = calibrate(Prepared.of(records(blocks, 57), np.full(40, 1000.0)), 0.05, NodePeakSettings())
    assert calibration is not None
    assert (calibration.days == 5).all()


def test_without_an_outcome_there_is_no_calibration() -> None:
    assert calibrate(Prepared.of(records(np.full((2, 28), 5.0), 5), np.full(2, 10.0)), 0.01, NodePeakSettings()) is None


def test_a_class_that_was_constant_for_a_fortnight_keeps_what_the_tail_says() -> None:
    found = calibrate(Prepared.of(records(np.full((5, 80), 5.0), 53), np.full(5, 10.0)), 0.01, NodePeakSettings())
    assert found is not None
    # 49 decisions of five nodes have record and outcome: 6.125 days of ten nodes; the tail weighs 10 / 16.125 and may
    # be exceeded in 1.61 %. All scores are 0. Cheapest are the shapes with base 0.5 and spread 1 or 0.5.
    cheapest = (at(0.0161, TAILS["highest of 14 days"].scores), 0.5 * at(0.0161, TAILS["record"].scores))
    assert found.peaks == pytest.approx(0.5 + np.mean(cheapest), abs=0.002)
    assert (found.violation == 0).all()


def test_a_class_that_was_constant_for_months_is_lent_down_to_its_level() -> None:
    found = calibrate(Prepared.of(records(np.full((40, 416), 5.0), 361), np.full(40, 10.0)), 0.01, NodePeakSettings())
    assert found is not None
    # 89 days and 10 prior days: the tail may be exceeded in a tenth, which it is at 0.001 of the limit.
    assert found.peaks == pytest.approx(0.5, abs=0.003)


def test_a_node_that_breaks_the_class_rule_decides_by_its_own_past() -> None:
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
