"""Is a workload's 24-hour peak passed as often as its level says, steady or wild?

Forecasts are those that a new install serves: default settings, 14 days of history, each day of a trace once. Decisions
of a population are put in five classes of equal size by the spread of the past days' highest values (standard deviation
/ mean), which is known before the day. passed: the highest 5-minute value of the day is above the forecast's p95.
Wanted: 3 to 7 % in each class, mean over populations. Loss: quantile loss of all levels over the mean peak.

Developed on / judged on. Classes and priors were chosen on bitbrains_rnd, azure_v1 and the synthetic cluster (about 60
variants of classes, prior and points; and a spread that multiplies instead of classes, which has several times the
loss). azure_v2 had no part in that. "Chosen without": of each constant the value with the lowest loss on the traces
but one, relative to what is shipped, and what it does on the one left out.

A trace that is no longer than history and a week is shown by itself, for its forecasts are another thing than those of
a fortnight. Jobs of google2011 are such: five to nine days of history and a growth that went on (two thirds of the days
are above the p50). Where a whole trace goes up at once its forecasts are passed together, whatever the class: azure_v1
has three such days of fifteen, which hold most of its passages. VMs of azure_v1 are two populations,
by how the source chose them. A single pool for all, as it was, gave by class, mean over the six
populations of then: 1.8 4.4 5.7 6.3 5.8 %, and a loss that was larger on every one of them.

Tried without gain: a base between the level and the highest day (weights .15, .3, .5, .8: p95s far above everything
seen are passed as seldom, the loss of azure_v2 and single servers grows by up to a third), half and twice the prior.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import numpy as np
import pyarrow.parquet as pq
from msgspec.structs import replace

from bench.forecasting.forecast_quick import totals_of
from bench.record import Row, record_on_traces
from bench.traces import trace_matrix
from cotenant.base.identity import NodeRef
from cotenant.base.resource import Resource
from cotenant.base.usage.forecast import LEVELS
from cotenant.base.usage.usage import FloatMatrix, Signal, Statistic, TimeGrid, Usage
from cotenant.forecasting.backtest.engine import no_portraits
from cotenant.forecasting.engine import forecast
from cotenant.forecasting.peaks import SpreadClasses, daily_maxima, peak_quantiles
from cotenant.forecasting.settings import ForecastingSettings
from cotenant_lab.synthetic import SyntheticSpec, generate

CLASSES, LOWEST, HIGHEST = 5, 0.03, 0.07
DAY, HISTORY_DAYS, FEWEST_DAYS = 288, 14, 5
LONGEST_ALONE_DAYS = HISTORY_DAYS + 7
"""A trace no longer than this has no part in the means."""
P95 = LEVELS.index(0.95)
SETTINGS = replace(ForecastingSettings(), booster_rows=0)
"""Peaks have no part in the booster."""


CONSTANTS: Mapping[str, tuple[float, ...]] = {
    "peak_day_decay": (0.85, 0.9, 0.95),
    "peak_prior_days": (12.0, 24.0, 48.0),
    "count": (5, 10, 20),
    "prior_ratios": (10, 20, 40),
    "beside": (0.2, 0.4, 0.8),
    "prior_days": (0.5, 1, 2),
}
"""Each shipped constant: of the settings, or of SpreadClasses."""


@dataclass(frozen=True)
class Workloads:
    """Series of one table; least: their mean below which they are idle, in the unit of the column.

    chosen: the source's name of the set that its series are of; "" = all series.
    """

    name: str
    table: str
    column: str
    least: float
    resource: Resource = Resource.CPU
    chosen: str = ""


SETS = (
    Workloads("bitbrains_rnd CPU", "bitbrains_rnd", "cpu_usage_pct", 0.5),
    Workloads("bitbrains_rnd memory", "bitbrains_rnd", "mem_usage_mib", 1.0, Resource.MEMORY),
    *(
        Workloads(f"azure_v1 {of} {what}", "azure_v1_vms", column, 0.5, chosen=chosen)
        for what, column in (("CPU", "cpu_avg_pct"), ("highest CPU", "cpu_max_pct"))
        for of, chosen in (("sampled", "sample_100"), ("periodic", "periodic_78"))
    ),
    Workloads("azure_v2 CPU", "azure_v2_vms", "cpu_avg_pct", 0.5),
    Workloads("azure_v2 highest CPU", "azure_v2_vms", "cpu_max_pct", 0.5),
    Workloads("google2011 jobs CPU", "google2011_jobs", "cpu_pct", 0.5),
    Workloads("google2011 jobs memory", "google2011_jobs", "mem_pct", 0.01, Resource.MEMORY),
)


@dataclass(frozen=True, eq=False)
class Decisions:
    """Of each forecast: peak quantiles (k, levels), the peak that came (k,) and the spread of the days before (k,)."""

    forecast: FloatMatrix
    came: FloatMatrix
    spread: FloatMatrix

    def passed(self) -> np.ndarray:
        above: np.ndarray = self.came > self.forecast[:, P95] * (1 + 1e-6)
        return above

    def loss(self) -> float:
        levels = np.array(LEVELS)
        error = self.came[:, None] - self.forecast
        return float(2 * np.maximum(levels * error, (levels - 1) * error).mean() / self.came.mean())

    def by_class(self) -> np.ndarray:
        """Share passed in each class of spread, the steadiest first."""
        rank = np.argsort(np.argsort(self.spread, kind="stable"), kind="stable")
        return np.array(
            [self.passed()[rank * CLASSES // len(rank) == class_number].mean() for class_number in range(CLASSES)]
        )


@dataclass(frozen=True, eq=False)
class Day:
    """One day of a population: its first slot, rows that count, (k,); the maxima of their past days and of this one."""

    cut: int
    rows: np.ndarray
    maxima: FloatMatrix
    came: FloatMatrix


@dataclass(frozen=True, eq=False)
class Trace:
    """One population: its series and the days that are forecast."""

    kind: Workloads
    values: FloatMatrix
    grid: TimeGrid

    @property
    def table(self) -> str:
        return self.kind.table or "synthetic cluster"

    @property
    def counts(self) -> bool:
        return self.grid.size > LONGEST_ALONE_DAYS * DAY

    def days(self) -> Iterator[Day]:
        """Each day after the first ones, of the series that were there and are."""
        for day in range(FEWEST_DAYS, self.grid.size // DAY):
            cut = day * DAY
            past, after = self.values[:, past_of(cut)], daily_maxima(self.values[:, cut : cut + DAY], DAY)[:, 0]
            known_days = daily_maxima(past, DAY)
            busy = np.nan_to_num(past).mean(axis=1) >= self.kind.least
            rows = np.flatnonzero(busy & (np.isfinite(known_days).sum(axis=1) >= 2) & np.isfinite(after))
            if len(rows):
                yield Day(cut, rows, known_days[rows], after[rows])


def past_of(cut: int) -> slice:
    return slice(max(0, cut - HISTORY_DAYS * DAY), cut)


def served(trace: Trace) -> Decisions:
    """Of each day what a scan would serve."""
    statistic = Statistic.MEAN if trace.kind.resource is Resource.CPU else Statistic.MAX
    parts = []
    for day in trace.days():
        past, grid = past_of(day.cut), trace.grid
        at = TimeGrid(grid.start_seconds + past.start * grid.step_seconds, grid.step_seconds, day.cut - past.start)
        refs = tuple(NodeRef(str(r)) for r in day.rows)
        usage = Usage(refs, at, trace.values[day.rows, past], trace.kind.resource, statistic)
        forecasts = forecast(usage, no_portraits(trace.kind.resource), SETTINGS, fine=False)
        parts.append(Decisions(forecasts.peak, day.came, spread_of(day.maxima)))
    return joined(parts)


def from_maxima(days: list[Day], constant: str, value: float) -> Decisions:
    """The peak head alone, with one constant of another value."""
    classes, settings = SpreadClasses(), SETTINGS
    if hasattr(classes, constant):
        classes = SpreadClasses(**{constant: value})  # type: ignore[arg-type]
    else:
        settings = replace(settings, **{constant: value})
    parts = []
    for day in days:
        unknown = np.full(len(day.rows), np.nan)
        quantiles = peak_quantiles(day.maxima, unknown, classes)
        parts.append(Decisions(quantiles, day.came, spread_of(day.maxima)))
    return joined(parts)


def spread_of(maxima: FloatMatrix) -> FloatMatrix:
    spread: FloatMatrix = np.nanstd(maxima, axis=1) / np.maximum(np.nanmean(maxima, axis=1), 1e-9)
    return spread


def joined(parts: list[Decisions]) -> Decisions:
    return Decisions(*(np.concatenate([getattr(p, name) for p in parts]) for name in ("forecast", "came", "spread")))


def traces(folder: Path) -> Iterator[Trace]:
    for kind in SETS:
        values, grid = trace_matrix(folder, kind.table, kind.column)
        yield Trace(kind, values[rows_of(folder, kind)], grid)
    cluster = generate(SyntheticSpec(nodes=20, workloads=300, days=28))
    for resource, signal in ((Resource.CPU, Signal.CPU_USAGE_MEAN), (Resource.MEMORY, Signal.MEMORY_WORKING_SET_MAX)):
        workload_totals = totals_of(cluster.usage[signal], cluster)
        kind = Workloads(f"synthetic cluster {resource}", "", "", 0.0, resource)
        yield Trace(kind, workload_totals.values, workload_totals.grid)


def rows_of(folder: Path, kind: Workloads) -> Any:
    """Rows of `trace_matrix` that a population has."""
    if not kind.chosen:
        return slice(None)
    meta = pq.read_table(folder / f"{kind.table}_meta.parquet", columns=["series_id", "source_set"]).to_pydict()
    of = dict(zip(meta["series_id"], meta["source_set"], strict=True))
    return np.flatnonzero([of[name] == kind.chosen for name in sorted(of)])


def left_out(varied: Mapping[str, Mapping[float, Mapping[Trace, Decisions]]]) -> Iterator[Row]:
    """By constant and trace: the value with the lowest loss on the other traces, and what it does on that one."""
    for constant, by_value in varied.items():
        own = getattr(SpreadClasses(), constant, None) or getattr(SETTINGS, constant)
        shipped = by_value[own]
        for table in dict.fromkeys(trace.table for trace in shipped):
            others = [trace for trace in shipped if trace.table != table]
            here = [trace for trace in shipped if trace.table == table]
            score = {v: np.mean([np.log(f[t].loss() / shipped[t].loss()) for t in others]) for v, f in by_value.items()}
            best = min(score, key=lambda value: (score[value], value != own))
            loss = np.exp(np.mean([np.log(by_value[best][t].loss() / shipped[t].loss()) for t in here]))
            passed, of_shipped = (np.mean([f[t].passed().mean() for t in here]) for f in (by_value[best], shipped))
            note = f"p95 passed {passed:.2%}, shipped {own:g}: {of_shipped:.2%}; loss {loss:.3f} of that of the shipped"
            yield Row(f"{constant} chosen without {table}", best, "", note=note)


def measure(folder: Path) -> list[Row]:
    rows, classes, shares = [], [], []
    varied: dict[str, dict[float, dict[Trace, Decisions]]] = {c: {v: {} for v in vs} for c, vs in CONSTANTS.items()}
    for trace in traces(folder):
        decisions, name = served(trace), trace.kind.name
        share = float(decisions.passed().mean())
        of = decisions.by_class()
        by_class = " ".join(f"{100 * passed:.1f}" for passed in of)
        note = f"{len(decisions.came)} days; by class, steadiest first: {by_class} %"
        if trace.counts:
            classes.append(of)
            shares.append(share)
            days = list(trace.days())
            for constant, by_value in varied.items():
                for value in by_value:
                    by_value[value][trace] = from_maxima(days, constant, value)
        rows.append(Row(f"{name}: p95 passed", round(share, 4), "ratio", note=note))
        rows.append(Row(f"{name}: loss of the peak's quantiles", round(decisions.loss(), 4), "ratio"))
        print(f"{name}: done", flush=True)
    mean, count = np.mean(classes, axis=0), len(classes)
    verdicts = [
        Row(
            f"class {number} of {CLASSES}, mean over {count} populations: p95 passed",
            round(float(passed), 4),
            "ratio",
            f"{LOWEST:g} to {HIGHEST:g}",
            bool(LOWEST <= passed <= HIGHEST),
        )
        for number, passed in enumerate(mean, 1)
    ]
    mean_row = Row(f"all classes, mean over {count} populations: p95 passed", round(float(np.mean(shares)), 4), "ratio")
    return [*verdicts, mean_row, *rows, *left_out(varied)]


if __name__ == "__main__":
    record_on_traces("workload_peaks", measure)
