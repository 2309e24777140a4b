"""The worlds of `bench replay`: synthetic clusters and traces, cut at origins into what was known and what followed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from msgspec import structs

from bench.traces import trace_matrix
from cotenant.base.cluster import Container, Inventory, Pod, Workload
from cotenant.base.identity import PodContainerRef, WorkloadRef
from cotenant.base.resource import MIB, Resource
from cotenant.base.usage.usage import DAY_SECONDS, FloatMatrix, Signal, TimeGrid, Usage
from cotenant.profiler import portrait
from cotenant.profiler.pool import by_container, demand
from cotenant.profiler.settings import PortraitSettings
from cotenant.recommender.backtest import Amounts, Recorded, amounts_once_applied, present
from cotenant.recommender.backtest import record as recorded
from cotenant.recommender.base import load_strategy, recommend
from cotenant.recommender.evidence import Evidence, Floats, assemble
from cotenant.recommender.model.recommendation import Action, Field, Recommendation
from cotenant.recommender.settings import RecommenderSettings
from cotenant.recommender.strategies.cotenant.size import WHOLE_CORES, is_guaranteed
from cotenant_lab.synthetic import SyntheticSpec, generate

STRATEGIES: Final = ("cotenant", "krr-simple", "vpa")
HISTORY_DAYS, FOLLOWING_DAYS = 14, 7
SYNTHETIC_SEEDS, SYNTHETIC_ORIGINS = (7, 23), (14, 17, 21)
BITBRAINS_ORIGINS, AZURE_ORIGINS = (15, 30, 45, 60, 80), (14, 17, 20)
AZURE_MILLICORES: Final = 4000
CPU, MEMORY = Resource.CPU, Resource.MEMORY
SETTINGS: Final = RecommenderSettings()
VM_SETTINGS: Final = structs.replace(SETTINGS, cotenant=structs.replace(SETTINGS.cotenant, keep_qos_class=False))


@dataclass(frozen=True, eq=False)
class Moment:
    """One origin: what is known then, and what followed."""

    evidence: Evidence
    followed: Recorded
    settings: RecommenderSettings = SETTINGS

    @cached_property
    def proposals(self) -> dict[str, list[Recommendation]]:
        """Of every strategy, in the order of the evidence."""
        return {name: recommend(load_strategy(name), self.evidence, self.settings) for name in STRATEGIES}

    @cached_property
    def now(self) -> Amounts:
        return present(self.evidence)

    @cached_property
    def common(self) -> npt.NDArray[np.bool_]:
        """Containers for which all strategies propose a CPU request, (n,)."""
        proposed = np.array([[_set(r) for r in each] for each in self.proposals.values()])
        everybody: npt.NDArray[np.bool_] = proposed.sum(axis=0) == len(proposed)
        return everybody

    @cached_property
    def comparable(self) -> npt.NDArray[np.bool_]:
        """Those of the common containers that no rule of class binds, (n,)."""
        keep = self.settings.cotenant.keep_qos_class
        free = [w.qos not in WHOLE_CORES and not (keep and is_guaranteed(w)) for w in self.evidence.workloads]
        is_comparable: npt.NDArray[np.bool_] = self.common & np.array(free, dtype=np.bool_)
        return is_comparable

    def with_fraction(self, fraction: float) -> Amounts:
        """What cotenant proposes with another quantile of the CPU demand."""
        own = structs.replace(self.settings.cotenant, cpu_fraction=fraction)
        recommendations = recommend(
            load_strategy("cotenant"), self.evidence, structs.replace(self.settings, cotenant=own)
        )
        return amounts_once_applied(self.evidence, recommendations)

    def amounts(self, name: str, factor: float = 1.0) -> Amounts:
        """A strategy's proposals, its CPU amounts times a factor where all strategies propose one."""
        own = amounts_once_applied(self.evidence, self.proposals[name])
        scale = np.where(self.common, factor, 1.0)
        return Amounts(
            {**own.requests, CPU: own.requests[CPU] * scale},
            {**own.limits, CPU: own.limits[CPU] * scale},
        )


def _set(recommendation: Recommendation) -> bool:
    value = recommendation.value(CPU, Field.REQUEST)
    return value is not None and value.action is Action.SET


