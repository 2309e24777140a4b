"""A cluster in simulated time for the benches of rebalancing: pods of the synthetic cluster that can be moved.

A pod uses what the synthetic cluster says, wherever it runs. Pods that begin later are placed as a stock scheduler does
it by requests. Nobody in here knows the future: reports are of the moment, forecasts come from the product's own
forecasting over what each node has used so far, with the pods that it had then.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import numpy as np
import numpy.typing as npt

from cotenant.base.cluster import Pod
from cotenant.base.identity import NodeRef, WorkloadRef
from cotenant.base.kubernetes.owners import TEMPLATE_HASH_LABEL
from cotenant.base.kubernetes.pod_identity import PodIdentity, Reference
from cotenant.base.kubernetes.qos import PriorityClass
from cotenant.base.resource import Resource
from cotenant.base.usage.forecast import LEVELS, Forecasts
from cotenant.base.usage.usage import DAY_SECONDS, Signal, TimeGrid, Usage
from cotenant.forecasting.backtest.engine import no_portraits
from cotenant.forecasting.engine import STEP_SECONDS, forecast
from cotenant.forecasting.settings import ForecastingSettings
from cotenant.scheduler_ext.extender.metric import ExtenderNode, LoadMetric, Outlook
from cotenant.scheduler_ext.extender.pod import NewPod
from cotenant.scheduler_ext.rebalance.load import NodeLoad, RebalanceInputs, RebalancePod, WorkloadOutlook
from cotenant_lab.synthetic import Shape, SyntheticCluster, SyntheticSpec, generate
from cotenant_lab.synthetic.cluster import system_level

Floats = npt.NDArray[np.float64]
SIGNALS = {Resource.CPU: Signal.CPU_USAGE_MEAN, Resource.MEMORY: Signal.MEMORY_WORKING_SET_MAX}
SETTINGS = ForecastingSettings(booster_rows=0)
"""As the product forecasts nodes."""
HIGH_LEVEL = LEVELS.index(0.95)
START_SECONDS = 30.0
"""From being placed to being ready."""
FULLEST = 0.98


@dataclass(frozen=True, slots=True)
class WorldSpec:
    """Which cluster; history_days come before the simulated ones.

    cpu_used: share of allocatable on average.
    forecast_slots: every how many slots of five minutes a forecast is made.
    """

    seed: int
    nodes: int = 20
    workloads: int = 200
    history_days: int = 14
    days: int = 7
    cpu_used: float = 0.42
    cpu_requested: float = 0.81
    memory_used: float = 0.50
    memory_requested: float = 0.75
    round_seconds: int = 120
    forecast_slots: int = 12
    shapes: frozenset[Shape] = frozenset(Shape)

    def generate(self) -> SyntheticCluster:
        """The synthetic cluster behind it."""
        return generate(
            SyntheticSpec(
                self.nodes, self.workloads, self.history_days + self.days, self.seed,
                cpu_used=self.cpu_used, cpu_requested=self.cpu_requested,
                memory_used=self.memory_used, memory_requested=self.memory_requested,
            )
        )  # fmt: skip


@dataclass(slots=True)
class World:
    """The cluster at `slot` of the 5-minute grid. usage: (2, pods, slots) of CPU and memory; at: node of each pod."""

    spec: WorldSpec
    grid: TimeGrid
    nodes: tuple[ExtenderNode, ...]
    pods: tuple[Pod, ...]
    usage: npt.NDArray[np.float32]
    begins: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    at: npt.NDArray[np.int64]
    placed: Floats
    system: Floats
    node_usage: npt.NDArray[np.float32]
    slot: int = 0
    outlooks: list[Outlook | None] = field(default_factory=list)
    cache: dict[int, RebalancePod] = field(default_factory=dict)
    workloads: dict[WorkloadRef, WorkloadOutlook] = field(default_factory=dict)

    @classmethod
    def of(cls, spec: WorldSpec) -> World:
        """The cluster at the end of its history, with the placement that the generator chose."""
        cluster = spec.generate()
        inventory, grid = cluster.inventory, cluster.spec.grid
        names = {node.name: row for row, node in enumerate(inventory.nodes)}
        chosen = {ref for ref, shape in cluster.truth.shape.items() if shape in spec.shapes}
        pods = tuple(pod for pod in inventory.pods if pod.node in names and pod.workload in chosen)
        usage = _usage(cluster, pods)
        capacity = np.array([[node.capacity[r] for node in inventory.nodes] for r in Resource], dtype=np.float64)
        system = np.array([[system_level(x, r) for x in row] for r, row in zip(Resource, capacity, strict=True)])
        nodes = tuple(
            ExtenderNode(
                node.name,
                {"cpu": node.allocatable[Resource.CPU], "memory": node.allocatable[Resource.MEMORY], "pods": 110},
                (float(node.capacity[Resource.CPU]), float(node.capacity[Resource.MEMORY])),
                labels=node.labels,
            )
            for node in inventory.nodes
        )
        begins = np.array([(p.start_seconds - grid.start_seconds) // grid.step_seconds for p in pods])
        stops = [p.end_seconds if p.end_seconds is not None else grid.end_seconds + DAY_SECONDS for p in pods]
        ends = (np.array(stops) - grid.start_seconds) // grid.step_seconds
        at = np.array([names[pod.node] for pod in pods])
        start_cluster = cls(
            spec, grid, nodes, pods, usage, begins, ends, at,
            np.array([float(pod.start_seconds) for pod in pods]), system,
            np.zeros((2, len(nodes), grid.size), np.float32),
        )  # fmt: skip
        for node in range(len(nodes)):
            start_cluster.node_usage[:, node] = usage[:, at == node].sum(axis=1) + system[:, node, None]
        start_cluster.slot = grid.index_of(grid.end_seconds - spec.days * DAY_SECONDS)
        start_cluster.at[start_cluster.begins >= start_cluster.slot] = -1
        return start_cluster

    @property
    def capacity(self) -> Floats:
        """(2, nodes)."""
        return np.array([node.capacity for node in self.nodes]).T

    def alive(self) -> npt.NDArray[np.intp]:
        """Pods that run now and have a node."""
        return np.flatnonzero((self.begins <= self.slot) & (self.slot < self.ends) & (self.at >= 0))

    def advance(self, closed: frozenset[int] = frozenset()) -> None:
        """One slot on: record what nodes used, then place what begins; nodes in `closed` come last."""
        self.node_usage[:, :, self.slot] = self.loads(0.0)
        self.slot += 1
        if self.slot < self.grid.size:
            for pod in np.flatnonzero(self.begins == self.slot).tolist():
                self.place(pod, closed)

    def place(self, pod: int, closed: frozenset[int] = frozenset(), *, packed: bool = False) -> None:
        """As a stock scheduler: among nodes with room the one with the least requested (packed: the most)."""
        free, room = self.free(), self.allocatable()
        request = np.array([self.pods[pod].requests.get(r, 0) for r in Resource], dtype=np.float64)
        fits = (free >= request[:, None]).all(axis=0)
        score = ((free - request[:, None]) / room).mean(axis=0) * (-1 if packed else 1)
        score[list(closed)] -= 10
        score[~fits] -= 100
        self.move(pod, int(np.argmax(score)))

    def move(self, pod: int, node: int) -> None:
        """Run it there from now on."""
        self.at[pod], self.placed[pod] = node, self.now(0.0)
        self.cache.pop(pod, None)

    def allocatable(self) -> Floats:
        """(2, nodes)."""
        return np.array([[node.allocatable[r.value] for node in self.nodes] for r in Resource], dtype=np.float64)

    def free(self) -> Floats:
        """What is allocatable less what is requested, (2, nodes)."""
        alive, free = self.alive(), self.allocatable()
        for row, resource in enumerate(Resource):
            requests = [float(self.pods[pod].requests.get(resource, 0)) for pod in alive.tolist()]
            free[row] -= np.bincount(self.at[alive], requests, len(self.nodes))
        return free

    def now(self, part: float) -> float:
        """Unix time, `part` of a slot after its beginning."""
        return float(self.grid.start_seconds) + (self.slot + part) * self.grid.step_seconds

    def pod_loads(self, pods: npt.NDArray[np.intp], part: float) -> Floats:
        """Usage of pods now, (2, pods): between two values of the grid in a straight line."""
        following = min(self.slot + 1, self.grid.size - 1)
        ends = np.where(self.ends[pods] > following, following, self.slot)
        here = self.usage[:, pods, self.slot].astype(np.float64)
        next_loads = np.stack([row[pods, ends] for row in self.usage])
        return here + part * (next_loads - here)

    def loads(self, part: float) -> Floats:
        """Usage of nodes now, (2, nodes); a machine has no more than it has."""
        alive = self.alive()
        used = self.pod_loads(alive, part)
        total = np.stack([np.bincount(self.at[alive], row, len(self.nodes)) for row in used]) + self.system
        return np.minimum(total, FULLEST * self.capacity)

    def forecast(self) -> None:
        """Forecast the nodes' CPU from what they have used so far, as the product does it every hour."""
        days = SETTINGS.history_days + 1
        first = max(self.slot - days * self.grid.slots_per_day, 0)
        grid = TimeGrid(int(self.grid.start_seconds + first * 300), 300, self.slot - first)
        refs = tuple(NodeRef(node.name) for node in self.nodes)
        past = Usage(
            refs,
            grid,
            self.node_usage[0, :, first : self.slot],
            Resource.CPU,
            Signal.NODE_CPU_USAGE_MEAN.spec.statistic,
        )
        forecasts = forecast(past, no_portraits(Resource.CPU), SETTINGS, fine=False)
        start, high = float(forecasts.grid.start_seconds), forecasts.quantiles[:, :, HIGH_LEVEL]
        self.outlooks = [
            Outlook(
                start,
                STEP_SECONDS,
                start + DAY_SECONDS,
                self.now(0.0),
                (tuple(high[row].tolist()), ()),
            )
            for row in range(len(refs))
        ]

    def know_workloads(self) -> None:
        """What no forecast knows: the mean of each workload's pods over each of the coming half hours."""
        refs = sorted({pod.workload for pod in self.pods})
        place = {ref: row for row, ref in enumerate(refs)}
        first, steps = self.slot // 6 * 6, DAY_SECONDS // STEP_SECONDS
        days = np.zeros((len(refs), steps * 6))
        last = min(first + steps * 6, self.grid.size)
        for pod, placed_pod in enumerate(self.pods):
            begin, end = max(int(self.begins[pod]), first), min(int(self.ends[pod]), last)
            if begin < end:
                days[place[placed_pod.workload], begin - first : end - first] += self.usage[0, pod, begin:end]
        medians = days.reshape(len(refs), steps, 6).mean(axis=2).tolist()
        start = float(self.grid.start_seconds + first * 300)
        self.workloads = {
            ref: WorkloadOutlook(start, (tuple(median), ())) for ref, median in zip(refs, medians, strict=True)
        }

    def forecast_workloads(self) -> None:
        """Forecast the CPU of workloads as the product does it every hour: totals of their pods up to now."""
        first = max(self.slot - (SETTINGS.history_days + 1) * self.grid.slots_per_day, 0)
        refs = tuple(sorted({pod.workload for pod in self.pods}))
        place = {ref: row for row, ref in enumerate(refs)}
        totals = np.full((len(refs), self.slot - first), np.nan, np.float32)
        for pod, placed_pod in enumerate(self.pods):
            begin, end = max(int(self.begins[pod]), first), min(int(self.ends[pod]), self.slot)
            if begin < end:
                part = totals[place[placed_pod.workload], begin - first : end - first]
                part[:] = np.nan_to_num(part) + self.usage[0, pod, begin:end]
        grid = TimeGrid(int(self.grid.start_seconds + first * 300), 300, self.slot - first)
        past: Usage[Any] = Usage(refs, grid, totals, Resource.CPU, Signal.CPU_USAGE_MEAN.spec.statistic)
        forecasts: Forecasts[Any] = forecast(past, no_portraits(Resource.CPU), SETTINGS, fine=False)
        medians = forecasts.level(0.5)
        self.workloads = {
            ref: WorkloadOutlook(float(forecasts.grid.start_seconds), (tuple(median.tolist()), ()))
            for ref, median in zip(refs, medians, strict=True)
            if np.isfinite(median).all()
        }

    def taint(self, taints: Mapping[int, tuple[tuple[str, str, str], ...]]) -> None:
        """Set the taints of nodes."""
        self.nodes = tuple(replace(node, taints=taints.get(row, node.taints)) for row, node in enumerate(self.nodes))

    def inputs(self, part: float = 0.0, removed: frozenset[int] = frozenset()) -> RebalanceInputs:
        """What a round looks at; nodes in `removed` are not there."""
        alive, now = self.alive(), self.now(part)
        used = self.pod_loads(alive, part).T.tolist()
        here: list[list[RebalancePod]] = [[] for _ in self.nodes]
        reports: list[dict[str, tuple[tuple[float, float], bool]]] = [{} for _ in self.nodes]
        for pod, (cpu, memory) in zip(alive.tolist(), used, strict=True):
            facts, node = self.rebalance_pod(pod), int(self.at[pod])
            here[node].append(facts)
            reports[node][facts.key] = ((cpu, memory), facts.facts.prod)
        loads = [
            NodeLoad(
                node,
                LoadMetric(now, usage=(0.0, 0.0), system=(self.system[0, row], self.system[1, row]), pods=reports[row]),
                self.outlooks[row] if self.outlooks else None,
                tuple(here[row]),
            )
            for row, node in enumerate(self.nodes)
            if row not in removed
        ]
        return replace(RebalanceInputs.of(loads, (), now), workloads=self.workloads)

    def rebalance_pod(self, pod: int) -> RebalancePod:
        """The pod as rounds see it."""
        if pod not in self.cache:
            self.cache[pod] = _rebalance_pod(self.pods[pod], float(self.placed[pod]))
        return self.cache[pod]

    def carry_out(self, moves: Sequence[tuple[str, str]]) -> None:
        """Moves as (pod, target): NAMESPACE/NAME and the name of a node."""
        rows = {f"{self.pods[pod].namespace}/{self.pods[pod].name}": pod for pod in self.alive().tolist()}
        nodes = {node.name: row for row, node in enumerate(self.nodes)}
        for key, target in moves:
            self.move(rows[key], nodes[target])


