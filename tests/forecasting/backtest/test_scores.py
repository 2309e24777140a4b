"""Scores of a back-test: relative loss, coverage, intervals and strata on ledgers worked out by hand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.usage.forecast import LEVELS
from cotenant.base.usage.usage import TimeGrid
from cotenant.forecasting.backtest import scores
from cotenant.forecasting.backtest.contenders import PathContender
from cotenant.forecasting.backtest.plan import HALF_HOURS, origins
from cotenant.forecasting.backtest.run import BacktestScores, Shard, daily_acf, run

MONDAY = 1_700_438_400
L95 = LEVELS.index(0.95)


@dataclass(frozen=True)
class Always:
    """Says one value at every level and slot."""

    value: float
    name: str

    def quantiles(self, history: np.ndarray, grid: TimeGrid, horizon: int) -> np.ndarray:  # noqa: ARG002 - the contract's
        return np.full((len(history), horizon, len(LEVELS)), self.value, dtype=np.float32)


def shard(values: np.ndarray, limit: float = 100.0) -> Shard:
    names = tuple(f"s{i}" for i in range(len(values)))
    limits = np.full(len(values), limit, dtype=np.float32)
    return Shard(names, TimeGrid(MONDAY, 1800, values.shape[1]), values.astype(np.float32), limits)


def ledger(values: np.ndarray, *say: float, **options: float) -> BacktestScores:
    backtest_shard = shard(values, **options)
    at = origins(backtest_shard.grid, HALF_HOURS)
    return run([backtest_shard], [PathContender(Always(v, f"always {v:g}")) for v in say], HALF_HOURS, at)


def test_relative_loss_is_the_geometric_mean_over_series_of_the_ratio() -> None:
    # Flat series at 10 and 40, 16 days. Mean pinball over 0.1 .. 0.9 of a value x too low: 0.5 x; too high: 0.5 x.
    values = np.repeat([[10.0], [40.0]], 16 * 48, axis=1)
    interval = scores.relative(ledger(values, 20, 30), "always 20", "always 30")
    # Series 10: |10 - 20| / |10 - 30| = 1/2. Series 40: |40 - 20| / |40 - 30| = 2. Geometric mean 1.
    assert interval.value == pytest.approx(1.0)
    assert (interval.series, interval.trials, interval.dropped) == (2, 10, 0)
    # Pooled: 2 x 0.5 x (10 + 20) / (10 + 40) = 0.6.
    assert scores.pooled_wql(ledger(values, 20), "always 20") == pytest.approx(0.6)


def test_ratios_are_held_within_a_hundred_and_series_without_a_scale_are_dropped_and_counted() -> None:
    values = np.repeat([[10.0], [0.0], [30.0]], 16 * 48, axis=1)
    interval = scores.relative(ledger(values, 10, 30), "always 10", "always 30")
    # Series 10: perfect, held at 1/100. Series 0 used nothing; series 30: the baseline lost nothing: both dropped.
    assert interval.value == pytest.approx(0.01)
    assert (interval.series, interval.dropped) == (1, 2)


def test_the_comparison_with_another_contender_is_paired() -> None:
    rng = np.random.default_rng(0)
    values = np.repeat(rng.uniform(100, 200, (25, 1)), 15 * 48, axis=1)
    book = ledger(values, 1000, 900, 50)
    interval = scores.against(book, "always 900", "always 1000", "always 50")
    # (900 - x) / (1000 - x) for each x, whatever the baseline lost.
    assert interval.value == pytest.approx(
        np.exp(np.log((900 - values[:, 0]) / (1000 - values[:, 0])).mean()), rel=1e-5
    )
    assert interval.low < interval.value < interval.high < 1


def test_coverage_counts_slots_at_or_below() -> None:
    values = np.tile(np.repeat([1.0, 3.0], 24), 16)[None]  # half of each day at 1, half at 3
    book = ledger(values, 1, 2, 3)
    assert scores.coverage(book, "always 1")[L95] == 0.5
    assert scores.coverage(book, "always 2")[L95] == 0.5
    assert scores.coverage(book, "always 3")[L95] == 1.0
    hourly = scores.hourly_coverage(book, "always 2")[:, L95]
    # The first 12 hours of the UTC day are at 1.
    assert hourly.tolist() == [1.0] * 12 + [0.0] * 12


def test_the_worst_decile_is_that_of_series() -> None:
    values = np.repeat(np.where(np.arange(20) < 2, 5.0, 1.0)[:, None], 16 * 48, axis=1)
    # 2 of 20 series are never covered by 3: they are the worst tenth; overall 18 / 20.
    book = ledger(values, 3)
    assert scores.worst_decile(book, "always 3")[L95] == 0
    assert scores.coverage(book, "always 3")[L95] == pytest.approx(0.9)


def test_mase_winkler_and_pinball_of_levels() -> None:
    values = np.tile(np.repeat([1.0, 3.0], 48), 8)[None]  # one day at 1, the next at 3
    book = ledger(values, 2)
    # |error| 1 always; the naive of the day is wrong by 2 always.
    assert scores.mase(book, "always 2") == pytest.approx(0.5)
    # Width 0; outside by 1 always: 2 / 0.2 x 1 = 10, relative to the mean of what came. Origins every 6 h from day 14
    # (at 1) to day 15 (at 3), 5 of them: 24 h ahead hold 0, 6, 12, 18, 24 h of 3: means 1, 1.5, 2, 2.5, 3; in all 2.
    assert scores.winkler(book, "always 2") == pytest.approx(10 / 2)
    # Half of the slots are 1 above (level x 1), half 1 below ((1 - level) x 1): 0.5 at every level.
    assert scores.pinball_by_level(book, "always 2") == pytest.approx(0.5)


def test_peaks_are_scored_where_there_is_one_and_abstention_where_there_is_none() -> None:
    moving = np.tile(np.r_[np.ones(18), np.full(6, 5.0), np.ones(24)], 16)
    values = np.stack([moving, np.ones(16 * 48)])
    peak_scores = scores.peaks(ledger(values, 2), "always 2")
    # A flat forecast never claims a peak: right on the second series, wrong on the first: precision 1/2, recall 1.
    assert peak_scores.abstain_precision == 0.5
    assert peak_scores.abstain_recall == 1.0
    assert peak_scores.hit.series == 1
    # It says 2 where 5 came: (2 - 5) / 5.
    assert peak_scores.height_50 == pytest.approx(-0.6)


def test_strata_by_season_by_idleness_and_by_age() -> None:
    day = np.r_[np.ones(24), np.full(24, 3.0)]
    noise = np.random.default_rng(1).uniform(1, 3, 16 * 48)
    values = np.stack([np.tile(day, 16), noise, np.full(16 * 48, 0.5)])
    values[1, : 5 * 48] = np.nan
    strata = scores.strata(ledger(values, 2))
    season, none, idle = (strata[k][:, 0] for k in ("ACF24 > 0.5", "ACF24 < 0.2", "idle (mean < 1 % of limit)"))
    assert season.tolist() == [True, False, False]
    assert none.tolist() == [False, True, False]  # a constant has no autocorrelation
    assert idle.tolist() == [False, False, True]  # 0.5 of 100
    assert "age < 1 d" not in strata
    # Series 1 was born on day 5: 9 days before the first origin.
    assert strata["age > 7 d"].all()


def test_autocorrelation_at_a_day_of_hourly_means() -> None:
    day = np.r_[np.ones(12), np.full(12, 3.0)]
    grid = TimeGrid(MONDAY, 3600, 24 * 10)
    values = daily_acf(np.stack([np.tile(day, 10), np.ones(240)]).astype(np.float32), grid)
    # The same a day later: 1; without variance: unknown.
    assert values[0] == pytest.approx(1.0)
    assert np.isnan(values[1])


def test_few_series_are_drawn_by_origin() -> None:
    rng = np.random.default_rng(5)
    values = rng.normal(0, 1, (4, 60))
    interval = scores.bootstrap(values)
    # Standard error of a mean over 4 x 60 independent values: 1 / sqrt(240) = 0.065; the interval is 3.9 of them.
    assert interval.high - interval.low == pytest.approx(3.92 / np.sqrt(240), rel=0.25)
    assert interval.low < values.mean() < interval.high


@given(st.integers(20, 60), st.integers(0, 2**31))
@settings(max_examples=10)
def test_an_interval_holds_its_value_and_comes_again_with_its_seed(size: int, seed: int) -> None:
    values = np.random.default_rng(seed).normal(0, 1, (size, 3))
    interval, two = scores.bootstrap(values, seed), scores.bootstrap(values, seed)
    assert interval == two
    assert interval.low <= interval.value <= interval.high


def test_shards_give_the_same_ledger_as_one_piece() -> None:
    rng = np.random.default_rng(2)
    backtest_shard = shard(rng.uniform(0, 5, (6, 16 * 48)))
    at = origins(backtest_shard.grid, HALF_HOURS)
    parts = [
        Shard(
            backtest_shard.names[i : i + 2],
            backtest_shard.grid,
            backtest_shard.values[i : i + 2],
            backtest_shard.limits[i : i + 2],
        )
        for i in (0, 2, 4)
    ]
    say = [PathContender(Always(2, "two"))]
    backtest_scores, many = run([backtest_shard], say, HALF_HOURS, at), run(parts, say, HALF_HOURS, at)
    assert many.names == backtest_scores.names
    assert np.array_equal(many.of_contender["loss"], backtest_scores.of_contender["loss"])
    assert np.array_equal(many.hourly_slots, backtest_scores.hourly_slots)
    assert many.level_loss == pytest.approx(backtest_scores.level_loss)
    assert run([], say, HALF_HOURS, at).names == ()
