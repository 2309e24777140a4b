"""Usage of workloads over their running time, from which all shown quantiles are computed. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cotenant.base.resource import Resource
from cotenant.base.usage.histogram import Floats, HistogramBatch
from cotenant.pipeline.analysis import WorkloadAnalysis
from cotenant.pipeline.nodes.reclaimable import POD_SIGNAL
from cotenant.profiler.portrait import idle_slots, while_running


def usage_while_running(analysis: WorkloadAnalysis, resource: Resource) -> HistogramBatch:
    """Histograms of the sums over each workload's pods while any of them ran, rows in the workloads' order."""
    cpu, memory = (analysis.totals[POD_SIGNAL[r]].values for r in (Resource.CPU, Resource.MEMORY))
    usage = analysis.totals[POD_SIGNAL[resource]]
    return while_running(analysis.portraits[resource].histograms, usage.values, idle_slots(cpu, memory), usage.grid)


def quantiles_while_running(
    analysis: WorkloadAnalysis, resource: Resource, histograms: HistogramBatch, fractions: Sequence[float]
) -> Floats:
    """Quantiles of `usage_while_running`, (n, len(fractions)), none of them above the workload's highest sample.

    A histogram answers with the upper edge of a bucket, which may lie above all samples in it.
    """
    highest = analysis.portraits[resource].maximum
    return np.fmin(histograms.percentiles(fractions, highest), highest[:, None])


def p95_while_running(analysis: WorkloadAnalysis, resource: Resource) -> Floats:
    """Return the p95 of each workload's usage while it ran, (n,)."""
    return quantiles_while_running(analysis, resource, usage_while_running(analysis, resource), (0.95,))[:, 0]