def _usage(cluster: SyntheticCluster, pods: Sequence[Pod]) -> npt.NDArray[np.float32]:
    """(2, pods, slots): containers summed; a gap of the scrape is what came before it, and nothing outside its life."""
    rows = {(pod.namespace, pod.name): row for row, pod in enumerate(pods)}
    summed = np.zeros((2, len(pods), cluster.spec.grid.size), dtype=np.float32)
    for index, signal in enumerate(SIGNALS.values()):
        series = cluster.usage[signal]
        for ref, values in zip(series.refs, series.values, strict=True):
            if (ref.namespace, ref.pod) in rows:
                summed[index, rows[ref.namespace, ref.pod]] += _filled(values)
    return summed


def _filled(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    finite = np.isfinite(values)
    if not finite.any():
        return np.zeros_like(values)
    last = np.maximum.accumulate(np.where(finite, np.arange(len(values)), -1))
    filled = np.where(last >= 0, values[last], 0)
    filled[np.flatnonzero(finite)[-1] + 1 :] = 0
    return filled.astype(np.float32)


def _rebalance_pod(pod: Pod, placed: float) -> RebalancePod:
    kind = "ReplicaSet" if pod.workload.kind == "Deployment" else pod.workload.kind
    name = f"{pod.workload.name}-1" if kind == "ReplicaSet" else pod.workload.name
    owner = Reference(kind, name, pod.namespace, "", "apps/v1", True)
    labels = {"app": pod.workload.name, TEMPLATE_HASH_LABEL: "1"}
    identity = PodIdentity(pod.namespace, pod.name, pod.name, labels, {}, (owner,))
    chosen = PriorityClass.PROD if pod.effective_priority is PriorityClass.NONE else pod.effective_priority
    facts = NewPod(
        identity, pod.node, chosen, kind == "DaemonSet", {r.value: int(pod.requests.get(r, 0)) for r in Resource},
        assigned_seconds=placed,
    )  # fmt: skip
    return RebalancePod(replace(facts), created_seconds=placed, ready_seconds=placed + START_SECONDS)
