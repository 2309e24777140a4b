"""What room reserved by forecast costs, against a cron, last week's peak and nothing: J = waste + k x miss, core-hours.

The workloads and the forecasts of bench plans_replay (its docstring says which; every hour, with the 14 days before,
serving only slots at least the lead away), each of 10 cores on average. Base: what runs anyway, the median of the 14
days before each midnight. Need: demand above it. No other room is free, so that whatever is not reserved is missed.
Waste: reserved and not needed; miss: needed and not reserved; both over all slots of the last days.

Reserved by forecast: the quantile k / (1 + k) above the base, slot by slot (the newsvendor rule for these costs: 0.83
for k = 5); no guard, no rehearsal, no whole pods: this measures the forecast's worth alone. "Twice a day": the same
with forecasts of midnight and noon only. Cron: what was needed at the same time last week. Peak: the highest need of
the last week, always. A perfect forecast costs 0. Ratios are geometric means over workloads of J / J of the baseline,
with the bootstrap over workloads; nothing was chosen by looking at these figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.record import Row, below, record_on_traces
from bench.reservations.plans_replay import DAY, DAYS, HISTORY_DAYS, forecasts, sets
from cotenant.scheduler_ext.reservations.plans.size import level_path

Floats = npt.NDArray[np.float64]
WEEK = 7 * DAY
HOURS = 5 / 60
FIRST = (HISTORY_DAYS + 7) * DAY
"""Before it stands the week that the baselines repeat, itself 14 days after the beginning."""
KINDS = ("forecast", "cron", "peak", "nothing")
GOALS: Mapping[str, float] = {"cron": 0.85, "peak": 0.7}
K = 5.0
DRAWS, SEED = 2000, 11


def based(values: Floats) -> Floats:
    """What runs anyway in each slot, (n, T): the median of the 14 days before its midnight; NaN before that."""
    baseline = np.full(values.shape, np.nan)
    for at in range(HISTORY_DAYS * DAY, values.shape[1], DAY):
        baseline[:, at : at + DAY] = np.nanmedian(values[:, at - HISTORY_DAYS * DAY : at], axis=1)[:, None]
    return baseline


def reserved(values: Floats, quantiles: Floats, base: Floats, k: float) -> dict[str, Floats]:
    """Millicores that each kind holds, (n, T)."""
    need = np.maximum(values - base, 0)
    cron, peak = np.zeros(values.shape), np.zeros(values.shape)
    cron[:, FIRST:] = np.nan_to_num(need[:, FIRST - WEEK : -WEEK])
    for at in range(FIRST, values.shape[1], DAY):
        peak[:, at : at + DAY] = np.nanmax(np.nan_to_num(need[:, at - WEEK : at]), axis=1)[:, None]
    ahead = np.nan_to_num(np.maximum(level_path(quantiles, k / (k + 1)) - base, 0))
    return {"forecast": ahead, "cron": cron, "peak": peak, "nothing": np.zeros(values.shape)}


def cost(values: Floats, reserved_cores: Floats, base: Floats, k: float) -> Floats:
    """J of each workload in core-hours, (n,), over the slots that are known."""
    surplus = (reserved_cores - np.maximum(values - base, 0))[:, FIRST:]
    waste, miss = (np.nansum(np.maximum(part, 0), axis=1) for part in (surplus, -surplus))
    return np.asarray((waste + k * miss) * HOURS / 1000)


def ratio(ours: Floats, other: Floats) -> tuple[float, float, float]:
    """Geometric mean of ours / other and its 95 % interval; a ratio counts within 0.01..100."""
    logs = np.log(np.clip(ours / np.maximum(other, 1e-9), 0.01, 100))
    drawn = np.random.default_rng(SEED).integers(0, logs.size, (DRAWS, logs.size))
    low, high = np.quantile(logs[drawn].mean(axis=1), (0.025, 0.975))
    return float(np.exp(logs.mean())), float(np.exp(low)), float(np.exp(high))


def rows_of(name: str, costs: Mapping[str, Floats], *, judged: bool) -> list[Row]:
    table_rows = []
    for kind in KINDS[1:]:
        value, low, high = ratio(costs["forecast"], costs[kind])
        overall = costs["forecast"].sum() / costs[kind].sum()
        note = f"interval {low:.3f}..{high:.3f}; {costs[kind].size} workloads; of all core-hours together {overall:.3f}"
        metric = f"{name}: J (k = {K:g}) / that of {NAMES[kind]}"
        if judged and kind in GOALS:
            table_rows.append(below(metric, round(value, 3), "ratio", GOALS[kind], note))
        else:
            table_rows.append(Row(metric, round(value, 3), "ratio", note=note))
    return table_rows


NAMES = {"cron": "the same time last week", "peak": "last week's peak, always", "nothing": "nothing reserved"}


def measure(folder: Path) -> list[Row]:
    """All rows, in the order of the page."""
    trace_sets = list(sets(folder, DAYS))
    width = DAYS * DAY
    values = np.concatenate([np.pad(s.values, ((0, 0), (0, width - s.values.shape[1])), constant_values=np.nan)
                             for s in trace_sets]).astype(np.float64)  # fmt: skip
    quantiles = forecasts(values.astype(np.float32), 12).astype(np.float64)
    base = based(values)
    measured = {
        k: {kind: cost(values, cores, base, k) for kind, cores in reserved(values, quantiles, base, k).items()}
        for k in (1.0, K, 20.0)
    }
    alive = measured[K]["nothing"] > 0
    names = np.repeat([s.name for s in trace_sets], [len(s.names) for s in trace_sets])
    rows = rows_of("all workloads", {kind: j[alive] for kind, j in measured[K].items()}, judged=True)
    for k in (1.0, 20.0):
        for kind in ("cron", "peak"):
            value, low, high = ratio(measured[k]["forecast"][alive], measured[k][kind][alive])
            note = f"interval {low:.3f}..{high:.3f}"
            rows.append(
                Row(f"all workloads: J (k = {k:g}) / that of {NAMES[kind]}", round(value, 3), "ratio", note=note)
            )
    rarely = forecasts(values.astype(np.float32), DAY // 2).astype(np.float64)
    seldom = cost(values, reserved(values, rarely, base, K)["forecast"], base, K)
    for kind in ("cron", "peak"):
        value, low, high = ratio(seldom[alive], measured[K][kind][alive])
        metric = f"all workloads, decided twice a day: J (k = {K:g}) / that of {NAMES[kind]}"
        rows.append(Row(metric, round(value, 3), "ratio", note=f"interval {low:.3f}..{high:.3f}"))
    for part in trace_sets:
        chosen = alive & (names == part.name)
        if chosen.any():
            rows += rows_of(part.name, {kind: j[chosen] for kind, j in measured[K].items()}, judged=False)
    return rows


if __name__ == "__main__":
    record_on_traces("decisions_reserve", measure)
