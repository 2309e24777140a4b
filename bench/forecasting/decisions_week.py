"""How good the week ahead is, hour by hour: against repeating last week, B1, B14, and MSTL with exponential smoothing.

14 days of history (15 and 28 beside), 168 hours ahead, origins evenly spread over all 6-hourly ones. Populations: the
google2019 cells, the cluster aggregates, request rates of a site, and sums of 15 random VMs (20 each, seeds below), as
a week ahead is asked of aggregates. Loss: relative to B2, the seasonal naive of the week with empirical residuals, as
relWQL everywhere else (geometric mean over series, paired bootstrap). Members and their weights were chosen on these
sets with other origins and draws; what would have to be better to be worth serving stands beside.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import numpy as np
import pandas as pd

from bench.record import Row, record_on_traces
from bench.traces import trace_matrix
from cotenant.base.usage.forecast import LEVELS
from cotenant.base.usage.usage import FloatMatrix, TimeGrid
from cotenant.base.usage.week import WEEK_HOURS
from cotenant.forecasting.backtest import scores
from cotenant.forecasting.backtest.baselines import by_name
from cotenant.forecasting.backtest.contenders import PathContender
from cotenant.forecasting.backtest.plan import HOURLY_WEEK, origins
from cotenant.forecasting.backtest.run import Shard, run
from cotenant.forecasting.base import Array, conform
from cotenant.forecasting.weeks.decomposition import DAY, SHORTEST, bridge_gaps, decompose_hourly_series
from cotenant.forecasting.weeks.week import WeekBlend

SINGLE = (("google2019_cells", "cpu_sum_raw"), ("cluster_aggregates", "cpu"), ("web_request_rates", "requests_per_min"))
POOLED = (("bitbrains_rnd", "cpu_usage_pct", 21), ("azure_v1_vms", "cpu_avg_pct", 22))
POOLS, VMS, ORIGINS = 20, 15, 14
Q95 = LEVELS.index(0.95)


@dataclass(frozen=True)
class Smoothed:
    """MSTL (STL of the day up to two weeks) takes the habits out; ETS(A,Ad,N) carries on the rest, its own variance."""

    name: str = "MSTL + ETS (statsmodels)"

    def quantiles(self, history: FloatMatrix, grid: TimeGrid, horizon: int) -> Array:
        smoothed = np.full((len(history), horizon, len(LEVELS)), np.nan)
        for row, values in enumerate(history):
            series, span = bridge_gaps(values.astype(np.float64), grid)
            if series.size >= SHORTEST and np.ptp(series) > 0:
                smoothed[row] = self.week_of(series, span)[:horizon]
        return conform(smoothed, history)

    def week_of(self, series: np.ndarray, grid: TimeGrid) -> np.ndarray:
        from scipy.stats import norm
        from statsmodels.tsa.exponential_smoothing.ets import ETSModel

        decomposition, hours = decompose_hourly_series(series, grid), np.arange(WEEK_HOURS)
        habits = decomposition.daily[-DAY:][hours % DAY] + (
            decomposition.weekly[-WEEK_HOURS:] if decomposition.weekly.any() else 0
        )
        model = ETSModel(
            pd.Series(decomposition.trend + decomposition.rest), error="add", trend="add", damped_trend=True
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ahead = model.fit(disp=False, maxiter=50).get_prediction(series.size, series.size + WEEK_HOURS - 1)
        deviation = np.sqrt(np.maximum(np.asarray(ahead.forecast_variance), 0))
        middle: np.ndarray = habits + np.asarray(ahead.predicted_mean)
        path: np.ndarray = middle[:, None] + deviation[:, None] * norm.ppf(LEVELS)
        return path


def shards(folder: Path) -> Iterator[tuple[str, Shard]]:
    for table, column in SINGLE:
        yield table, _shard(*trace_matrix(folder, table, column))
    for table, column, seed in POOLED:
        values, grid = trace_matrix(folder, table, column)
        rng = np.random.default_rng(seed)
        pools = [np.nansum(values[rng.permutation(len(values))[:VMS]], axis=0) for _ in range(POOLS)]
        yield f"{table} in sums of {VMS}", _shard(np.array(pools, dtype=np.float32), grid)


def _shard(values: np.ndarray, grid: TimeGrid) -> Shard:
    names = tuple(str(row) for row in range(len(values)))
    return Shard(names, grid, values, np.full(len(values), np.nan, dtype=np.float32))


def rows_of(name: str, shard: Shard, days: int) -> Iterator[Row]:
    plan = replace(HOURLY_WEEK, history_days=days)
    at = origins(shard.grid, plan, ORIGINS)
    if not at:
        return
    few = len(shard.names) < POOLS
    who = [WeekBlend(), *(by_name(b) for b in ("B2", "B1", "B14")), *([Smoothed()] if few else [])]
    ledger = run([shard], [PathContender(forecaster) for forecaster in who], plan, at)
    own, naive, strong = who[0].name, who[1].name, who[3].name
    loss = scores.relative(ledger, own, naive)
    paired = scores.against(ledger, own, strong, naive)
    covered_share = float(scores.coverage(ledger, own)[Q95])
    others = ", ".join(
        f"{forecaster.name} {scores.relative(ledger, forecaster.name, naive).value:.3f}" for forecaster in who[2:]
    )
    note = f"interval {loss.low:.3f}..{loss.high:.3f}; {others}; {len(shard.names)} series, {len(at)} origins"
    yield Row(f"{name}, {days} d of history: week ahead, relWQL against B2", round(loss.value, 3), "ratio", note=note)
    sure = f"interval {paired.low:.3f}..{paired.high:.3f}; coverage of its q95 {covered_share:.3f}"
    yield Row(f"{name}, {days} d of history: week ahead / B14", round(paired.value, 3), "ratio", note=sure)


def measure(folder: Path) -> list[Row]:
    """All rows, in the order of the page."""
    return [row for name, shard in shards(folder) for days in (14, 15, 28) for row in rows_of(name, shard, days)]


if __name__ == "__main__":
    record_on_traces("decisions_week", measure)
