"""Core-seconds short: what an excess costs until batch is suppressed, what suppression leaves, and who is over it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.recommender.shortage_scores import Reaction, core_seconds_short
from cotenant.backtesting.reclaim import ReclaimTrial, overshoot, tally

STEP = 300.0


@pytest.mark.parametrize(
    ("reaction", "idle", "excess", "short"),
    [
        (Reaction(1.0, 0.0), 0.0, [0.0, 2.0, 0.0], [0.0, 2.0, 0.0]),
        (Reaction(1.0, 0.0), 0.0, [2.0, 2.0], [2.0, 2.0]),
        (Reaction(2.0, 0.0), 0.0, [0.5], [1.0]),
        # batch keeps 20 m for the other 299 s, or as little as the excess
        (Reaction(1.0, 0.02), 0.0, [2.0, 0.01], [2.0 + 0.02 * 299, 0.01 * 300]),
        # prod leaves 15 m, and nobody misses those: batch takes 5 m that prod wants; then prod leaves enough
        (Reaction(1.0, 0.02), 0.015, [2.0], [2.0 + 0.005 * 299]),
        (Reaction(1.0, 0.02), 4.0, [2.0], [2.0]),
        # evicted after 400 s of the same excess: 100 s into the second sample; a pause begins anew
        (Reaction(1.0, 0.02, 400.0), 0.0, [2.0, 2.0, 2.0, 0.0, 2.0], [7.98, 2.0 + 0.02 * 99, 0.0, 0.0, 7.98]),
        (Reaction(1.0, 0.0, 0.5), 0.0, [2.0, 2.0], [1.0, 0.0]),
        (Reaction(600.0, 0.0), 0.0, [2.0], [600.0]),
    ],
    ids=[
        "once",
        "again",
        "slower",
        "floor",
        "nearly idle",
        "idle",
        "evicted",
        "evicted before the agent",
        "slower than a sample",
    ],
)
def test_worked_shortages(reaction: Reaction, idle: float, excess: list[float], short: list[float]) -> None:
    over = np.array([excess])
    assert core_seconds_short(over, np.full(over.shape, idle), STEP, reaction)[0] == pytest.approx(short)


excesses = st.lists(st.floats(0, 64), min_size=1, max_size=12).map(lambda row: np.array([row]))
reactions = st.builds(Reaction, st.floats(0, 600), st.floats(0, 2), st.none() | st.floats(0, 2000))


@given(excesses, st.floats(0, 64), reactions, st.floats(0, 100))
def test_no_reaction_makes_it_longer_than_the_samples_and_a_slower_one_never_shorter(
    excess: np.ndarray, free: float, reaction: Reaction, more: float
) -> None:
    idle = np.full(excess.shape, free)
    short = core_seconds_short(excess, idle, STEP, reaction)
    assert (short >= 0).all() and (short <= excess * STEP + 1e-9).all()
    slower = Reaction(reaction.agent_seconds + more, reaction.floor_cores, reaction.eviction_seconds)
    assert (core_seconds_short(excess, idle, STEP, slower) >= short - 1e-9).all()
    bare_reaction = Reaction(reaction.agent_seconds, reaction.floor_cores, None)
    assert (core_seconds_short(excess, idle, STEP, bare_reaction) >= short - 1e-9).all()


def test_what_is_announced_joins_the_prediction_in_force() -> None:
    totals = np.full((1, 16 * 8), 10.0)  # two slots every six hours; fourteen days before the first decision
    totals[0, 14 * 8 + 1 :] = 30.0
    totals[0, 15 * 8] = np.nan
    trial = ReclaimTrial(totals, np.array([100.0]), 8)
    peaks = np.full((1, len(trial.decisions)), 20.0)
    over, measured = overshoot(trial, peaks)
    assert over[0].tolist() == [0.0] + [10.0] * 7 + [0.0] + [10.0]
    assert not measured[0, 8]
    announced = np.zeros(over.shape)
    announced[0, 1:4] = [4.0, 10.0, 50.0]
    assert overshoot(trial, peaks, announced)[0][0].tolist() == [0.0, 6.0, 0.0, 0.0, *[10.0] * 4, 0.0, 10.0]
    assert tally(trial, peaks).above[0] == 8
