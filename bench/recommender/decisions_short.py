"""Core-seconds that prod is short per node and day when all that the calibrated peak leaves over is lent, at risk 1 %.

Definition: bench shortage_scores. Nodes, decisions and horizon are those of bench decisions_reclaim (five
draws; pods that are there throughout, so nothing is ever announced) and of bench decisions_churn (five draws; pods come
and go, moves of a rollout overlap). A decision every six hours where the product decides every hour; batch uses all
that is lent at every moment, and nothing is kept back but the peak's own risk.

"With announced changes": between two decisions a pod that starts counts with its request (its limit here) at once,
beyond those that it replaced and beyond the node's usual coming and going, as `recommender.colocation` does; batch is
taken to follow the amount. A pod here never uses more than it requests, so nothing that starts can pass that sum; on
nodes whose pods use more than they request it is less.
"Without": it counts from the next decision on. Where batch pods that run already cannot be
moved, the truth lies between the two. Units: bitbrains in provisioned cores; azure states no cores, so a VM is one.

Samples are means of five minutes. What happens inside them is not known, but azure's table has each VM's maximum: the
rows "bound" charge one excess a sample, to the height that is reached when all of a node's VMs have their maximum at
the same second. A sum of maxima is not reached in fact, and of several bursts in a sample only one is charged.

Nothing was tuned on these rows; what the peak was tuned on says bench decisions_reclaim. "History 14 days" is what a
new install has after its first scan, "all" what it has later.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import numpy as np

from bench.forecasting import decisions_churn as churn
from bench.forecasting.populations import SEEDS, Population, azure, azure_small, bitbrains, throughout
from bench.recommender.shortage_scores import Reaction, core_seconds_short
from bench.record import Row, below, record_on_traces
from bench.traces import trace_matrix
from cotenant.backtesting.reclaim import ReclaimTrial, calibrated_peaks, overshoot
from cotenant.base.resource import Resource
from cotenant.forecasting.settings import NodePeakSettings
from cotenant_lab.backtest.peaks import node_total

HISTORIES = {"14 days": 14, "all": None}
SETTINGS = NodePeakSettings()
RISK, GOAL, STEP_SECONDS, PERCENT = 0.01, 0.5, 300.0, 100.0
REACTIONS = {
    "one tick": Reaction(),
    "two ticks": Reaction(agent_seconds=2 * Reaction().agent_seconds),
    "batch keeps two whole CPUs": Reaction(floor_cores=2.0),
    "batch keeps all, evicted after a minute": Reaction(math.inf, eviction_seconds=60.0),
    "batch keeps all": Reaction(math.inf),
}


@dataclass(frozen=True)
class Shortage:
    """Sums over nodes: measured days, samples above, node-days with one, core-seconds by reaction, lent and idle."""

    days: float
    above: int
    seconds: dict[str, float]
    worst: float
    lent: float
    free: float

    @classmethod
    def of(cls, trial: ReclaimTrial, peaks: np.ndarray, announced: np.ndarray | None = None) -> Shortage:
        over, measured = overshoot(trial, peaks, announced)
        first = trial.decisions[0] * trial.slots_per_day // 4
        used = np.nan_to_num(trial.totals[:, first : first + over.shape[1]])
        idle = np.maximum(trial.limits[:, None] - used, 0) / PERCENT
        short = {
            n: core_seconds_short(over / PERCENT, idle, STEP_SECONDS, reaction) for n, reaction in REACTIONS.items()
        }
        days = measured.sum(axis=1) / trial.slots_per_day
        in_force = np.repeat(peaks, trial.slots_per_day // 4, axis=1)
        in_force = np.minimum(in_force if announced is None else in_force + announced, trial.limits[:, None])
        return cls(
            days=float(days.sum()),
            above=int((over > 0).sum()),
            seconds={name: float(reaction.sum()) for name, reaction in short.items()},
            worst=float((short["one tick"].sum(axis=1) / np.maximum(days, 1e-9)).max()),
            lent=float((trial.limits[:, None] - in_force).sum()),
            free=float(idle.sum() * PERCENT),
        )


def row(name: str, draws: list[Shortage], goal: bool = True) -> Row:
    days = sum(shortage.days for shortage in draws)
    per_day = {name: sum(shortage.seconds[name] for shortage in draws) / days for name in REACTIONS}
    lent = sum(shortage.lent for shortage in draws) / sum(shortage.free for shortage in draws)
    note = (
        f"{days:.0f} node-days, {sum(shortage.above for shortage in draws) / days:.4f} samples above a node-day; "
        + ", ".join(f"{other} {value:.3g}" for other, value in per_day.items() if other != "one tick")
        + f"; worst node {max(shortage.worst for shortage in draws):.3g}; lent {lent:.3f} of what prod left"
    )
    metric, value = f"{name}: core-seconds short per node-day at risk 1 %", float(f"{per_day['one tick']:.3g}")
    return below(metric, value, "s", GOAL, note) if goal else Row(metric, value, "s", note=note)


def throughout_rows(folder: Path) -> Iterator[Row]:
    for population in (*azure(folder), azure_small(folder), *bitbrains(folder)):
        if population.resource is Resource.CPU:
            trials = [population.trial(seed) for seed in SEEDS]
            for name, days in HISTORIES.items():
                peaks = [calibrated_peaks(trial, (RISK,), SETTINGS, days)[RISK] for trial in trials]
                shortages = [Shortage.of(*pair) for pair in zip(trials, peaks, strict=True)]
                yield row(f"{population.name}, history {name}", shortages)
            print(f"{population.name}: done", flush=True)


def bound_rows(folder: Path) -> Iterator[Row]:
    """Peaks from means, as always; judged by maxima."""
    mean, highest = (trace_matrix(folder, "azure_v1_vms", c)[0] for c in ("cpu_avg_pct", "cpu_max_pct"))
    gapless = throughout(mean)
    mean, highest = mean[gapless], np.fmax(highest[gapless], mean[gapless])
    of = Population("azure_v1, 39 VMs", mean, np.full(len(mean), PERCENT), 30, (20, 20))
    bounds: dict[str, list[Shortage]] = {"all VMs": [], "one VM": []}
    for seed in SEEDS:
        groups, trial = list(of.members(seed)), of.trial(seed)
        peaks = calibrated_peaks(trial, (RISK,), SETTINGS)[RISK]
        rises = np.minimum(highest, PERCENT) - np.minimum(mean, PERCENT)
        largest_rise = np.stack([np.nan_to_num(rises[rows]).max(axis=0) for rows in groups])
        every = np.stack([node_total(highest[rows], of.limits[rows]) for rows in groups])
        for name, totals in (("all VMs", every), ("one VM", trial.totals + largest_rise)):
            bounds[name].append(Shortage.of(ReclaimTrial(totals, trial.limits, trial.slots_per_day), peaks))
    text = "azure_v1, 39 VMs, bound for bursts inside five minutes, {} of a node at the maximum of the sample"
    for name, draws in bounds.items():
        yield row(text.format(name), draws, goal=False)


def announced_of(nodes: list[churn.Node], decisions: np.ndarray) -> np.ndarray:
    """Requests that came since the decision in force and run, less what usually comes and was not there, (n, slots)."""
    size = churn.DAY // 4
    rows = []
    for churning_node in nodes:
        added = np.zeros(len(decisions) * size)
        for number, end in enumerate(decisions.tolist()):
            now = end * size
            coming = [a for a in churning_node.arrivals if now <= a[0] < now + size]
            part = added[number * size : (number + 1) * size]
            for first, last, limit in coming:
                part[first - now : last - now] += limit
            usual = churning_node.cold[now - 1 - 14 * churn.DAY + 1 : now - 1 : size].mean()
            part -= max(usual - churning_node.cold[now - 1], 0.0)
        rows.append(np.maximum(added, 0.0))
    return np.stack(rows)


def churn_rows(folder: Path) -> Iterator[Row]:
    vms = churn.load(folder)
    draws: dict[str, list[Shortage]] = {"without announced changes": [], "with announced changes": []}
    for seed in churn.SEEDS:
        rng = np.random.default_rng(seed)
        nodes = [churn.node(vms, rng) for _ in range(churn.NODES)]
        trial, cold = churn.trial_of(nodes)
        peaks = np.minimum(calibrated_peaks(trial, (RISK,), churn.SETTINGS)[RISK] + cold["ours"], trial.limits[:, None])
        announced = announced_of(nodes, trial.decisions)
        draws["without announced changes"].append(Shortage.of(trial, peaks))
        draws["with announced changes"].append(Shortage.of(trial, peaks, announced))
    for name, shortages in draws.items():
        yield row(f"pods come and go, {name}", shortages)


def measure(folder: Path) -> list[Row]:
    """All rows, in the order of the page."""
    return [*throughout_rows(folder), *churn_rows(folder), *bound_rows(folder)]


if __name__ == "__main__":
    record_on_traces("decisions_short", measure)
