"""Forecast-driven plans replayed on real traces: what they would reserve, against the baselines of equal coverage.

Each series is a workload of pods of half a core, scaled to 20 pods on average over its first 14 days. What runs anyway
is the median of the 14 days before each midnight; peak core-minutes are all above it. Forecasts are made every hour
with the 14 days before, and serve only slots that are at least the lead away (pod start, room freed, scheduler, one
control period and the plan's 15 minutes: 20 minutes). Each midnight the quantile is chosen by the replay of the 7 days
before; nothing looks ahead.

Baselines on the same slots, each given what a plan never has: its margin is found afterwards, per series, so that its
coverage equals the plan's. Cron: the same hour last week times a margin. Static: one number of pods at all times.
Every series counts alike: coverage as a mean, idle against a baseline as the geometric mean of each series' ratio.

A plan holds nothing on days that its own guards refuse at midnight (no skill against last week's cron, or less than 0.9
covered in the rehearsal); peak core-minutes of such days are not its, and how many days that were stands beside.

Looked at while choosing the cost of a miss (9, 19, 30, 40), how the quantile is picked (coverage or cost) and the floor
of pods that are present: "seen" sets. "Unseen": sets run for the first time after that.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import numpy as np
from msgspec.structs import replace

from bench.record import Row, above, below, record, traces
from bench.traces import trace_matrix
from cotenant.base.identity import NodeRef, WorkloadRef
from cotenant.base.resource import Resource
from cotenant.base.usage.forecast import LEVELS
from cotenant.base.usage.usage import Statistic, TimeGrid, Usage
from cotenant.forecasting.engine import forecast
from cotenant.forecasting.settings import ForecastingSettings
from cotenant.profiler.portrait import build
from cotenant.profiler.settings import PortraitSettings
from cotenant.scheduler_ext.reservations.model.settings import PlanSettings
from cotenant.scheduler_ext.reservations.plans.backtest import account
from cotenant.scheduler_ext.reservations.plans.proposals import Rehearsal, Size, Tested, a_week_before, kept, tested
from cotenant.scheduler_ext.reservations.plans.size import lead_seconds, pods

DAY, STEP, HISTORY_DAYS, WISH_SECONDS = 288, 300, 14, 900.0
POD, MEAN = 500.0, 10_000.0
"""Millicores: of one pod, and of a workload on average."""
VMS_PER_WORKLOAD = 15
DAYS = 28
FORECASTING = replace(ForecastingSettings(), booster_rows=0)
PLANS = PlanSettings()
LEAD_SLOTS = -(-lead_seconds(WISH_SECONDS, (), PLANS) // STEP)


@dataclass(frozen=True, slots=True)
class Set:
    """Series (n, days * 288) that begin at a midnight; those with gaps keep NaN."""

    name: str
    names: tuple[str, ...]
    values: np.ndarray
    unseen: bool


def sets(folder: Path, days: int) -> Iterator[Set]:
    """Workloads of every table that has a daily rhythm at the scale of a workload."""
    vms, grid = trace_matrix(folder, "bitbrains_rnd", "cpu_usage_pct")
    cores, _ = trace_matrix(folder, "bitbrains_rnd", "cpu_alloc_cores")
    pooled = from_midnight(pools(vms / 100 * cores), grid)
    names = tuple(f"bitbrains pool {i}" for i in range(len(pooled)))
    yield rhythmic("bitbrains pools, July", names, pooled[:, : days * DAY], unseen=False)
    yield rhythmic("bitbrains pools, September", names, pooled[:, 60 * DAY : (60 + days) * DAY], unseen=False)
    vms, grid = trace_matrix(folder, "azure_v1_vms", "cpu_avg_pct")
    pooled = from_midnight(pools(vms), grid)[:, : days * DAY]
    yield rhythmic("azure_v1 pools", tuple(f"azure pool {i}" for i in range(len(pooled))), pooled, unseen=True)
    single = (
        ("cluster_aggregates", "cpu", False),
        ("google2019_cells", "cpu_sum_raw", False),
        ("smd_servers", "c00", False),
        ("web_request_rates", "requests_per_min", False),
        ("google2011_machines", "cpu_usage_norm", True),
    )
    for table, column, unseen in single:
        values, grid = trace_matrix(folder, table, column)
        row_names = tuple(f"{table} {i}" for i in range(len(values)))
        yield rhythmic(table, row_names, from_midnight(values, grid)[:, : days * DAY], unseen=unseen)


def pools(vms: np.ndarray) -> np.ndarray:
    """Sums over every 15 VMs in the order of their names; NaN where half of them are not there."""
    groups = [vms[i : i + VMS_PER_WORKLOAD] for i in range(0, len(vms) - VMS_PER_WORKLOAD + 1, VMS_PER_WORKLOAD)]
    return np.array([np.where(np.isfinite(g).mean(axis=0) > 0.5, np.nansum(g, axis=0), np.nan) for g in groups])


def from_midnight(values: np.ndarray, grid: TimeGrid) -> np.ndarray:
    return values[:, -grid.start_seconds % 86_400 // STEP :]


def rhythmic(name: str, names: tuple[str, ...], values: np.ndarray, *, unseen: bool) -> Set:
    """Series whose first 14 days repeat from day to day (autocorrelation of 24 h above 0.4) and are mostly there."""
    values = np.pad(values, ((0, 0), (0, -values.shape[1] % DAY)), constant_values=np.nan)
    first = values[:, : HISTORY_DAYS * DAY]
    mean = np.nanmean(np.where(np.isfinite(first).any(axis=1, keepdims=True), first, 0), axis=1)
    hourly = np.nan_to_num(first - mean[:, None]).reshape(len(first), -1, 12).mean(axis=2)
    again = (hourly[:, 24:] * hourly[:, :-24]).sum(axis=1) / np.maximum((hourly**2).sum(axis=1), 1e-12)
    covered = np.isfinite(first).mean(axis=1) > 0.8
    rows = np.flatnonzero((again > 0.4) & covered & (mean > 0))
    scaled = (values[rows] / mean[rows, None] * MEAN).astype(np.float32)
    return Set(name, tuple(names[i] for i in rows), scaled, unseen)


def forecasts(values: np.ndarray, every_slots: int) -> np.ndarray:
    """Quantiles in force in each slot, (n, T, levels): of the newest forecast that is at least the lead old."""
    refs = tuple(NodeRef(str(i)) for i in range(len(values)))
    served = np.full((*values.shape, len(LEVELS)), np.nan, dtype=np.float32)
    for origin in range(HISTORY_DAYS * DAY, values.shape[1], every_slots):
        past = values[:, origin - HISTORY_DAYS * DAY : origin]
        usage = Usage(refs, TimeGrid(origin * STEP, STEP, past.shape[1]), past, Resource.CPU, Statistic.MEAN)
        usage_forecast = forecast(usage, build(refs, np.arange(len(refs)), usage, PortraitSettings()), FORECASTING)
        slots = np.arange(origin + LEAD_SLOTS, min(origin + LEAD_SLOTS + every_slots, values.shape[1]))
        served[:, slots] = usage_forecast.quantiles[:, (slots - origin) // 6]
    return served


@dataclass(frozen=True, slots=True)
class Told:
    """One series on the replayed days: coverage and idle relative to its peak core-hours; idle of the baselines."""

    coverage: float
    coverage_of_all_days: float
    idle: float
    cron_idle: float
    static_idle: float
    raw_cron_coverage: float
    planned: float


def replay(values: np.ndarray, quantiles: np.ndarray, a_week: np.ndarray) -> Told | None:
    """One series (T,): each midnight a quantile by the last days, then a day; None where no day was planned."""
    first = (HISTORY_DAYS + PLANS.backtest_days) * DAY
    reserved_pods, base = np.zeros(values.size), np.full(values.size, np.nan)
    skills: list[float] = []
    planned = np.zeros(values.size, dtype=bool)
    for at in range(first, values.size, DAY):
        size = sized(values, at)
        past = rehearsal(values, quantiles, a_week, slice(at - PLANS.backtest_days * DAY, at))
        back_test: Tested = tested(size, past, PLANS)
        base[at : at + DAY] = size.base
        skills.append(back_test.skill)
        if back_test.skill > PLANS.minimum_skill and back_test.plan.coverage >= PLANS.minimum_coverage:
            planned[at : at + DAY] = True
            two_days = rehearsal(values, quantiles, a_week, slice(at - DAY, at + DAY))
            reserved_pods[at : at + DAY] = kept(size, two_days, back_test.tau)[DAY:]
    need = np.where(np.isfinite(values), pods(values, base, POD), np.nan)
    every = account(need[first:], reserved_pods[first:], STEP)
    need = np.where(planned, need, np.nan)[first:]
    mine = account(need, reserved_pods[first:], STEP)
    if not mine.needed:
        return None
    cron = equal(need, lambda m: pods(a_week[first:] * m, base[first:], POD), mine.coverage)
    static = equal(need, lambda m: np.full(need.size, np.ceil(m * 20)), mine.coverage)
    raw = account(need, pods(a_week[first:], base[first:], POD), STEP)
    share = float(planned[first:].mean())
    return Told(mine.coverage, every.coverage, mine.idle / mine.needed, cron, static, raw.coverage, share)


def rehearsal(values: np.ndarray, quantiles: np.ndarray, a_week: np.ndarray, span: slice) -> Rehearsal:
    return Rehearsal(STEP, values[span], quantiles[span], a_week[span], (LEAD_SLOTS + 1) * STEP)


def sized(values: np.ndarray, at: int) -> Size:
    base = float(np.nanmedian(values[at - HISTORY_DAYS * DAY : at]))
    return Size(WorkloadRef("", "", ""), {}, int(POD), POD, base)


def equal(need: np.ndarray, reserved_at: Callable[[float], np.ndarray], coverage: float) -> float:
    """Idle relative to the need at the smallest margin that covers as much."""
    low, high = 0.0, 20.0
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if account(need, reserved_at(middle), STEP).coverage < coverage else (low, middle)
    plan_account = account(need, reserved_at(high), STEP)
    return plan_account.idle / plan_account.needed


def rows_of(name: str, replays: list[Told], *, judged: bool) -> list[Row]:
    """Coverage: mean over workloads; idle against a baseline: geometric mean of each workload's ratio."""
    cover, idle = (float(np.mean([getattr(t, f) for t in replays])) for f in ("coverage", "idle"))
    cron, static = (
        ratio([t.idle for t in replays], [getattr(t, f) for t in replays]) for f in ("cron_idle", "static_idle")
    )
    raw = float(np.mean([t.raw_cron_coverage for t in replays]))
    size = f"{len(replays)} workloads; plans on {np.mean([t.planned for t in replays]):.0%} of their days"
    every = float(np.mean([t.coverage_of_all_days for t in replays]))
    size = f"{size}, which covers {every:.3f} of all days"
    note = f"{size}; idle {idle:.2f} core-hours per peak core-hour; last week's cron without margin covers {raw:.3f}"
    if not judged:
        return [
            Row(f"{name}: coverage of peak core-minutes", round(cover, 3), "ratio", note=note),
            Row(f"{name}: idle / cron of equal coverage", round(cron, 3), "ratio"),
            Row(f"{name}: idle / static of equal coverage", round(static, 3), "ratio"),
        ]
    return [
        above(f"{name}: coverage of peak core-minutes", round(cover, 3), "ratio", 0.95, note),
        below(f"{name}: idle core-hours / same-time-last-week cron of equal coverage", round(cron, 3), "ratio", 0.85),
        below(f"{name}: idle core-hours / static headroom of equal coverage", round(static, 3), "ratio", 0.6),
    ]


