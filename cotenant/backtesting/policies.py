"""Capacity that reclaim policies would have lent to batch at past times, and how often it was too much. Pure.

Every six hours, from earlier data only, each policy computes what every node lends to batch, by the formulas of the
manager (`cotenant.recommender.colocation.formulas`) and the calibrated peaks of the pipeline
(`forecasting.node_peaks.node_peak`). A decision is violated if in the next 24 hours prod, mid and the system together
need more capacity than was not lent. Pods without a sample count as 0 here, exclusive CPUs with their usage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from msgspec import structs

from cotenant.backtesting.reclaim import ReclaimTrial, tally
from cotenant.base.colocation.colocation_strategy import ColocationStrategy
from cotenant.base.identity import NodeRef
from cotenant.base.progress import Progress
from cotenant.base.resource import Resource
from cotenant.base.usage.backtest import FORECAST, PolicyScore
from cotenant.base.usage.usage import Statistic, TimeGrid, Usage
from cotenant.forecasting.node_peaks.koordinator_peaks import koordinator_peaks
from cotenant.forecasting.node_peaks.node_peak import NodeLimits, mid_peaks, node_peaks
from cotenant.forecasting.node_peaks.peak_records import BLOCKS_PER_DAY, RECORD_DAYS, block_maxima
from cotenant.forecasting.settings import NodePeakSettings
from cotenant.recommender.colocation.columns import NodeColumns, ceil_amounts
from cotenant.recommender.colocation.formulas import Parameters, batch, peak_alone_mask
from cotenant.recommender.settings import ReclaimableSettings

Floats = npt.NDArray[np.floating[Any]]

RISKS_PERCENT: Final = (0.1, 1.0, 5.0)
HIGHEST: Final = "highest of 14 days"
"""The static policy to compare with: policy `forecast` with the highest usage of prod pods in 14 days as the peak."""


@dataclass(frozen=True, slots=True, eq=False)
class NodesPast:
    """Past usage of one resource on n nodes in the T time slots of `grid`, in the resource's unit; NaN = not known.

    - `capacity`, (n,), of the nodes; `reserved`, (n,): the part of it that is not offered to pods
    - `prod`, (n, T): usage of prod pods and pods without a class; `high`, (n, T): of all pods whose usage is never lent
    - `system`, (n, T): usage outside of pods; `older`, (n, blocks): prod maxima in the six-hour blocks before the grid
    - `cold`, (n, D): requests of running prod pods too new to have a past, at each of D six-hourly decisions
    - `demand`, (n, D): sum of max(usage, request) of the pods in `high`; None if requests are not known
    """

    nodes: tuple[str, ...]
    resource: Resource
    grid: TimeGrid
    capacity: Floats
    reserved: Floats
    prod: Floats
    high: Floats
    system: Floats
    cold: Floats
    older: Floats
    demand: Floats | None = None

    @property
    def trial(self) -> ReclaimTrial:
        """Usage of each node by everything except batch, limited to its capacity, for tests of reclaim decisions."""
        needed = np.clip(self.high + self.system, 0, self.capacity[:, None])
        days = first_day(self.older)
        return ReclaimTrial(needed, self.capacity, self.grid.slots_per_day, self.resource, days)


def first_day(older: Floats) -> int:
    """Return the number of the grid's first day with decisions: 14 minus the days that `older` covers, at least 1."""
    blocks_before = int(np.isfinite(older).any(axis=0).sum())
    return max(1, RECORD_DAYS - blocks_before // BLOCKS_PER_DAY)


def decision_slots(grid: TimeGrid, older: Floats) -> npt.NDArray[np.intp]:
    """Return the index of the time slot at which each of the D six-hourly decisions is made, (D,)."""
    size = grid.slots_per_day // BLOCKS_PER_DAY
    last = grid.size // size - BLOCKS_PER_DAY
    return np.arange(first_day(older) * BLOCKS_PER_DAY, last + 1, dtype=np.intp) * size


def scores(
    past: NodesPast,
    reclaimable: ReclaimableSettings,
    peaks: NodePeakSettings,
    progress: Progress,
    risks_percent: Sequence[float] = RISKS_PERCENT,
) -> list[PolicyScore]:
    """Return the scores of all reclaim policies, tested at the same six-hourly decisions: of `forecast` one per risk.

    `maxUsageRequest` is left out if `past.demand` is None. `progress` advances once per decision.
    """
    trial, slots = past.trial, decision_slots(past.grid, past.older)
    columns = present_columns(past, slots)
    forecasts = forecasts_at(past, slots, peaks, risks_percent, progress)
    tried: list[tuple[str, float | None, NodeColumns]] = [("usage", None, columns)]
    if past.demand is not None:
        tried.append(("maxUsageRequest", None, columns))
    tried += [(FORECAST, risk, replace(columns, **forecasts[risk])) for risk in risks_percent]
    evident = {"origins": np.full(columns.prod_peak.shape, 10**6), "violation": np.zeros(columns.prod_peak.shape)}
    # Highest use of prod in the 14 days before each decision, (n, D); NaN where nothing is known.
    size = past.grid.slots_per_day // BLOCKS_PER_DAY
    newer = block_maxima(past.prod[:, : past.grid.size // size * size], past.grid.slots_per_day)
    blocks = np.concatenate([past.older, newer], axis=1)
    ends = (slots // size + blocks.shape[1] - newer.shape[1]).tolist()
    records = [np.fmax.reduce(blocks[:, max(0, end - RECORD_DAYS * BLOCKS_PER_DAY) : end], axis=1) for end in ends]
    highest = np.stack(records, axis=1).astype(np.float64)
    static = {**forecasts[risks_percent[0]], "prod_peak": highest.ravel(), **evident}
    tried.append((HIGHEST, None, replace(columns, **static)))
    return [_score(trial, policy, risk, of, reclaimable) for policy, risk, of in tried]


def _score(
    trial: ReclaimTrial, policy: str, risk: float | None, columns: NodeColumns, settings: ReclaimableSettings
) -> PolicyScore:
    """Score the amounts that the formulas offer by what nodes needed afterwards."""
    chosen = FORECAST if policy == HIGHEST else policy
    strategy = structs.replace(ColocationStrategy.of_settings(settings), cpu_policy=chosen, memory_policy=chosen)
    parameters = Parameters.of([strategy] * len(columns.nodes), columns.resource)
    offered = batch(columns, parameters, now_seconds=0.0)
    shape = len(trial.limits), len(trial.decisions)
    lent = np.where(offered.lent, offered.amounts.astype(np.float64), np.nan).reshape(shape)
    result = tally(trial, trial.limits[:, None] - lent)
    nodes = np.isfinite(lent).any(axis=1).sum()
    return PolicyScore(
        policy=policy,
        risk_percent=risk,
        resource=columns.resource,
        amount=float(np.nanmean(lent)) * int(nodes) if nodes else float("nan"),
        violation=result.violation if result.decisions.sum() else float("nan"),
        short_unit_hours=float(result.evicted_hours.sum()),
        peak_alone=float(peak_alone_mask(columns, parameters).mean()) if policy == FORECAST else 0.0,
    )


def present_columns(past: NodesPast, slots: npt.NDArray[np.intp]) -> NodeColumns:
    """Return the formulas' terms, a row per node and decision, from the slot before; unmeasured without a sample."""
    rows = {name: getattr(past, name)[:, slots - 1].ravel() for name in ("prod", "high", "system")}
    capacity, reserved = (np.repeat(of, len(slots)) for of in (past.capacity, past.reserved))
    is_known = np.isfinite(rows["high"]) & np.isfinite(rows["system"])
    zeros, none = np.zeros(len(capacity), dtype=np.int64), np.full(len(capacity), np.nan)
    terms: dict[str, Any] = {f.name: zeros for f in fields(NodeColumns)}
    terms |= dict.fromkeys(("prod_peak", "system_peak", "violation"), none)
    terms |= {"mid_peak": np.zeros(len(capacity)), "cpu_ratio": np.ones(len(capacity))}
    terms |= {
        "capacity": ceil_amounts(capacity),
        "reserved": ceil_amounts(reserved),
        "system_used": ceil_amounts(rows["system"]),
    }
    terms |= {"hp_used": ceil_amounts(rows["high"]), "prod_used": ceil_amounts(rows["prod"])}
    terms |= {"hp_max": zeros if past.demand is None else ceil_amounts(past.demand.ravel())}
    terms |= {"nodes": tuple(np.repeat(past.nodes, len(slots)).tolist()), "resource": past.resource}
    return NodeColumns(**terms | {"measured_seconds": np.where(is_known, 0.0, np.nan)})


def forecasts_at(
    past: NodesPast,
    slots: npt.NDArray[np.intp],
    settings: NodePeakSettings,
    risks_percent: Sequence[float],
    progress: Progress,
) -> Mapping[float, dict[str, Any]]:
    """Return by risk (percent) the forecast terms of the reclaim formulas by name, (nodes x decisions,), node by node.

    Each decision (a time slot of `slots`) is forecast only from the time slots before it. `progress` advances once per
    decision.
    """
    served, system, mid = [], [], []
    refs, grid, values = tuple(NodeRef(name) for name in past.nodes), past.grid, past.prod.astype(np.float32)
    longest = (settings.calibration_days + RECORD_DAYS) * grid.slots_per_day
    risks = [risk / 100 for risk in risks_percent]
    for index, slot in enumerate(slots.tolist()):
        # Prod's totals before the decision, as long as calibration reads.
        first = max(0, slot - longest)
        part = TimeGrid(grid.start_seconds + first * grid.step_seconds, grid.step_seconds, slot - first)
        usage = Usage(refs, part, values[:, first:slot], past.resource, Statistic.MEAN)
        limits = NodeLimits(past.capacity - past.reserved, past.cold[:, index].astype(np.float64))
        served.append(node_peaks(usage, limits, risks, settings, older=past.older))
        system.append(koordinator_peaks(past.system[:, :slot], grid.slots_per_day, past.resource))
        mid.append(mid_peaks(past.high[:, :slot], past.prod[:, :slot], grid.slots_per_day))
        progress.advance()
    beside: dict[str, Any] = {
        name: np.stack(columns, axis=1).astype(np.float64).ravel()
        for name, columns in (("system_peak", system), ("mid_peak", mid))
    }
    beside["origins"] = np.stack([p.days for p in served], axis=1).astype(np.int64).ravel()
    # Peak and measured violation (ratio) at each risk, each (nodes * decisions,), node after node.
    return {
        risk: {
            "prod_peak": np.stack([p.peaks[:, i] for p in served], axis=1).astype(np.float64).ravel(),
            "violation": np.stack([p.violation[:, i] for p in served], axis=1).astype(np.float64).ravel(),
            **beside,
        }
        for i, risk in enumerate(risks_percent)
    }
