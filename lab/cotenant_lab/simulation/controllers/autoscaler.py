"""A simulated horizontal autoscaler, and the CPU demand of workloads over the demo's time. Pure.

The demand at a future time is that of the same weekday and time in the last week of history. The demo calls it "what
really happens"; forecasts, reservations and counterfactuals are compared with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.base.identity import WorkloadRef
from cotenant.base.kubernetes.pod_wire import requests_of
from cotenant.base.usage.usage import DAY_SECONDS, Signal, TimeGrid
from cotenant_lab.synthetic import SyntheticCluster

Json = Mapping[str, Any]
Floats = npt.NDArray[np.float64]

TOLERANCE: Final = 0.1
"""An autoscaler leaves things alone within a tenth of its target, as Kubernetes' does by default."""
_DAYS: Final = 7


@dataclass(frozen=True, slots=True, eq=False)
class CpuDemand:
    """CPU demand of whole workloads in the last week: `millicores` is (workloads, slots of `grid`)."""

    rows: Mapping[WorkloadRef, int]
    grid: TimeGrid
    millicores: Floats

    def at(self, workload: WorkloadRef, seconds: float) -> float | None:
        """Return the demand at a moment in millicores, interpolated; None for an unknown workload."""
        row = self.rows.get(workload)
        if row is None:
            return None
        slot = (seconds - self.grid.start_seconds) / self.grid.step_seconds % self.grid.size
        index, weight, values = int(slot), slot - int(slot), self.millicores[row]
        return float(values[index % self.grid.size] * (1 - weight) + values[(index + 1) % self.grid.size] * weight)


NOTHING: Final = CpuDemand({}, TimeGrid(0, DAY_SECONDS, 1), np.zeros((0, 1)))
"""Nobody asks for anything that is known."""


def demand_of(cluster: SyntheticCluster, workloads: Iterable[WorkloadRef]) -> CpuDemand:
    """Return each workload's CPU demand: its pods' summed usage of the last week; a gap has the value before it."""
    usage = cluster.usage[Signal.CPU_USAGE_MEAN]
    size = min(_DAYS * usage.grid.slots_per_day, usage.grid.size)
    owners = cluster.inventory.owners()
    rows = {ref: i for i, ref in enumerate(sorted(set(workloads)))}
    total, measured = np.zeros((len(rows), size)), np.zeros((len(rows), size), dtype=bool)
    for i, ref in enumerate(usage.refs):
        row = rows.get(owners[ref.namespace, ref.pod])
        if row is not None:
            values = usage.values[i, -size:]
            finite = np.isfinite(values)
            total[row, finite] += values[finite]
            measured[row] |= finite
    # Each gap has the last value before it; 0 where there is none.
    last = np.maximum.accumulate(np.where(measured, np.arange(size), -1), axis=1)
    filled = np.where(last >= 0, np.take_along_axis(total, np.maximum(last, 0), axis=1), 0.0)
    return CpuDemand(rows, usage.grid.last(size), filled)


def desired_replicas(scaler: Json, controller: Json, demand: CpuDemand, now_seconds: float) -> int:
    """Return the replicas that a HorizontalPodAutoscaler wants now; the present number if its metric is unknown.

    Source: Kubernetes, "Horizontal Pod Autoscaling", algorithm details: ceil(replicas x usage / target).
    """
    meta, spec = controller["metadata"], scaler["spec"]
    present = int(controller["spec"].get("replicas", 1))
    used = demand.at(WorkloadRef(meta["namespace"], controller["kind"], meta["name"]), now_seconds)
    percent = next((_percent(m) for m in spec.get("metrics") or () if _percent(m)), 0)
    request_millicores = requests_of(controller["spec"]["template"]["spec"]).get("cpu", 0)
    if used is None or not percent or not request_millicores:
        return present
    ratio = used / (max(present, 1) * request_millicores * percent / 100)
    behaviour = (spec.get("behavior") or {}).get("scaleUp" if ratio > 1 else "scaleDown") or {}
    tolerance = float(behaviour.get("tolerance", TOLERANCE))
    desired = present if abs(ratio - 1) <= tolerance else math.ceil(used / (request_millicores * percent / 100))
    return max(int(spec.get("minReplicas", 1)), min(int(spec["maxReplicas"]), desired))


def _percent(metric: Json) -> int:
    resource = metric.get("resource") or {}
    return int((resource.get("target") or {}).get("averageUtilization") or 0) if resource.get("name") == "cpu" else 0