def ratio(idle: list[float], other: list[float]) -> float:
    """Geometric mean of idle / other, each within 0.01..100: one baseline that never covers must not decide."""
    logs = np.log(np.clip(np.array(idle) / np.maximum(other, 1e-9), 0.01, 100))
    return float(np.exp(logs.mean()))


def main() -> int:
    folder = traces()
    if folder is None:
        print("no real traces: set COTENANT_TRACES to their folder; nothing was measured")
        return 0
    small = "--small" in sys.argv
    trace_sets = list(sets(folder, DAYS if not small else 23))
    values = np.concatenate([np.pad(s.values, ((0, 0), (0, DAYS * DAY - s.values.shape[1])), constant_values=np.nan)
                             for s in trace_sets])  # fmt: skip
    values = values[:, : (23 if small else DAYS) * DAY]
    quantiles = forecasts(values, 48 if small else 12)
    a_week = a_week_before(values.astype(np.float64), STEP)
    replays: dict[str, list[Told]] = {}
    row = 0
    for part in trace_sets:
        for _ in part.names:
            replayed = replay(values[row].astype(np.float64), quantiles[row], a_week[row])
            row += 1
            if replayed:
                replays.setdefault(part.name, []).append(replayed)
    rows = rows_of("all workloads", [t for replayed in replays.values() for t in replayed], judged=True)
    unseen = [t for p in trace_sets if p.unseen for t in replays.get(p.name, [])]
    rows += rows_of("workloads unseen while tuning", unseen, judged=False) if unseen else []
    rows += [r for p in trace_sets if p.name in replays for r in rows_of(p.name, replays[p.name], judged=False)]
    if small:
        for r in rows:
            print(f"{r.metric} = {r.value:g} {r.goal} {r.note}")
        return 0
    record("plans_replay", ".venv/bin/python -m bench.reservations.plans_replay", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
