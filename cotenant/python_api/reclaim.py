"""The capacity that nodes could have lent to batch work at past decisions, from their usage in a DataFrame. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from cotenant.backtesting.reclaim import ROUNDING, ReclaimTrial, calibrated_peaks, frontier, highest_after
from cotenant.base.errors import FrameError, NotEnoughHistory, UsageError
from cotenant.base.resource import Resource
from cotenant.base.usage.usage import DAY_SECONDS, TimeGrid
from cotenant.forecasting.node_peaks.peak_records import BLOCKS_PER_DAY, RECORD_DAYS
from cotenant.python_api.arguments import require_sequence, resource_of, settings_of
from cotenant.python_api.own_usage import ALLOCATABLE, COLUMN
from cotenant.python_api.tables import times_of
from cotenant.python_api.usage_frame import LongUsage, read

BLOCK_SECONDS: Final = DAY_SECONDS // BLOCKS_PER_DAY

_UNIT_FIX: Final = {Resource.CPU: "frame[{0!r}] = 1000 * cores", Resource.MEMORY: "frame[{0!r}] = 2**20 * MiB"}


def reclaim_decisions(
    node_usage: pd.DataFrame,
    *,
    risk_percent: Sequence[float] = (1.0,),
    resource: str = "cpu",
    settings: str | Path | None = None,
) -> pd.DataFrame:
    """Compute for every six hours of the past what each node could lend, from earlier data only.

    `node_usage` is as of `ClusterStore.node_usage`: `time`, `node`, `cpu_usage_millicores` (or
    `memory_working_set_bytes`) and `cpu_allocatable_millicores` (or `memory_allocatable_bytes`), of more than 15 days:
    the first 14 are history. `risk_percent` is how often the actual peak may exceed the expected one, as in
    `node_peak.risk_percent`. Usage above allocatable counts as allocatable; FrameError if most is above, which suggests
    another unit.

    One row per risk, decision and node: risk_percent, time, node, and with units expected_peak (of the next 24 hours,
    at that risk), lent (allocatable minus expected_peak), actual_peak (NaN if half of the 24 hours is missing) and
    excess (actual_peak minus expected_peak, at least 0). A decision with an excess was violated.
    """
    of_resource = resource_of(resource)
    fix = "Write a sequence such as (0.1, 1, 5)."
    percents = require_sequence("risk_percent", risk_percent, "numbers", fix)
    for percent in percents:
        if not isinstance(percent, Real) or not 0 < float(percent) < 100:
            raise UsageError(f"risk_percent={percent!r} is not between 0 and 100 %", fix=fix)
    if not percents or len(set(percents)) < len(percents):
        what = "contains a risk twice" if percents else "is empty"
        raise UsageError(f"risk_percent={risk_percent!r} {what}", fix=fix)
    risks = [float(percent) / 100 for percent in percents]
    nodes, trial = _trial(node_usage, of_resource)
    actual = highest_after(trial)
    start = nodes.grid.start_seconds
    moments = np.repeat(start + trial.decisions * BLOCK_SECONDS, len(nodes.names))
    names = np.tile(np.array([name for (name,) in nodes.names], dtype=object), len(trial.decisions))
    parts = []
    for risk, peaks in calibrated_peaks(trial, risks, settings_of(settings).node_peak).items():
        expected = np.minimum(peaks, trial.limits[:, None])
        above = actual - expected
        amounts = {
            "expected_peak": expected,
            "lent": trial.limits[:, None] - expected,
            "actual_peak": actual,
            "excess": np.where(above < ROUNDING * trial.limits[:, None], 0.0, above),
        }
        columns = {f"{name}_{of_resource.unit}": matrix.T.ravel() for name, matrix in amounts.items()}
        labels = {"risk_percent": 100 * risk, "time": times_of(moments), "node": pd.Series(names, dtype="str")}
        parts.append(pd.DataFrame({**labels, **columns}))
    return pd.concat(parts, ignore_index=True)


def reclaim_frontier(
    node_usage: pd.DataFrame, *, resource: str = "cpu", settings: str | Path | None = None
) -> pd.DataFrame:
    """Return the capacity that cotenant's and static predictors would have lent, by share of violated decisions.

    `node_usage` has the columns time, node, cpu_usage_millicores and cpu_allocatable_millicores (or
    memory_working_set_bytes and memory_allocatable_bytes), of more than 15 days. A decision lends allocatable minus the
    predicted peak of the next 24 hours, and is violated if usage exceeds that peak. One row per predictor (curve) and
    setting (its risk or factor): violation_ratio (share of violated decisions), savings_ratio (lent / what an oracle
    would have lent) and ours (whether it is cotenant's). Compare predictors at equal violation.
    """
    _, trial = _trial(node_usage, resource_of(resource))
    curves = frontier("the DataFrame", trial, settings_of(settings).node_peak).curves
    rows = [(c.name, p.label, p.violation, p.savings, c.ours) for c in curves for p in c.points]
    frame = pd.DataFrame(rows, columns=["curve", "setting", "violation_ratio", "savings_ratio", "ours"])
    return frame.astype({"curve": "str", "setting": "str", "ours": "bool"})


def _trial(frame: pd.DataFrame, resource: Resource) -> tuple[LongUsage, ReclaimTrial]:
    column, limit = COLUMN[resource], ALLOCATABLE[resource]
    nodes = read(frame, ("node",), [column], [limit])
    if limit not in nodes.amounts:
        what = f"the DataFrame has no column {limit!r}, from which lent capacity is computed"
        fix = f"frame[{limit!r}] = what pods may request of the node, in {resource.unit}"
        raise FrameError(limit, what, fix=fix)
    limits = nodes.amounts[limit]
    if not (limits > 0).all():
        name = nodes.names[int((~(limits > 0)).argmax())][0]
        fix = "Leave the node out, or give its allocatable amount."
        raise FrameError(limit, f"node {name} has no {limit} above 0 {resource.unit}", fix=fix)
    # The same from the first UTC border of six hours on, where decisions stand.
    grid = nodes.grid
    cut = (-grid.start_seconds % BLOCK_SECONDS) // grid.step_seconds
    rest = TimeGrid(grid.start_seconds + cut * grid.step_seconds, grid.step_seconds, max(0, grid.size - cut))
    nodes = replace(nodes, grid=rest, values={column: nodes.values[column][:, cut:]})
    totals = nodes.values[column].astype(np.float64)
    above = (totals > limits[:, None]).sum(axis=1)
    if 2 * above.sum() > np.isfinite(totals).sum():
        first = int(above.argmax())
        where = f"{limits[first]:g} {resource.unit} at node {nodes.names[first][0]}"
        what = f"most values of {column} exceed {limit}, such as {where}"
        fix = f"Give usage and {limit} in {resource.unit}, for example {_UNIT_FIX[resource].format(limit)}."
        raise FrameError(limit, what, fix=fix)
    totals = np.minimum(totals, limits[:, None])
    trial = ReclaimTrial(totals, limits, nodes.grid.slots_per_day, resource)
    if not len(trial.decisions):
        days = nodes.grid.size / nodes.grid.slots_per_day
        raise NotEnoughHistory(
            f"the DataFrame spans {days:.1f} days; a decision needs {RECORD_DAYS} days before it and one day after it",
            fix="Give more days: store.node_usage(since=0) returns all stored days.",
        )
    return nodes, trial
