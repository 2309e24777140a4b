"""Where batch pods go: to nodes with free capacity at prod's next peak, little suppression and few batch pods. Pure.

Each view gives 0 to 100 points. What is not known of a node gives half of them, so that it neither draws nor repels.
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
    """Weighted mean, (n,). columns: (WIDTH, n); load: load-aware points (n,); peaks: highest p95 ahead (2, n)."""
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
    """Share of capacity that is free at the highest point ahead, of the scarcer resource; in points."""
    used = peaks + columns[SnapshotColumn.SINCE_CPU : SnapshotColumn.SINCE_MEMORY + 1]
    capacity = columns[SnapshotColumn.CAPACITY_CPU : SnapshotColumn.CAPACITY_MEMORY + 1]
    with np.errstate(divide="ignore", invalid="ignore"):
        free = np.clip(1.0 - used / capacity, 0.0, 1.0) * HIGHEST
    least: Floats = np.fmin.reduce(free, axis=0)
    return np.where(np.isfinite(least), least, UNKNOWN)


def calm(columns: Floats) -> Floats:
    """Return points for how seldom best effort was suppressed on each node, (n,), 0 to 100; 50 where unknown."""
    suppressed = columns[SnapshotColumn.SUPPRESSED]
    return np.where(np.isnan(suppressed), UNKNOWN, (1.0 - suppressed) * HIGHEST)


def spread(columns: Floats) -> Floats:
    """Points, (n,), for how little of the scarcer batch resource is requested, 0 to 100; 50 where none is known."""
    batch_amounts = columns[SnapshotColumn.BATCH_OFFERED_CPU : SnapshotColumn.BATCH_OFFERED_MEMORY + 1]
    requested = columns[SnapshotColumn.BATCH_CPU : SnapshotColumn.BATCH_MEMORY + 1]
    some = batch_amounts > 0
    free = np.where(some, np.clip(1.0 - requested / np.where(some, batch_amounts, 1.0), 0.0, 1.0) * HIGHEST, np.nan)
    least: Floats = np.fmin.reduce(free, axis=0)
    return np.where(np.isfinite(least), least, UNKNOWN)
