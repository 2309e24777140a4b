"""Decision scores of reclaim, on figures that can be checked by hand."""

import numpy as np
import pytest

from cotenant.backtesting.reclaim import (
    ReclaimTrial,
    at_violation,
    calibrated_peaks,
    compare,
    concatenate_tallies,
    curve,
    frontier,
    highest_of,
    hindsight,
    is_reachable,
    tallies_by_factor,
    tally,
)
from cotenant.forecasting.settings import NodePeakSettings

SLOTS = 8  # four blocks of two slots a day
DEFAULT = NodePeakSettings()


def daily(*nodes: list[int]) -> ReclaimTrial:
    """Each node's usage constant through each day."""
    return ReclaimTrial(np.repeat(np.array(nodes, dtype=float), SLOTS, axis=1), np.full(len(nodes), 10.0), SLOTS)


def test_scores_of_one_decision_by_hand() -> None:
    # 14 days at 4, then a day at 5: one decision, whose day is whole.
    trial = daily([4] * 14 + [5])
    short_tally = tally(trial, np.array([[4.0]]))
    # P = 4 < PO = 5: violated, (5 - 4) / 5 deep, (10 - 4) / (10 - 5) of the oracle's savings.
    assert (short_tally.violation, short_tally.mean_severity, short_tally.savings_share) == pytest.approx(
        (1.0, 0.2, 1.2)
    )
    # In force for six hours, all of them 1 above: 6 core-hours of the unit are evicted.
    assert short_tally.sample_violation == 1
    assert short_tally.evicted_hours.sum() == pytest.approx(6)
    full_tally = tally(trial, np.array([[5.0]]))
    assert (full_tally.violation, full_tally.savings_share, full_tally.evicted_hours.sum()) == (0, 1, 0)


def test_predictions_above_the_limit_count_as_the_limit() -> None:
    assert tally(daily([4] * 14 + [5]), np.array([[99.0]])).savings_share == 0


def test_the_highest_of_7_days_forgets_the_eighth() -> None:
    trial = daily([9] + [4] * 7 + [4] * 6 + [4])
    assert highest_of(trial, 7)[0, 0] == 4
    assert highest_of(trial, 14)[0, 0] == 9


def test_the_constant_chosen_in_hindsight_is_passed_as_often_as_it_may_be() -> None:
    trial = daily([1] * 14 + [2, 3, 4, 5])
    # 13 decisions, every six hours from day 14 to the start of day 17: the day that comes peaks at 2 once, then at 3, 4
    # and 5 four times each, for a day that is partly the next one has its peak.
    values = hindsight(trial, 4 / 13)
    assert set(values.ravel().tolist()) == {4.0}
    assert tally(trial, values).violation == pytest.approx(4 / 13)
    assert set(hindsight(trial, 0.01).ravel().tolist()) == {5.0}


def test_curves_are_read_at_equal_violation_between_their_settings() -> None:
    trial = daily([4] * 14 + [5], [4] * 14 + [8])
    settings = {f: tally(trial, np.full((2, 1), 5.0) * f) for f in (1.0, 1.6)}
    # At 1: node two is violated (0.5), lent 10 of 7; at 1.6: nothing (0), lent 4 of 7; halfway: 7 of 7.
    assert at_violation(settings, 0.25) == pytest.approx(1.0)
    assert [p.violation for p in curve("x", settings).points] == [0, 0.5]


def test_a_violation_that_no_setting_comes_down_to_lends_nothing() -> None:
    trial = daily([4] * 14 + [5], [4] * 14 + [8])
    # Lent 5.0, node two is violated at its one decision: half of all. Below that only nothing can be lent.
    settings = {1.0: tally(trial, np.full((2, 1), 5.0))}
    assert (is_reachable(settings, 0.49), at_violation(settings, 0.49)) == (False, 0.0)
    # 10 of 7 were lent, the worst of all settings does no worse than 0.9.
    assert is_reachable(settings, 0.9) and at_violation(settings, 0.9) == pytest.approx(10 / 7)


def random_trial() -> ReclaimTrial:
    rng = np.random.default_rng(3)
    level = rng.uniform(2, 4, (20, 1))
    days = np.clip(level + rng.exponential(0.6, (20, 40)), 0, 10)
    return ReclaimTrial(np.repeat(days, SLOTS, axis=1), np.full(20, 10.0), SLOTS)


def test_the_rolling_replay_is_what_calibration_says_at_each_decision_and_sees_no_future() -> None:
    trial = random_trial()
    cut = 30 * SLOTS
    spoiled = trial.totals.copy()
    spoiled[:, cut:] = 10.0
    same = [
        calibrated_peaks(ReclaimTrial(t, trial.limits, SLOTS), (0.05,), DEFAULT)[0.05] for t in (trial.totals, spoiled)
    ]
    before = trial.decisions <= 30 * 4
    assert np.array_equal(same[0][:, before], same[1][:, before])
    assert not np.array_equal(same[0], same[1])
    alone = calibrated_peaks(ReclaimTrial(trial.totals[:, : cut + SLOTS], trial.limits, SLOTS), (0.05,), DEFAULT)[0.05]
    assert np.array_equal(alone[:, -1], same[0][:, before][:, -1])


@pytest.mark.slow
def test_a_curve_does_not_differ_from_itself_and_a_worse_one_does() -> None:
    trial = random_trial()
    peaks = highest_of(trial, 14)
    blind = np.random.default_rng(0).uniform(0.5, 1.5, peaks.shape)
    ours, worse = tallies_by_factor(trial, peaks), tallies_by_factor(trial, peaks * blind)
    assert compare(ours, ours, 0.05) == (0, 0, 0)
    difference, low, high = compare(ours, worse, 0.05)
    assert low <= difference <= high
    assert low > 0


def test_trials_are_joined_node_by_node() -> None:
    trial = random_trial()
    nodes_tally = tally(trial, highest_of(trial, 7))
    both = concatenate_tallies([nodes_tally, nodes_tally])
    assert both.violation == nodes_tally.violation
    assert len(both.decisions) == 2 * len(nodes_tally.decisions)


def test_a_frontier_holds_our_curve_and_the_static_ones() -> None:
    node_frontier = frontier("nodes", random_trial(), DEFAULT)
    assert [c.ours for c in node_frontier.curves] == [True, False, False]
    violations = [p.violation for p in node_frontier.curves[0].points]
    assert violations == sorted(violations)
    # A larger risk lends more: savings rise along our curve.
    savings = [p.savings for p in node_frontier.curves[0].points]
    assert savings == sorted(savings)