@dataclass(frozen=True, eq=False)
class World:
    """A name and its origins, grouped by cluster; those of a cluster follow each other."""

    name: str
    clusters: Sequence[Sequence[Moment]]

    @cached_property
    def moments(self) -> list[Moment]:
        return [moment for cluster in self.clusters for moment in cluster]


def moment(inventory: Inventory, usage: Mapping[Signal, Usage[Any]], origin_seconds: int) -> Moment:
    """Cut a cluster at an origin: before it is evidence, after it is what followed."""
    before = origin_seconds - HISTORY_DAYS * DAY_SECONDS, origin_seconds
    after = origin_seconds, origin_seconds + FOLLOWING_DAYS * DAY_SECONDS
    inventory_then = replace(
        inventory,
        time_seconds=origin_seconds,
        pods=tuple(_as_of(pod, origin_seconds) for pod in inventory.pods if pod.start_seconds < origin_seconds),
        events=tuple(event for event in inventory.events if event.time_seconds < origin_seconds),
    )
    history = evidence(inventory_then, {s: cut(u, *before) for s, u in usage.items()})
    future = assemble(
        inventory,
        _window({s: cut(u, *after) for s, u in usage.items()}),
        {s: cut(u, *after) for s, u in usage.items()},
        history.portraits,
    )
    return Moment(history, recorded(future, FOLLOWING_DAYS))


def _as_of(pod: Pod, seconds: int) -> Pod:
    """The pod as it was known then: its end may not have come yet."""
    return pod if pod.end_seconds is None or pod.end_seconds < seconds else replace(pod, end_seconds=None)


def cut(usage: Usage[Any], start_seconds: int, end_seconds: int) -> Usage[Any]:
    """Series with a value in [start, end)."""
    grid = usage.grid
    first, last = grid.index_of(start_seconds), grid.index_of(end_seconds)
    values = usage.values[:, first:last]
    gapless = np.flatnonzero(np.isfinite(values).any(axis=1))
    refs = tuple(usage.refs[i] for i in gapless)
    return Usage(
        refs, TimeGrid(start_seconds, grid.step_seconds, last - first), values[gapless], usage.resource, usage.statistic
    )


def _window(usage: Mapping[Signal, Usage[Any]]) -> TimeGrid:
    return usage[Signal.CPU_USAGE_MEAN].grid


def evidence(inventory: Inventory, usage: Mapping[Signal, Usage[Any]]) -> Evidence:
    """What the analysis gives a strategy."""
    demanded = demand(usage[Signal.CPU_USAGE_MEAN], usage.get(Signal.CPU_THROTTLED_MEAN))
    of_pods = {CPU: demanded}
    if Signal.MEMORY_WORKING_SET_MAX in usage:
        of_pods[MEMORY] = usage[Signal.MEMORY_WORKING_SET_MAX]
    else:
        of_pods[MEMORY] = Usage(
            (), demanded.grid, demanded.values[:0], MEMORY, Signal.MEMORY_WORKING_SET_MAX.spec.statistic
        )
    portraits = {}
    for resource, series in of_pods.items():
        members = by_container(series.refs, inventory)
        portraits[resource] = portrait.build(
            members.refs, members.rows, series, PortraitSettings(), members.start_seconds
        )
    return assemble(inventory, _window(usage), usage, portraits)


def classes_free(replay_world: World) -> World:
    """The same origins with `keep_qos_class` off, as the peers have no such rule."""
    clusters = [[Moment(m.evidence, m.followed, VM_SETTINGS) for m in each] for each in replay_world.clusters]
    return World(f"{replay_world.name}, classes not kept", clusters)


def synthetic() -> World:
    """Two clusters of 30 nodes and 450 workloads over 28 days."""
    clusters = []
    for seed in SYNTHETIC_SEEDS:
        cluster = generate(SyntheticSpec(nodes=30, workloads=450, days=28, seed=seed))
        usage = {signal: series for signal, series in cluster.usage.items() if not signal.spec.per_node}
        start = cluster.spec.grid.start_seconds
        clusters.append([moment(cluster.inventory, usage, start + day * DAY_SECONDS) for day in SYNTHETIC_ORIGINS])
    return World("synthetic", clusters)


