"""Rank nodes for batch pods: free capacity at prod's next peak, little suppression, few batch pods. Pure.

Each of these criteria scores 0 to 100; an unknown value scores 50, so that it neither attracts nor repels pods.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cotenant.scheduler_ext.arrays import Floats
from cotenant.scheduler_ext.extender.columns import SnapshotColumn
from cotenant.scheduler_ext.extender.load.load_aware import HIGHEST
from cotenant.scheduler_ext.extender.settings import BalanceSettings

UNKNOWN: Final = HIGHEST / 2


def points(columns: Floats, load: Floats, peaks: Floats, settings: BalanceSettings) -> Floats:
    """Return each node's weighted mean of four scores, (n,); `load` is LoadAware's, `peaks` forecast p95s, (2, n)."""
    views = {
        "load": (settings.load, load),
        "peak": (settings.peak, free_share_at_peak(columns, peaks)),
        "suppression": (settings.suppression, calm(columns)),
        "spread": (settings.spread, spread(columns)),
    }
    total = sum(weight for weight, _ in views.values())
    if total == 0:
        return load
    weighted: Floats = sum((weight * points for weight, points in views.values()), np.zeros_like(load))
    return weighted / total


def free_share_at_peak(columns: Floats, peaks: Floats) -> Floats:
    """Return the free share of the scarcer resource at the highest forecast point, as a score of 0 to 100."""
    used = peaks + columns[SnapshotColumn.SINCE_CPU : SnapshotColumn.SINCE_MEMORY + 1]
    capacity = columns[SnapshotColumn.CAPACITY_CPU : SnapshotColumn.CAPACITY_MEMORY + 1]
    with np.errstate(divide="ignore", invalid="ignore"):
        free = np.clip(1.0 - used / capacity, 0.0, 1.0) * HIGHEST
    least: Floats = np.fmin.reduce(free, axis=0)
    return np.where(np.isfinite(least), least, UNKNOWN)


def calm(columns: Floats) -> Floats:
    """Return a score of 0 to 100, (n,), for how seldom best effort was suppressed on each node; 50 if unknown."""
    suppressed = columns[SnapshotColumn.SUPPRESSED]
    return np.where(np.isnan(suppressed), UNKNOWN, (1.0 - suppressed) * HIGHEST)


def spread(columns: Floats) -> Floats:
    """Return a score of 0 to 100, (n,), for how little of the scarcer batch resource is requested; 50 if unknown."""
    batch_amounts = columns[SnapshotColumn.BATCH_OFFERED_CPU : SnapshotColumn.BATCH_OFFERED_MEMORY + 1]
    requested = columns[SnapshotColumn.BATCH_CPU : SnapshotColumn.BATCH_MEMORY + 1]
    some = batch_amounts > 0
    free = np.where(some, np.clip(1.0 - requested / np.where(some, batch_amounts, 1.0), 0.0, 1.0) * HIGHEST, np.nan)
    least: Floats = np.fmin.reduce(free, axis=0)
    return np.where(np.isfinite(least), least, UNKNOWN)
