"""Core-seconds that prod is short on the worst day of a population: decisions of every six hours, and renewed ones.

A renewed decision knows what the last hours showed: its record ends with the present, and so does that of every past
decision it is tested on.

- "six hours": a decision stays in force until the next one, six hours later, as in bench.recommender.decisions_short.
- "hourly": the same calibration every hour, as the manager's analyses come (`manager.pipeline_interval_seconds`).
- "hourly, or present use": where prod uses more than the peak in force, its present use counts, as the formula of the
  amounts has it (`recommender.colocation.formulas.pod_terms`). It is known one sample late here, after five minutes; on
  a cluster after the interval of the reports, which is one. This is what runs.
- "hourly, or highest use": the highest use since the last analysis counts until the next one. It saves 0 to 20 % more,
  mostly nothing, so it is not built.

Definition of a shortage: bench shortage_scores, after the reaction of the node agent. Batch uses all that is lent at
every moment and follows the amount; where batch pods that run already stay, a renewal keeps others away alone, and the
truth lies between "six hours" and the rest. The worst day: the 24 hours with the largest sum over all nodes, each way's
own. Nodes and history: bench peak_populations. Where a trace states no cores, a VM is one, and so is a machine.

Developed on / judged on: nothing was chosen on these rows but that the last way is not built; no way has a constant of
its own. Where the goal is missed, what is left is the first five minutes of a jump that no hour before it showed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import numpy as np

from bench.forecasting.peak_populations import HISTORY_DAYS, SHIPPED, judged
from bench.forecasting.populations import SEEDS, SLOTS, Population
from bench.recommender.shortage_scores import Reaction, core_seconds_short
from bench.record import Row, below, record_on_traces
from cotenant.backtesting.reclaim import ReclaimTrial, calibrated_peaks
from cotenant.base.resource import Resource

RISKS = (0.001, 0.01, 0.05)
SIX_HOURS, HOUR, STEP_SECONDS, CORE = SLOTS // 4, SLOTS // 24, 300.0, 100.0
GOAL = 0.5
PRODUCT = "hourly, or present use"
Ways = Mapping[str, np.ndarray]
"""Peak in force by way, (n, slots)."""


def ways(trial: ReclaimTrial) -> dict[float, Ways]:
    """By risk: peaks in force from the first decision to six hours after the last one."""
    by_hour = []
    for hour in range(SIX_HOURS // HOUR):
        later = replace(trial, totals=trial.totals[:, hour * HOUR :])
        by_hour.append(calibrated_peaks(later, RISKS, SHIPPED, HISTORY_DAYS))
    by_risk: dict[float, Ways] = {}
    for risk in RISKS:
        count = min(peaks[risk].shape[1] for peaks in by_hour)
        hourly = np.stack([peaks[risk][:, :count] for peaks in by_hour], axis=2).reshape(len(trial.limits), -1)
        capped = np.minimum(np.repeat(hourly, HOUR, axis=1), trial.limits[:, None])
        first = trial.decisions[0] * SIX_HOURS
        used = trial.totals[:, first : first + capped.shape[1]]
        by_risk[risk] = {
            "six hours": np.repeat(capped[:, ::SIX_HOURS], SIX_HOURS, axis=1),
            "hourly": capped,
            PRODUCT: np.maximum(capped, used_before(used)),
            "hourly, or highest use": np.maximum(capped, highest_since(used)),
        }
    return by_risk


def used_before(used: np.ndarray) -> np.ndarray:
    """Use of the sample before, (n, slots); 0 before the first."""
    present = np.nan_to_num(used)
    return np.concatenate([np.zeros_like(present[:, :1]), present[:, :-1]], axis=1)


def highest_since(used: np.ndarray) -> np.ndarray:
    """Highest use of the samples since the hour's decision that are over, (n, slots); 0 before the first."""
    hours = np.nan_to_num(used).reshape(len(used), -1, HOUR)
    so_far = np.maximum.accumulate(hours, axis=2)
    return np.concatenate([np.zeros_like(hours[:, :, :1]), so_far[:, :, :-1]], axis=2).reshape(used.shape)


def shortage(trial: ReclaimTrial, in_force: np.ndarray) -> tuple[float, float, float, float]:
    """Core-seconds short a node on the worst day and a node-day; samples above a node-day; lent, of what prod left."""
    first = trial.decisions[0] * SIX_HOURS
    used = trial.totals[:, first : first + in_force.shape[1]]
    measured = np.isfinite(used)
    over = np.where(measured, np.maximum(np.nan_to_num(used) - in_force, 0), 0.0)
    over[over <= 1e-6 * trial.limits[:, None].repeat(over.shape[1], axis=1)] = 0.0
    idle = np.maximum(trial.limits[:, None] - np.nan_to_num(used), 0)
    seconds = core_seconds_short(over / CORE, idle / CORE, STEP_SECONDS, Reaction())
    of_day = np.convolve(seconds.sum(axis=0), np.ones(SLOTS), "valid")
    node_days = max(measured.sum() / SLOTS, 1e-9)
    lent = float((trial.limits[:, None] - in_force)[measured].sum() / idle[measured].sum())
    return float(of_day.max()) / len(used), float(seconds.sum() / node_days), float((over > 0).sum() / node_days), lent


def rows_of(of: Population) -> Iterator[Row]:
    trial = of.trial(SEEDS[0])
    if of.alone:  # machines, which state no cores
        shares = trial.totals / trial.limits[:, None] * CORE
        trial = replace(trial, totals=shares, limits=np.full(len(shares), CORE))
    for risk, by_way in ways(trial).items():
        shortages = {name: shortage(trial, in_force) for name, in_force in by_way.items()}
        worst = {name: shortage_parts[0] for name, shortage_parts in shortages.items()}
        note = "; ".join(
            f"{name}: worst day {day:.3g}, all days {mean:.3g}, samples above a node-day {above:.4f}, lent {lent:.3f}"
            for name, (day, mean, above, lent) in shortages.items()
        )
        today = worst["six hours"]
        ratio = worst[PRODUCT] / today if today > 0 else 0.0
        text = f"{of.name}, risk {100 * risk:g} %: core-seconds short a node on the worst day, renewed / today"
        yield (
            below(text, round(ratio, 3), "ratio", GOAL, note)
            if risk == 0.01
            else Row(text, round(ratio, 3), "ratio", note=note)
        )


def measure(folder: Path) -> list[Row]:
    rows: list[Row] = []
    for of in judged(folder):
        if of.resource is Resource.CPU:
            rows += rows_of(of)
            print(f"{of.name}: done", flush=True)
    return rows


if __name__ == "__main__":
    record_on_traces("decisions_renewal", measure)
