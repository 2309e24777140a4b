"""A back-test of forecasts from its plan to its scores, for the command line and for Python."""

from __future__ import annotations

from dataclasses import replace

from cotenant.backtesting.sources import USAGE, Series
from cotenant.base.errors import NoData, NotEnoughHistory, UsageError
from cotenant.base.progress import Progress
from cotenant.base.resource import Resource
from cotenant.base.text import percent
from cotenant.base.usage.backtest import Horizon
from cotenant.base.usage.usage import DAY_SECONDS
from cotenant.forecasting.backtest.baselines import BASELINE, DEFAULT, SHORT_NAMES, by_name
from cotenant.forecasting.backtest.contenders import Contender, PathContender
from cotenant.forecasting.backtest.engine import EngineContender
from cotenant.forecasting.backtest.plan import HALF_HOURS, HOURLY_WEEK, BacktestPlan, origins
from cotenant.forecasting.backtest.run import BacktestScores, run


def plan_of(horizon: Horizon, resource: Resource, known_share: float) -> BacktestPlan:
    """Half hours or hours, joined as forecasts of the resource are served."""
    plan = HALF_HOURS if horizon is Horizon.DAY else HOURLY_WEEK
    return replace(plan, known_share=known_share, statistic=USAGE[resource].spec.statistic)


def contenders(baselines: str | None, resource: Resource, horizon: Horizon) -> list[Contender]:
    """The baselines asked for ("B1,B14"), B1 always among them, and the engine where it forecasts so far."""
    requested = [b.strip() for b in baselines.split(",")] if baselines else list(DEFAULT)
    for name in requested:
        if name not in SHORT_NAMES:
            raise UsageError(f"there is no baseline {name!r}", fix=f"There are: {', '.join(SHORT_NAMES)}.")
    names = dict.fromkeys([BASELINE, *requested])
    paths: list[Contender] = [PathContender(by_name(name)) for name in names]
    return [EngineContender(resource), *paths] if horizon is Horizon.DAY else paths


def run_backtest(
    series: Series, plan: BacktestPlan, who: list[Contender], most: int, progress: Progress
) -> BacktestScores:
    """Scores of all at up to `most` origins; NotEnoughHistory says how many days there are and how many it takes."""
    at = origins(series.grid, plan, most)
    needed = plan.history_days + plan.horizon_hours / 24
    if not at:
        days = series.grid.size * series.grid.step_seconds / DAY_SECONDS
        raise NotEnoughHistory(
            f"{series.title} spans {days:.1f} days; a back-test needs {needed:.0f}", fix="Keep more history."
        )
    if plan.step_seconds % series.grid.step_seconds:
        raise UsageError(
            f"{series.title} has a value every {series.grid.step_seconds} s; half hours cannot be made of them",
            fix="A horizon of 7d works on whole hours.",
        )
    progress.stage("Back-test", series.shard_count * len(at) * len(who))
    ledger = run(series.shards(), who, plan, at, progress)
    if not (ledger.of_trial["slots"] > 0).any():
        raise NoData(
            f"no series of {series.title} is known for {percent(plan.known_share)} of {needed:.0f} days in a row"
        )
    return ledger
