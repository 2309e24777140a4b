"""What the recommended reclaim policy lends beside Koordinator's formula, on populations of bench decisions_reclaim.

Policy `forecast` (risks of RISKS_PERCENT) and policy `usage` (Koordinator's formula with its default of 60 %) decide
every six hours after 14 days of history, by the product's formulas and the calibrated peaks that it serves, with its
default settings; an unproven forecast keeps Koordinator's margin. Offered: mean of batch-cpu over nodes and decisions.
Forecast's curve over risks is read, linear between them, at the violation of `usage` or at 1 %, whichever is higher.

Made up: a VM is a pod and a group of VMs a node, whose capacity is the sum of their provisioned sizes; outside of pods
it uses 2 % of its capacity and 2 % of what its pods use. A pod requests its 95th percentile of all days and a fifth, at
most its size; only `maxUsageRequest`, shown beside, reads requests. Nothing was tuned on these figures; the peak's
shapes were chosen on the same traces (see bench.recommender.decisions_reclaim).
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench.forecasting.populations import SEEDS, SLOTS, Population, azure, bitbrains
from bench.record import Row, above, record_on_traces
from cotenant.backtesting.policies import HIGHEST, NodesPast, decision_slots, scores
from cotenant.base.progress import Silent
from cotenant.base.resource import Resource
from cotenant.base.usage.backtest import FORECAST, PolicyScore
from cotenant.base.usage.usage import DAY_SECONDS, TimeGrid
from cotenant.forecasting.settings import NodePeakSettings
from cotenant.recommender.settings import ReclaimableSettings

RISKS_PERCENT = (0.5, 1.0, 10.0)
TOLERATED = 0.01
LEAST_RATIO = 1.3
DRAWS = 1
SCALE = 10.0
"""Traces are in per cent of a core: millicores are whole numbers in the formulas."""


def past(of: Population, seed: int) -> NodesPast:
    """One draw's nodes with their made-up system and requests, in millicores."""
    trial, groups = of.trial(seed), list(of.members(seed))
    prod, capacity = trial.totals * SCALE, trial.limits * SCALE
    system = 0.02 * capacity[:, None] + 0.02 * prod
    grid = TimeGrid(0, DAY_SECONDS // SLOTS, prod.shape[1])
    older = np.empty((len(groups), 0))
    slots = decision_slots(grid, older)
    requests = np.minimum(1.2 * np.nanquantile(of.usage, 0.95, axis=1), of.limits) * SCALE
    used = np.nan_to_num(of.usage[:, slots - 1]) * SCALE
    demand = np.stack([np.maximum(used[rows], requests[rows, None]).sum(axis=0) for rows in groups])
    names = tuple(f"n{index}" for index in range(len(groups)))
    none = np.zeros(len(groups))
    return NodesPast(
        names, Resource.CPU, grid, capacity, none, prod, prod, system, np.zeros(demand.shape), older, demand
    )


def mean(draws: Sequence[list[PolicyScore]], policy: str, risk: float | None = None) -> tuple[float, float]:
    """(violation, amount) over the draws."""
    chosen = [s for scores_of_draw in draws for s in scores_of_draw if (s.policy, s.risk_percent) == (policy, risk)]
    return float(np.mean([s.violation for s in chosen])), float(np.mean([s.amount for s in chosen]))


def rows_of(of: Population) -> list[Row]:
    draws = [
        scores(past(of, seed), ReclaimableSettings(), NodePeakSettings(), Silent(), RISKS_PERCENT)
        for seed in SEEDS[:DRAWS]
    ]
    violation, lent = mean(draws, "usage")
    level = max(violation, TOLERATED)
    curve = sorted(mean(draws, FORECAST, risk) for risk in RISKS_PERCENT)
    reachable = curve[0][0] <= level
    amount = float(np.interp(level, [v for v, _ in curve], [a for _, a in curve])) if reachable else 0.0
    default = mean(draws, FORECAST, 1.0)
    note = f"usage {lent / 1000:.1f} cores at {violation:.2%}; forecast at the default risk {default[1] / 1000:.1f} at "
    proven = np.mean(
        [
            s.peak_alone
            for scores_of_draw in draws
            for s in scores_of_draw
            if (s.policy, s.risk_percent) == (FORECAST, 1.0)
        ]
    )
    note += f"{default[0]:.2%}; proven at {proven:.0%} of decisions" + (
        "" if reachable else "; no risk comes down to this violation"
    )
    title = f"{of.name}: batch-cpu by forecast / by usage at {level:.2%} violation"
    rows = [above(title, round(amount / lent, 3), "ratio", LEAST_RATIO, note)]
    for policy in ("maxUsageRequest", HIGHEST):
        other = mean(draws, policy)
        text = f"violation {other[0]:.2%}"
        rows.append(Row(f"{of.name}: batch-cpu by {policy} / by usage", round(other[1] / lent, 3), "ratio", note=text))
    return rows


def measure(folder: Path) -> list[Row]:
    """All rows, in the order of the page."""
    rows: list[Row] = []
    for population in (*bitbrains(folder), *azure(folder)):
        if population.resource is Resource.CPU:
            rows += rows_of(population)
            print(f"{population.name}: done", flush=True)
    return rows


if __name__ == "__main__":
    record_on_traces("decisions_policy", measure)
