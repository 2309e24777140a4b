"""GPUs of a few workloads of the demo: idle notebooks, inference at a third, training at nearly all of a GPU. Pure.

They follow the CPU usage of the same containers, so that gaps, life times and daily patterns are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from cotenant.base.identity import PodContainerRef, WorkloadRef
from cotenant.base.resource import MeasuredResource
from cotenant.base.usage.usage import HOUR_SECONDS, Signal, Statistic, Usage
from cotenant_lab.synthetic.demand import Matrix
from cotenant_lab.synthetic.fleet import Blueprint
from cotenant_lab.synthetic.spec import Shape

DEVICE_PERCENT: Final = 100.0


@dataclass(frozen=True, slots=True)
class GpuUse:
    """The usage that a kind of workload has of the one GPU of each pod, in percent.

    `core`: of the device's time when its CPU usage is at its 95th percentile, or always when `steady`; `memory`: in
    use; `most`: number of workloads of the kind with GPUs; `measured`: whether their node has an exporter.
    """

    core: float
    memory: float
    most: int
    steady: bool = True
    measured: bool = True


NOTEBOOK: Final = GpuUse(core=0.4, memory=12.0, most=3)
STAGING: Final = GpuUse(core=0.2, memory=36.0, most=2)
INFERENCE: Final = GpuUse(core=30.0, memory=36.0, most=4, steady=False)
TRAINING: Final = GpuUse(core=90.0, memory=82.0, most=1000)
UNMEASURED: Final = GpuUse(core=0.0, memory=0.0, most=1, measured=False)
_BY_KIND: Final[Mapping[tuple[str, str, Shape | None], GpuUse]] = {
    ("ml-batch", "Pod", None): NOTEBOOK,
    ("staging", "Deployment", Shape.IDLE): STAGING,
    ("ml-batch", "Job", None): TRAINING,
    ("recsys", "Deployment", Shape.DAILY): INFERENCE,
    ("search", "Deployment", Shape.DAILY): UNMEASURED,
}
"""Namespace, kind and shape (None = any) of the workloads that have GPUs."""


def uses(plan: Sequence[Blueprint]) -> dict[WorkloadRef, GpuUse]:
    """Return the workloads that have GPUs, the first of each kind by name, with their usage."""
    chosen: dict[WorkloadRef, GpuUse] = {}
    for (namespace, kind, shape), use in _BY_KIND.items():
        refs = (b.ref for b in plan if (b.ref.namespace, b.ref.kind) == (namespace, kind) and shape in (None, b.shape))
        chosen |= dict.fromkeys(sorted(refs)[: use.most], use)
    return chosen


def usage(
    cpu: Usage[PodContainerRef], uses_of: Callable[[PodContainerRef], GpuUse | None], rng: np.random.Generator
) -> dict[Signal, Usage[Any]]:
    """Return cores, memory and requests of the containers' GPUs; `uses_of` returns a container's use, or None."""
    owned = [(row, use) for row, ref in enumerate(cpu.refs) if (use := uses_of(ref)) is not None]
    measured = [(row, use) for row, use in owned if use.measured]
    alive = cpu.values[[row for row, _ in measured]].reshape(len(measured), cpu.grid.size)
    noise = rng.normal(1.0, 0.03, (2, *alive.shape))
    load = np.array([_load(row, use) for row, (_, use) in zip(alive, measured, strict=True)]).reshape(alive.shape)
    memory = np.array([use.memory for _, use in measured]).reshape(-1, 1) * noise[1] + 0 * alive
    refs = tuple(cpu.refs[row] for row, _ in measured)
    series: dict[Signal, Usage[Any]] = {}
    for signal, values in ((Signal.GPU_CORE_MEAN, load * noise[0]), (Signal.GPU_MEMORY_MAX, memory)):
        percent = np.clip(values, 0, DEVICE_PERCENT).astype(np.float32)
        series[signal] = Usage(refs, cpu.grid, percent, signal.spec.resource, signal.spec.statistic)
    return series | _requests(cpu.select(np.array([row for row, _ in owned], dtype=np.intp)))


def _load(cpu: Matrix, use: GpuUse) -> Matrix:
    """Percent of the device's time, slot by slot, before noise; NaN where the container did not run."""
    busiest = float(np.nanpercentile(cpu, 95)) if np.isfinite(cpu).any() else 0.0
    follows = 1.0 if use.steady or busiest <= 0 else np.minimum(cpu / busiest, 1.2)
    return np.asarray(use.core * follows + 0 * cpu, dtype=np.float32)


def _requests(cpu: Usage[PodContainerRef]) -> dict[Signal, Usage[Any]]:
    """One whole device for each container in every hour in which it runs."""
    hours = Usage(cpu.refs, cpu.grid, cpu.values, cpu.resource, Statistic.LAST).coarser(
        HOUR_SECONDS // cpu.grid.step_seconds
    )
    gpu_percent = np.where(np.isnan(hours.values), np.nan, DEVICE_PERCENT).astype(np.float32)

    def of(resource: MeasuredResource | None) -> Usage[Any]:
        return Usage(cpu.refs, hours.grid, gpu_percent, resource, Statistic.LAST)

    signals = (Signal.GPU_CORE_REQUEST, Signal.GPU_MEMORY_REQUEST)
    return {signal: of(signal.spec.resource) for signal in signals}
