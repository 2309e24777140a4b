"""How good the served path is on single 5-minute values: loss against the best baseline, and coverage of its q95.

What is scored is `Forecasts.fine`, as `cotenant get forecast --fine` and the charts serve it, with default settings.
Two kinds of baselines, both scored on the same 5-minute values: those that forecast half hours, as the engine does,
each value getting its half hour's forecast; and those that forecast every 5 minutes, which is six times the work.
The goal is against the best of the first kind; the second stands beside.

Populations: the four of bench decisions, a cluster aggregate (azure_v2 total; that of alibaba2018 is too short) and
request rates of a site; the last three have one to four series, so intervals are over origins. The number of level
bands, of days and of nodes was chosen on azure_v1 CPU (8 origins) and bitbrains_rnd CPU and memory (3 each); the
other populations were looked at only. Origins here are spread anew over all 6-hourly ones.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import numpy as np

from bench.forecasting.decisions import B1, POPULATIONS, Population, within
from bench.record import Row, above, below, record_on_traces
from cotenant.base.identity import NodeRef
from cotenant.base.resource import Resource
from cotenant.base.usage.forecast import LEVELS
from cotenant.base.usage.usage import Statistic, TimeGrid, Usage
from cotenant.forecasting.backtest import scores
from cotenant.forecasting.backtest.baselines import by_name
from cotenant.forecasting.backtest.contenders import Contender, PathContender
from cotenant.forecasting.backtest.engine import ENGINE, EngineContender
from cotenant.forecasting.backtest.plan import FIVE_MINUTES, origins
from cotenant.forecasting.backtest.run import BacktestScores, run
from cotenant.forecasting.engine import STEP_SECONDS
from cotenant.forecasting.five_minutes import five_minutes

Q95 = LEVELS.index(0.95)
NAMED = ("B1", "B2", "B14")
SLOTS = STEP_SECONDS // FIVE_MINUTES.step_seconds
OTHERS = (
    Population("cluster aggregates CPU", "cluster_aggregates", "cpu", 40, None, np.nan),
    Population("web request rates", "web_request_rates", "requests_per_min", 40, None, np.nan),
)
VM_ORIGINS, CLUSTER_ORIGINS = 8, 40
CEILING, ENOUGH = 0.90, 4 / 5
SERIES = 1000


def ledger_of(population: Population, folder: Path) -> BacktestScores:
    shard = population.shard(folder)
    half_hours = population.plan
    plan = replace(FIVE_MINUTES, statistic=half_hours.statistic)
    most = VM_ORIGINS if len(shard.names) >= scores.FEWEST_SERIES else CLUSTER_ORIGINS
    at = origins(shard.grid, half_hours, most)
    who: list[Contender] = [EngineContender(population.resource)]
    who += [PathContender(by_name(name), slots) for slots in (SLOTS, 1) for name in NAMED]
    return run([shard], who, plan, at)


def rows_of(name: str, ledger: BacktestScores) -> tuple[float, list[Row]]:
    """The loss beside the best baseline on half hours, and all rows of a population."""
    losses = {who: scores.relative(ledger, who, B1) for who in ledger.contenders}
    own = losses.pop(ENGINE)
    joint = {who: loss.value for who, loss in losses.items() if "as one" in who}
    single = {who: loss.value for who, loss in losses.items() if who not in joint}
    best, finest = min(joint, key=joint.__getitem__), min(single, key=single.__getitem__)
    paired = scores.against(ledger, ENGINE, best, B1)
    beside = scores.against(ledger, ENGINE, finest, B1)
    size = f"{paired.series} series, {len(ledger.origins)} origins; interval {paired.low:.3f}..{paired.high:.3f}"
    others = f"{finest} at 5 minutes: {beside.value:.3f} of it, {beside.low:.3f}..{beside.high:.3f}"
    coverages = {who: float(scores.coverage(ledger, who)[Q95]) for who in (ENGINE, best, finest)}
    note = f"{best} {coverages[best]:.3f}, {finest} at 5 minutes {coverages[finest]:.3f}"
    return paired.value, [
        below(f"{name}: relWQL / that of the best baseline on half hours", round(paired.value, 3), "ratio", CEILING,
              f"best {best}; {size}"),
        Row(f"{name}: relWQL / that of the best baseline at 5 minutes", round(beside.value, 3), "ratio", note=others),
        Row(f"{name}: relWQL against B1 at 5 minutes", round(own.value, 3), "ratio"),
        within(f"{name}: coverage of q95", coverages[ENGINE], 0.94, 0.965, note),
    ]  # fmt: skip


def cost() -> Row:
    """CPU seconds that 5-minute quantiles take of 1,000 series x 14 days, made up."""
    rng = np.random.default_rng(0)
    refs = tuple(NodeRef(str(row)) for row in range(SERIES))
    past = rng.gamma(2, 50, (SERIES, 14 * 288)).astype(np.float32)
    usage = Usage(refs, TimeGrid(0, 300, past.shape[1]), past, Resource.CPU, Statistic.MEAN)
    path = np.sort(rng.gamma(20, 5, (SERIES, 48, len(LEVELS))).astype(np.float32), axis=2)
    coarse, seconds = usage.coarser(SLOTS), []
    for _ in range(5):
        began = time.process_time()
        five_minutes(path, usage, coarse)
        seconds.append(time.process_time() - began)
    return below(f"quantiles of 5-minute values, {SERIES:,} series x 14 d, one core", min(seconds), "s", 0.5)


def measure(folder: Path) -> list[Row]:
    """All rows, in the order of the page."""
    rows: list[Row] = []
    ratios = []
    for population in (*POPULATIONS, *OTHERS):
        ratio, of_population = rows_of(population.name, ledger_of(population, folder))
        ratios.append(ratio)
        rows += of_population
    share = sum(ratio <= CEILING for ratio in ratios) / len(ratios)
    what = f"share of populations whose loss is at most {CEILING:.2f} of the best baseline's"
    return [above(what, round(share, 3), "ratio", ENOUGH), *rows, cost()]


if __name__ == "__main__":
    record_on_traces("decisions_fine", measure)
