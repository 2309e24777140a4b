"""Usage of workloads over the time that they ran, which every surface's quantiles of a workload are of. Pure."""

from __future__ import annotations

from cotenant.base.resource import Resource
from cotenant.base.usage.histogram import HistogramBatch
from cotenant.pipeline.analysis import WorkloadAnalysis
from cotenant.pipeline.nodes.reclaimable import POD_SIGNAL
from cotenant.profiler.time_run import idle_slots, while_running


def usage_while_running(analysis: WorkloadAnalysis, resource: Resource) -> HistogramBatch:
    """Histograms of the sums over each workload's pods while any of them ran, rows in the workloads' order."""
    cpu, memory = (analysis.totals[POD_SIGNAL[r]].values for r in (Resource.CPU, Resource.MEMORY))
    usage = analysis.totals[POD_SIGNAL[resource]]
    return while_running(analysis.portraits[resource].histograms, usage.values, idle_slots(cpu, memory), usage.grid)
