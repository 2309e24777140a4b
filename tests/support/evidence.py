"""A small cluster to recommend for: from plain matrices to portraits (profiler) and evidence (recommender)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from cotenant.base.cluster import Autoscaler, Container, Event, EventKind, Inventory, Pod, Workload
from cotenant.base.identity import ContainerRef, PodContainerRef, WorkloadRef
from cotenant.base.resource import Resource
from cotenant.base.usage.portrait import Portraits
from cotenant.base.usage.server_quantiles import ServerQuantiles
from cotenant.base.usage.usage import Signal, TimeGrid, Usage
from cotenant.profiler.pool import demand
from cotenant.profiler.portrait import build as build_portraits
from cotenant.profiler.settings import PortraitSettings
from cotenant.recommender.evidence import Evidence, assemble

END = 1_700_006_400  # a Wednesday, 00:00 UTC
STEP = 300
SOURCE = {Resource.CPU: Signal.CPU_USAGE_MEAN, Resource.MEMORY: Signal.MEMORY_WORKING_SET_MAX}


@dataclass
class Case:
    """One workload with one pod per row of a matrix (pods x slots); millicores and bytes, oldest slot first."""

    name: str = "web"
    cpu: Any = ()
    throttled: Any = ()
    memory: Any = ()
    requests: Mapping[Resource, int] = field(default_factory=dict)
    limits: Mapping[Resource, int] = field(default_factory=dict)
    hpa: Mapping[Resource, int] | None = None
    kills: Sequence[tuple[int, int | None]] = ()  # (seconds before the end, limit) of pod 0
    containers: int = 1  # template containers; the first one has the usage
    startup: Mapping[Resource, float] = field(default_factory=dict)
    replicas: int = 1

    @property
    def ref(self) -> WorkloadRef:
        return WorkloadRef("shop", "Deployment", self.name)

    def pods(self) -> int:
        return max((len(np.atleast_2d(m)) for m in (self.cpu, self.memory) if np.size(m)), default=1)


def series(case: Case, pod: int) -> PodContainerRef:
    return PodContainerRef("shop", f"{case.name}-{pod}", "c0")


def evidence_of(*cases: Case, server: ServerQuantiles | None = None, slots: int | None = None) -> Evidence:
    """Evidence whose window holds the longest matrix of the cases (or `slots`), ending at END."""
    size = slots or max((np.atleast_2d(m).shape[1] for c in cases for m in (c.cpu, c.memory)), default=0)
    grid = TimeGrid(END - size * STEP, STEP, size)
    usage = {
        Signal.CPU_USAGE_MEAN: _usage(cases, "cpu", Signal.CPU_USAGE_MEAN, grid),
        Signal.CPU_THROTTLED_MEAN: _usage(cases, "throttled", Signal.CPU_THROTTLED_MEAN, grid),
        Signal.MEMORY_WORKING_SET_MAX: _usage(cases, "memory", Signal.MEMORY_WORKING_SET_MAX, grid),
    }
    portraits = {resource: _portraits(cases, resource, grid) for resource in Resource}
    return assemble(_inventory(cases), grid, usage, portraits, server=server)


def _inventory(cases: Sequence[Case]) -> Inventory:
    workloads, pods, events = [], [], []
    for case in cases:
        containers = [Container(f"c{i}", case.requests, case.limits) for i in range(case.containers)]
        scaler = None if case.hpa is None else Autoscaler("hpa", 1, 5, case.hpa)
        workloads.append(Workload(case.ref, case.replicas, tuple(containers), autoscaler=scaler))
        pods += [Pod("shop", f"{case.name}-{i}", case.ref, "node-1", 0) for i in range(case.pods())]
        events += [Event(END - ago, EventKind.OOM_KILL, series(case, 0), limit) for ago, limit in case.kills]
    return Inventory("test", END, (), tuple(workloads), tuple(pods), tuple(events))


def _rows(case: Case, what: str) -> Any:
    rows = np.atleast_2d(np.asarray(getattr(case, what), dtype=np.float32))
    return rows if rows.size else np.empty((0, 0), dtype=np.float32)


def _refs(case: Case, what: str) -> list[PodContainerRef]:
    return [series(case, pod) for pod in range(len(_rows(case, what)))]


def _usage(cases: Sequence[Case], what: str, signal: Signal, grid: TimeGrid) -> Usage[PodContainerRef]:
    refs: list[PodContainerRef] = []
    values = [np.empty((0, grid.size), dtype=np.float32)]
    for case in cases:
        rows = _rows(case, what)
        if rows.size:
            refs += _refs(case, what)
            values.append(np.pad(rows, ((0, 0), (grid.size - rows.shape[1], 0)), constant_values=np.nan))
    return Usage(tuple(refs), grid, np.concatenate(values), signal.spec.resource, signal.spec.statistic)


def _portraits(cases: Sequence[Case], resource: Resource, grid: TimeGrid) -> Portraits[ContainerRef]:
    """Portraits of the first container of every case, by the profiler; CPU is demand. Start-up is set from the case."""
    usage = _usage(cases, "cpu" if resource is Resource.CPU else "memory", SOURCE[resource], grid)
    if resource is Resource.CPU:
        usage = demand(usage, _usage(cases, "throttled", Signal.CPU_THROTTLED_MEAN, grid))
    place = {series(case, pod): index for index, case in enumerate(cases) for pod in range(case.pods())}
    target = np.array([place[ref] for ref in usage.refs], dtype=np.int64)
    refs = [ContainerRef(c.ref, "c0") for c in cases]
    portraits = build_portraits(refs, target, usage, PortraitSettings())
    return replace(portraits, startup_max=np.array([c.startup.get(resource, np.nan) for c in cases]))
