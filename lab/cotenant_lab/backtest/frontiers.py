"""Savings against violations of node peaks: cotenant's predictor and static ones on nodes made of trace series. Pure.

Nodes are drawn with a fixed seed from series with few gaps; decisions are made every six hours after two weeks. A curve
has a point per setting (cotenant's risk, or a factor of a static predictor). Predictors without a setting are single
points, and those that read every pod are computed only for a sample of the decisions.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cotenant.backtesting.reclaim import ReclaimTrial, calibrated_peaks, curve, highest_of, tallies_by_factor, tally
from cotenant.base.errors import NoData
from cotenant.base.usage.backtest import Frontier
from cotenant.forecasting.backtest.run import Shard
from cotenant.forecasting.node_peaks.peak_records import BLOCKS_PER_DAY, RECORD_DAYS
from cotenant.forecasting.settings import NodePeakSettings
from cotenant_lab.backtest.peaks import PEAK_BASELINES, MaxOfDays, NoOvercommit, node_total

NODES: Final = 60
RISKS: Final = (0.005, 0.01, 0.02, 0.05, 0.1)
FACTORS: Final = (0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.35)
ASKED: Final = 12
KNOWN_SHARE: Final = 0.9


def frontier(shard: Shard, pods: int, settings: NodePeakSettings, seed: int = 0) -> Frontier:
    """Return curves of nodes made of `pods` random series each; raise NoData if series, days or limits are too few."""
    # Draw the series that make up each of NODES synthetic nodes: rows of the shard, (NODES, pods). Only series that
    # are known throughout and have a limit are drawn. NoData where there are too few, or too few days.
    complete = (~np.isnan(shard.values)).mean(axis=1) >= KNOWN_SHARE
    usable = np.flatnonzero(complete & np.isfinite(shard.limits) & (shard.limits > 0))
    if len(usable) < pods:
        raise NoData(
            f"{len(usable)} series have a limit and few gaps; a node of {pods} pods needs {pods} such series",
            fix="Give --limit or --limit-column, or a smaller --pods-per-node.",
        )
    if shard.grid.size < (RECORD_DAYS + 1) * shard.grid.slots_per_day:
        raise NoData(f"a frontier needs {RECORD_DAYS + 1} days", fix="Leave out --pods-per-node.")
    rng = np.random.default_rng(seed)
    members = np.stack([rng.choice(usable, pods, replace=False) for _ in range(NODES)])
    limits = shard.limits[members].astype(np.float64)
    totals = np.stack([node_total(shard.values[own], shard.limits[own]) for own in members])
    trial = ReclaimTrial(totals, limits.sum(axis=1), shard.grid.slots_per_day)
    ours = {risk: tally(trial, peaks) for risk, peaks in calibrated_peaks(trial, RISKS, settings).items()}
    statics = [
        curve(f"B3 max of {days} d x factor", tallies_by_factor(trial, highest_of(trial, days), FACTORS))
        for days in (7, 14)
    ]
    # The other predictors as they are, at ASKED decisions spread over all.
    ends = trial.decisions
    sampled = np.unique(np.linspace(0, len(ends) - 1, min(ASKED, len(ends))).astype(np.intp))
    size = trial.slots_per_day // BLOCKS_PER_DAY
    points = []
    for predictor in PEAK_BASELINES:
        if isinstance(predictor, MaxOfDays | NoOvercommit):
            continue
        peaks = np.full((len(members), len(ends)), np.nan)
        for place in sampled.tolist():
            cut = int(ends[place]) * size
            past = shard.values[:, max(0, cut - RECORD_DAYS * trial.slots_per_day) : cut][members]
            peaks[:, place] = predictor.peaks(past, shard.limits[members], trial.slots_per_day)
        points.append(curve(predictor.name, {1.0: tally(trial, peaks)}))
    return Frontier(
        f"What nodes could lend: {NODES} nodes of {pods} series, drawn with seed {seed}",
        (curve("cotenant, by risk", ours, ours=True), *statics, *points),
    )