def bitbrains(folder: Path) -> World:
    """225 VMs with what was provisioned at each origin as request and limit."""
    columns = {
        name: trace_matrix(folder, "bitbrains_rnd", name)
        for name in ("cpu_usage_pct", "cpu_alloc_cores", "mem_usage_mib", "mem_alloc_mib")
    }
    grid = columns["cpu_usage_pct"][1]
    values = {name: matrix for name, (matrix, _) in columns.items()}
    cores = np.where(values["cpu_alloc_cores"] > 0, values["cpu_alloc_cores"] * 1000, np.nan).astype(np.float32)
    memory = np.where(values["mem_alloc_mib"] > 0, values["mem_alloc_mib"] * MIB, np.nan).astype(np.float32)
    usage = {
        Signal.CPU_USAGE_MEAN: values["cpu_usage_pct"] / 100 * cores,
        Signal.MEMORY_WORKING_SET_MAX: values["mem_usage_mib"] * np.float32(MIB),
    }
    provided = {CPU: cores, MEMORY: memory}
    return World("bitbrains_rnd", [_vms(usage, grid, provided, BITBRAINS_ORIGINS)])


def azure(folder: Path) -> World:
    """89 VMs, CPU alone, mean and peak."""
    (mean, grid), (peak, _) = (trace_matrix(folder, "azure_v1_vms", c) for c in ("cpu_avg_pct", "cpu_max_pct"))
    usage = {
        Signal.CPU_USAGE_MEAN: mean * np.float32(AZURE_MILLICORES / 100),
        Signal.CPU_USAGE_MAX: peak * np.float32(AZURE_MILLICORES / 100),
    }
    provided = {CPU: np.full(mean.shape, AZURE_MILLICORES, dtype=np.float32)}
    return World("azure_v1", [_vms(usage, grid, provided, AZURE_ORIGINS)])


def _vms(
    usage: Mapping[Signal, FloatMatrix],
    grid: TimeGrid,
    provided: Mapping[Resource, FloatMatrix],
    origins: Sequence[int],
) -> list[Moment]:
    """Each VM as a workload of one pod; origins in days after the first whole day of the trace."""
    start = -(-grid.start_seconds // DAY_SECONDS) * DAY_SECONDS
    count = len(usage[Signal.CPU_USAGE_MEAN])
    refs = tuple(PodContainerRef("trace", f"vm-{i:04d}", "app") for i in range(count))
    series = {
        s: Usage(refs, grid, np.ascontiguousarray(v, dtype=np.float32), s.spec.resource, s.spec.statistic)
        for s, v in usage.items()
    }
    moments = []
    for day in origins:
        origin = start + day * DAY_SECONDS
        amounts = {r: last_known(m[:, : grid.index_of(origin)]) for r, m in provided.items()}
        moments.append(replace(moment(vm_inventory(refs, amounts, origin), series, origin), settings=VM_SETTINGS))
    return moments


def vm_inventory(refs: Sequence[PodContainerRef], amounts: Mapping[Resource, Floats], origin: int) -> Inventory:
    """Each VM as a workload of one pod, these amounts as request and limit (NaN = none)."""
    workloads, pods = [], []
    for row, ref in enumerate(refs):
        owner = WorkloadRef(ref.namespace, "Deployment", ref.pod)
        amounts_of_vm = {r: int(column[row]) for r, column in amounts.items() if np.isfinite(column[row])}
        workloads.append(Workload(owner, 1, (Container(ref.container, amounts_of_vm, amounts_of_vm),)))
        pods.append(Pod(ref.namespace, ref.pod, owner, "node", 0))
    return Inventory("trace", origin, (), tuple(workloads), tuple(pods))


def last_known(values: FloatMatrix) -> Floats:
    """Newest value of each row, NaN without one."""
    measured = np.isfinite(values)
    newest = values.shape[1] - 1 - measured[:, ::-1].argmax(axis=1)
    return np.where(measured.any(axis=1), values[np.arange(len(values)), newest], np.nan).astype(np.float64)
