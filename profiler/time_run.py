"""Quantiles of a workload's usage over the time that it ran. Pure.

Sums over a workload's pods are 0 while none of them runs: between the runs of a CronJob, after a Job's end, while a
Deployment is scaled to nothing. Samples of a time without pods say nothing about what pods use, and as newer samples
weigh more, they would soon be all that a quantile sees.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from cotenant.base.usage.histogram import HistogramBatch
from cotenant.base.usage.usage import FloatMatrix, TimeGrid


def idle_slots(cpu: FloatMatrix, memory: FloatMatrix) -> npt.NDArray[np.bool_]:
    """Slots in which no pod ran, (n, slots), from sums over pods: a process always holds memory, so its sum is 0 then.

    cpu, memory: (n, slots), gaps NaN. Where the memory is not known, CPU of exactly 0 says the same.
    """
    idle: npt.NDArray[np.bool_] = np.where(np.isnan(memory), cpu, memory) == 0
    return idle


def while_running(
    histograms: HistogramBatch, values: FloatMatrix, idle: npt.NDArray[np.bool_], grid: TimeGrid
) -> HistogramBatch:
    """The histograms of `values` (n, grid.size) without the samples of idle slots; what never ran stays as it is.

    They are made anew, and not by taking zeros away: weights from before a long rest have long gone by then.
    """
    running = np.isfinite(values) & ~idle
    rows = np.flatnonzero(running.any(axis=1) & (np.isfinite(values) & idle).any(axis=1))
    if not len(rows):
        return histograms
    part = np.where(running[rows], values[rows], np.float32(np.nan))
    made = HistogramBatch.empty(len(rows), histograms.buckets, histograms.half_life_seconds).add(part, grid.times())
    weights, total, reference = histograms.weights.copy(), histograms.total.copy(), histograms.reference_seconds.copy()
    weights[rows], total[rows], reference[rows] = made.weights, made.total, made.reference_seconds
    return replace(histograms, weights=weights, total=total, reference_seconds=reference)
