"""Reclaim on real traces: our node peak against the static predictors, at equal violation.

Nodes are made of random groups of VMs that were there throughout (five draws of fixed seeds; groups of one draw are one
class and overlap, so rows are not independent). Limit: the provisioned size (bitbrains: median cores x 100 %, memory in
MiB; azure: 100 % a VM). A decision stands every six hours after 14 days of history; horizon 24 h. Rows "14 days of
history" are what a new install has after its first scan; the pipeline keeps totals of nodes from then on, so that after
further weeks it stands on 28 and at last on 90 days, as far as a trace goes. Decisions are the same for all three.
A violation that no setting comes down to counts as a share of 0, and the note says so.

Static predictors get the factor that meets the violation in hindsight, which no operator knows: the pooled ratio at its
best. "Best static" is the better of the highest of 7 and of 14 days. Beside them stands a constant for each node that
its own days pass just so often, known only afterwards. Shares are of an oracle's savings.

The goal is the best static's share. Earlier goals (of an oracle at 1 and 5 % violation: 0.935 and 0.965 on bitbrains,
0.85 and 0.93 on its burstier VMs, 0.93 and 0.965 on azure) are met on azure at 1 % alone, by its 39 VMs with 28 days;
on bitbrains they lie beyond the constant for each node that is chosen in hindsight, or close to it.

What was tuned on what: the rule's form and constants were chosen on node totals of these traces and others
(bench peak_populations, which leaves each trace out of its own constants too). A new trace may do worse. The bootstrap
takes nodes as independent, and groups share VMs: its intervals are too narrow. Predictors that need pods are single
points, not swept, of one draw and one decision a day. Pods that come and go: bench.forecasting.decisions_churn.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import numpy as np

from bench.forecasting.populations import SEEDS, SLOTS, Population, azure, azure_small, bitbrains
from bench.record import Row, above, below, record_on_traces
from cotenant.backtesting.reclaim import (
    RISKS,
    ReclaimTrial,
    Tally,
    at_violation,
    calibrated_peaks,
    compare,
    concatenate_tallies,
    highest_of,
    hindsight,
    is_reachable,
    tallies_by_factor,
    tally,
)
from cotenant.forecasting.settings import NodePeakSettings
from cotenant_lab.backtest.peaks import PEAK_BASELINES

SETTINGS = NodePeakSettings()
HISTORIES: dict[int, int | None] = {14: 14, 28: 28, 90: None}
"""Days of history -> what `calibrated` is given; None = all, up to 90."""
EVERY = 4
"""Predictors that need pods are asked once a day: they sort two weeks of every pod."""
RISK_GOALS = {0.001: (0.0, 0.003), 0.005: (0.0, 0.006), 0.01: (0.003, 0.012), 0.05: (0.02, 0.06)}


Settings = dict[float, Tally]


def over_draws(
    trials: list[ReclaimTrial], settings: Callable[[ReclaimTrial], Settings]
) -> tuple[list[Settings], Settings]:
    """By draw, and all nodes of all draws together."""
    each = [settings(trial) for trial in trials]
    return each, {knob: concatenate_tallies([tallies[knob] for tallies in each]) for knob in each[0]}


def ours_of(trial: ReclaimTrial, days: int | None) -> Settings:
    return {risk: tally(trial, peaks) for risk, peaks in calibrated_peaks(trial, RISKS, SETTINGS, days).items()}


def static_of(trial: ReclaimTrial, days: int) -> Settings:
    return tallies_by_factor(trial, highest_of(trial, days))


def compared(of: Population, trials: list[ReclaimTrial]) -> list[Row]:
    span = trials[0].totals.shape[1] // SLOTS
    ours = {
        days: over_draws(trials, partial(ours_of, days=history_days))
        for days, history_days in HISTORIES.items()
        if days <= max(span, 28)
    }
    statics = {days: over_draws(trials, partial(static_of, days=days)) for days in (7, 14)}
    rows: list[Row] = []
    for level in (0.005, 0.01, 0.05) if of.risk < 0.01 else (0.01, 0.05):
        rows += shares(of, trials, ours, statics, level)
    for days, (_, tallies) in ours.items():
        rows += knob(of, tallies, f", {days} days of history")
    return rows


Drawn = tuple[list[Settings], Settings]


def shares(
    of: Population, trials: list[ReclaimTrial], ours: dict[int, Drawn], statics: dict[int, Drawn], level: float
) -> list[Row]:
    """Shares of an oracle's savings at one violation, and the lead of the shortest history over the best static."""
    best = max(statics, key=lambda d: at_violation(statics[d][1], level))
    static = float(np.mean([at_violation(curve, level) for curve in statics[best][0]]))
    in_hindsight = concatenate_tallies([tally(trial, hindsight(trial, level)) for trial in trials]).savings_share
    text = f"{of.name}: share of the oracle's savings at {level:.1%} violation"
    rows = [Row(f"{text}, best static", round(static, 3), "ratio", note=f"highest of {best} d x factor in hindsight; "
                f"a constant for each node, chosen in hindsight {in_hindsight:.3f}")]  # fmt: skip
    for days, (draws, _) in ours.items():
        each = [at_violation(curve, level) for curve in draws]
        missing = sum(not is_reachable(curve, level) for curve in draws)
        note = f"mean of {len(draws)} draws, deviation {np.std(each):.3f}"
        note += f"; not reachable in {missing} of {len(draws)} draws, which count as 0" if missing else ""
        rows.append(above(f"{text}, {days} days of history", round(float(np.mean(each)), 3), "ratio", static, note))
    difference, low, high = compare(ours[min(ours)][1], statics[best][1], level)
    note = f"95 % interval {low:+.4f}..{high:+.4f}, paired bootstrap over nodes"
    lead = f"{of.name}: lead over the best static at {level:.1%} violation, {min(ours)} days of history"
    return [*rows, above(lead, round(difference, 4), "ratio", 0.02 if of.risk < 0.01 else 0.0, note)]


