"""Is a peak announced on the days that have one, is nothing announced on the others, and is its hour right?

The windows are those that a new install serves: of each series and origin one forecast with default settings, its peak
window or none. A day has a peak where (p95 - p5) / mean of its half hours is above 0.3; its peak is its run of two
hours with the highest mean. announced: of the days with a peak; silent: of the others; hour right: share of the days
with a peak on which one is announced whose start is at most an hour from the actual one. A baseline announces where its
own median has a peak, at its highest two hours. Goals: 0.78, 0.88, and the best baseline's hour + 0.05, whether or not
that baseline can be silent; how the best one does that is silent on 0.88 of the even days stands in the note, and what
a choice among all baselines and cotenant would reach that knew of each series which of them is right most often on the
days measured: no choice of one per series can do better.
Totals of whole clusters: a day counts where p95 - p5 is above 3 % of what is allocatable, which the traces do not say:
twice the mean is taken.

What was chosen on what: how past days vote (decay, steepness) on bitbrains_rnd CPU and memory, azure_v1, azure_v2 and
google2011_jobs (7 days of history), all series; 3 % for totals on the totals. The limit above which a peak is announced
and the path's say in it (about 35 variants) on every second series of bitbrains_rnd and azure_v1 at other origins and
on the memory of google2011_jobs, with a look at the rows below that say how silent they are. The weights of the timing
(about 60 variants, most within 0.01 of each other) were fitted on those and on the memory of google2019 cells,
google2011_machines, smd_servers, the highest CPU of azure_v2, alibaba's disks and web requests. Of the first three the
other series are measured here. Weights fitted to each population here, on its own days, do not do better.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import numpy as np
import numpy.typing as npt

from bench.forecasting.decisions import POPULATIONS, Population
from bench.record import Row, above, record_on_traces
from cotenant.base.identity import NodeRef
from cotenant.base.usage.forecast import Forecasts
from cotenant.base.usage.usage import FloatMatrix, Usage
from cotenant.forecasting.backtest.baselines import DEFAULT, by_name
from cotenant.forecasting.backtest.contenders import MEDIAN
from cotenant.forecasting.backtest.engine import no_portraits
from cotenant.forecasting.backtest.plan import BacktestPlan, BacktestTrial, origins, trial
from cotenant.forecasting.backtest.run import Shard
from cotenant.forecasting.backtest.windows import WINDOW_HOURS, amplitude, best_start
from cotenant.forecasting.engine import forecast
from cotenant.forecasting.settings import ForecastingSettings
from cotenant.forecasting.windows import swing

Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

ANNOUNCED, SILENT, GAIN = 0.78, 0.88, 0.05
ORIGINS = 14
SETTINGS = ForecastingSettings()
OURS = "cotenant"
FEWEST_DAYS = 20


@dataclass(frozen=True)
class PeakSet:
    """Series of a population; other_half: only those that nothing was chosen on; total: of whole clusters."""

    population: Population
    other_half: bool = False
    total: bool = False
    history_days: int = 14

    @property
    def plan(self) -> BacktestPlan:
        """With as much history as the trace allows."""
        return replace(self.population.plan, history_days=self.history_days)

    def shard(self, folder: Path) -> Shard:
        """The series that are measured."""
        full_shard = self.population.shard(folder)
        rows = slice(1, None, 2) if self.other_half else slice(None)
        return Shard(full_shard.names[rows], full_shard.grid, full_shard.values[rows], full_shard.limits[rows])


SETS = (
    *(PeakSet(population, other_half=True) for population in POPULATIONS[:3]),
    PeakSet(Population("azure_v2 CPU", "azure_v2_vms", "cpu_avg_pct", 40)),
    PeakSet(Population("google2011 jobs CPU", "google2011_jobs", "cpu_pct", 8, None, np.nan), history_days=7),
    PeakSet(Population("alibaba2018 machines CPU", "alibaba2018_machines", "cpu_util_pct", 14), history_days=5),
    PeakSet(replace(POPULATIONS[3], name="google2019 cells CPU, totals", origins=60), total=True),
    PeakSet(Population("cluster aggregates CPU, totals", "cluster_aggregates", "cpu", 60, None, np.nan), total=True),
)


@dataclass(frozen=True, eq=False)
class JudgedDays:
    """Days of all origins, (days,): whether they have a peak, and the row of their series."""

    real: Flags
    series: npt.NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Answers:
    """Of each day, (days,): announced, and whether the announced window starts within an hour of the actual one."""

    announced: Flags
    right: Flags


def allocatable_of(shard: Shard, backtest_trial: BacktestTrial, total: bool) -> Floats:
    """Twice the mean of the trace of the judged rows, (m,); NaN for series that are no totals."""
    rows = shard.values[backtest_trial.rows].astype(np.float64)
    return np.asarray(2 * np.nanmean(rows, axis=1)) if total else np.full(len(rows), np.nan)


def has_peak(path: FloatMatrix, allocatable: Floats) -> Flags:
    """Whether days (m, slots) have a peak, by the measure of a series or of a total."""
    of_total: Flags = swing(path) > SETTINGS.cluster_peak_share * allocatable
    return np.where(np.isnan(allocatable), amplitude(path), of_total)


def judged(backtest_trial: BacktestTrial, announced: Flags, start: npt.NDArray[np.intp], plan: BacktestPlan) -> Answers:
    width = round(WINDOW_HOURS * 3600 / plan.step_seconds)
    actual = best_start(backtest_trial.actual, width)
    near = (actual >= 0) & (np.abs(start - actual) * plan.step_seconds <= 3600)
    return Answers(announced, announced & near)


def served(backtest_trial: BacktestTrial, plan: BacktestPlan, kind: Population, allocatable: Floats) -> Answers:
    """The engine's own windows of the judged rows."""
    refs = tuple(NodeRef(str(row)) for row in np.flatnonzero(backtest_trial.scored))
    past = backtest_trial.past
    usage = Usage(refs, past.fine_grid, past.fine[backtest_trial.scored], kind.resource, past.statistic)
    forecasts: Forecasts[NodeRef] = forecast(usage, no_portraits(kind.resource), SETTINGS, allocatable=allocatable)
    windows = [forecasts.peak_window(row) for row in range(len(refs))]
    start = [(w.start_seconds - forecasts.grid.start_seconds) // plan.step_seconds if w else -1 for w in windows]
    return judged(backtest_trial, np.array([w is not None for w in windows]), np.array(start), plan)


def baseline(backtest_trial: BacktestTrial, plan: BacktestPlan, name: str, allocatable: Floats) -> Answers:
    path = by_name(name).quantiles(backtest_trial.past.coarse, backtest_trial.past.coarse_grid, plan.horizon)[
        backtest_trial.scored, :, MEDIAN
    ]
    start = best_start(path, round(WINDOW_HOURS * 3600 / plan.step_seconds))
    return judged(backtest_trial, has_peak(path, allocatable), start, plan)


def answers_of(peak_set: PeakSet, shard: Shard) -> tuple[JudgedDays, dict[str, Answers]]:
    """The days and what each contender answered on each."""
    plan, many = peak_set.plan, peak_set.population.origins
    real: list[Flags] = []
    series: list[npt.NDArray[np.intp]] = []
    parts: dict[str, list[Answers]] = {name: [] for name in (OURS, *DEFAULT)}
    for moment in origins(shard.grid, plan, many if many >= 40 else ORIGINS):
        backtest_trial = trial(shard.values, shard.grid, moment, plan)
        if not len(backtest_trial.rows):
            continue
        allocatable = allocatable_of(shard, backtest_trial, peak_set.total)
        real.append(has_peak(backtest_trial.actual, allocatable))
        series.append(backtest_trial.rows)
        parts[OURS].append(served(backtest_trial, plan, peak_set.population, allocatable))
        for name in DEFAULT:
            parts[name].append(baseline(backtest_trial, plan, name, allocatable))
    joined = {
        name: Answers(np.concatenate([a.announced for a in some]), np.concatenate([a.right for a in some]))
        for name, some in parts.items()
    }
    return JudgedDays(np.concatenate(real), np.concatenate(series)), joined


def in_hindsight(days: JudgedDays, answers: Mapping[str, Answers]) -> float:
    """Share of the days with a peak that are right where each series is answered by its best contender."""
    of = days.series[days.real]
    right = np.stack([answers_of_one.right[days.real] for answers_of_one in answers.values()])
    return float(sum(right[:, of == group].sum(axis=1).max() for group in np.unique(of)) / len(of))


def share(flags: Flags, of: Flags) -> float:
    return float(flags[of].mean()) if of.sum() >= FEWEST_DAYS else float("nan")


def rows_of(name: str, days: JudgedDays, answers: Mapping[str, Answers]) -> Iterator[Row]:
    real, ours = days.real, answers[OURS]
    size = f"{int(real.sum())} days with a peak, {int((~real).sum())} without"
    silent = {contender: share(~answers_of_one.announced, ~real) for contender, answers_of_one in answers.items()}
    announced = share(ours.announced, real)
    if np.isfinite(announced):
        yield above(f"{name}: announced on days with a peak", round(announced, 3), "ratio", ANNOUNCED, size)
    if np.isfinite(silent[OURS]):
        yield above(f"{name}: silent on even days", round(silent[OURS], 3), "ratio", SILENT, size)
    right = {contender: share(answers_of_one.right, real) for contender, answers_of_one in answers.items()}
    if not np.isfinite(right[OURS]):
        return
    best = max(DEFAULT, key=right.__getitem__)
    quiet = max(
        (contender for contender in DEFAULT if silent[contender] >= SILENT), key=right.__getitem__, default=None
    )
    beside = f"; as silent: {quiet} {right[quiet]:.3f}" if quiet else "; none is as silent"
    note = f"best {best} {right[best]:.3f}, silent on {silent[best]:.2f}{beside}; of those announced {{:.3f}}"
    note = note.format(share(ours.right, real & ours.announced))
    note += f"; each series' best in hindsight {in_hindsight(days, answers):.3f}"
    yield above(f"{name}: hour right", round(right[OURS], 3), "ratio", round(right[best] + GAIN, 3), note)


def measure(folder: Path) -> list[Row]:
    """All rows, in the order of the page."""
    rows: list[Row] = []
    for peak_set in SETS:
        rows += rows_of(peak_set.population.name, *answers_of(peak_set, peak_set.shard(folder)))
    return rows


if __name__ == "__main__":
    record_on_traces("decisions_peaks", measure)