def knob(of: Population, tallies: Settings, suffix: str) -> list[Row]:
    rows = []
    for risk, (low, high) in RISK_GOALS.items():
        if risk == 0.005 and of.risk >= 0.01:
            continue
        scored = tallies[risk]
        note = (
            f"share {scored.savings_share:.3f}, severity {scored.mean_severity:.4f}, samples above "
            f"{scored.sample_violation:.5f}, "
            f"evicted {scored.evicted_hours.sum() / scored.decisions.sum() * 4:.4g} unit-hours a node and day"
        )
        text = f"{of.name}: realised violation at risk {risk:.1%}{suffix}"
        rows.append(
            Row(
                text,
                round(scored.violation, 4),
                "ratio",
                f"{low:g}..{high:g}",
                low <= scored.violation <= high,
                note,
            )
        )
        if risk == 0.01:
            worst = f"{of.name}: 99th percentile node at risk 1 %{suffix}"
            rows.append(below(worst, round(scored.p99_node, 3), "ratio", 0.10))
    return rows


def over_all(rows: list[Row]) -> list[Row]:
    """Mean over the populations of CPU: our share at a violation, with each history, by the best static's."""
    means = []
    value = {row.metric: row.value for row in rows}
    for level, days in itertools.product((0.01, 0.05), HISTORIES):
        ends = (f"share of the oracle's savings at {level:.1%} violation, {days} days of history", "best static")
        ratios = [
            share / value[metric.replace(f"{days} days of history", ends[1])]
            for metric, share in value.items()
            if metric.endswith(ends[0]) and " memory" not in metric
        ]
        text = f"mean over {len(ratios)} populations: share by that of the best static at {level:.1%} violation"
        note = f"least {min(ratios):.3f}"
        means.append(above(f"{text}, {days} days of history", round(float(np.mean(ratios)), 3), "ratio", 1.02, note))
    return means


def by_pods(of: Population, seed: int) -> list[Row]:
    """Every baseline as published, one decision a day of the first draw: (violation, p99 node, share)."""
    groups, trial = list(of.members(seed)), of.trial(seed)
    size = max(map(len, groups))
    rows = np.full((len(groups), size), -1)
    for index, group in enumerate(groups):
        rows[index, : len(group)] = group
    usage = np.append(of.usage, np.full((1, of.usage.shape[1]), np.nan), axis=0)
    limits = np.append(of.limits, 0.0)[rows]
    peaks_by_name = {b.name: np.full((len(groups), len(trial.decisions)), np.nan) for b in PEAK_BASELINES}
    for index, end in list(enumerate(trial.decisions.tolist()))[::EVERY]:
        slot = end * SLOTS // 4
        past = usage[:, slot - 14 * SLOTS : slot][rows]
        for baseline in PEAK_BASELINES:
            peaks_by_name[baseline.name][:, index] = baseline.peaks(past, limits, SLOTS)
    result_rows = []
    for name, peaks in peaks_by_name.items():
        scored = tally(trial, peaks)
        note = f"p99 node {scored.p99_node:.3f}, severity {scored.mean_severity:.4f}, share {scored.savings_share:.3f}"
        result_rows.append(Row(f"{of.name}: {name}, violation", round(scored.violation, 4), "ratio", note=note))
    return result_rows


def measure(folder: Path) -> list[Row]:
    """All rows, in the order of the page."""
    rows: list[Row] = []
    for population in (*azure(folder), azure_small(folder), *bitbrains(folder)):
        trials = [population.trial(seed) for seed in SEEDS]
        rows += compared(population, trials)
        rows += by_pods(population, SEEDS[0])
        print(f"{population.name}: done", flush=True)
    return [*over_all(rows), *rows]


if __name__ == "__main__":
    record_on_traces("decisions_reclaim", measure)
