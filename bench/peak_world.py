"""A service that scales up at its daily peak, on a cluster that others' jobs fill: world of the reservations' bench.

Pure but for the cluster, which changes. The same seed gives the same service, the same jobs and the same outcome.

40 nodes of 16 cores. The service's pods request 2 cores and are scaled for 70 % of that; as many as its median needs
run at all times, and the pods above them are its peak pods. Demand: 20 cores, and a bump of 20 more in the evening
whose hour, width and height wander from day to day, six tenths of it at the week-end, 3 % of noise; on one day in ten
a flash crowd of ten cores for an hour, at any hour. Its autoscaler follows every five minutes and scales down after
five (Kubernetes' default). What it leaves is filled by the jobs of `cotenant.apps.experiment.batch_jobs`, as ordinary
pods that hold what they request until they end: nobody preempts. Three times as many arrive as would fill what is free
on average, and those that wait take room as it comes, but after the service's pods and after placeholders.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from cotenant.apps.experiment.batch_jobs import KINDS, BatchQueue, arriving
from cotenant.core.model.identity import WorkloadRef
from recommender.plans.proposals import Size, need_of

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

SLOT_SECONDS: Final = 300
DAY_SLOTS: Final = 288
NODES, NODE_CORES = 40, 16.0
POD_CORES: Final = 2.0
TARGET: Final = 0.7
"""Of a pod's request, at which its autoscaler adds another."""
JOBS_LOAD: Final = 3.0
"""Work of the jobs that arrive by what the service leaves on average."""
MEAN, BUMP, CROWD = 20_000.0, 20_000.0, 10_000.0
"""Millicores: at all times, at the top of the daily peak, of a flash crowd."""
MONDAY_SECONDS: Final = 1_800_000_000 // 604_800 * 604_800 + 4 * 86_400
"""A Monday's midnight, UTC: the Epoch was a Thursday."""


def demand_of(seed: int, days: int) -> Floats:
    """Millicores of the service in slots of five minutes from a Monday's midnight on, (days * 288,)."""
    rng = np.random.default_rng([seed, 7])
    hour = np.arange(DAY_SLOTS) / 12
    values = np.full((days, DAY_SLOTS), MEAN)
    for day in range(days):
        middle, width, height = rng.normal(18.5, 0.5), rng.uniform(1.2, 1.8), BUMP * np.exp(0.1 * rng.normal())
        weekend = 0.6 if day % 7 >= 5 else 1.0
        values[day] += weekend * height * np.exp(-0.5 * ((hour - middle) / width) ** 2)
        if rng.random() < 0.1:
            first = int(rng.integers(0, DAY_SLOTS - 12))
            values[day, first : first + 12] += CROWD
    noisy: Floats = values.ravel() * (1 + 0.03 * rng.standard_normal(days * DAY_SLOTS))
    return noisy


def size_of(demand: Floats, seed: int) -> Size:
    """What the pods of a seed's service are: the median of its history runs anyway, in whole pods."""
    capacity = POD_CORES * 1000 * TARGET
    running = float(np.ceil(np.median(demand) / capacity))
    requests = {"cpu": f"{POD_CORES:g}"}
    workload = WorkloadRef("shop", "Deployment", f"web-{seed}")
    return Size(workload, requests, int(POD_CORES * 1000), capacity, running * capacity)


def scaled(demand: Floats, size: Size) -> Counts:
    """Peak pods that the autoscaler asks for in each slot, (T,): the higher of its need and of the one's before."""
    need: Counts = need_of(demand, size).astype(np.int64)
    replicas: Counts = np.maximum(need, np.concatenate([[0], need[:-1]]))
    return replicas


@dataclass(slots=True)
class Nodes:
    """Cores of each node that nobody requests."""

    free: Floats = field(default_factory=lambda: np.full(NODES, NODE_CORES))

    def place(self, cores: float) -> int | None:
        """The node with most room, which has so much less now; None where no node has so much."""
        node = int(np.argmax(self.free))
        if self.free[node] < cores:
            return None
        self.free[node] -= cores
        return node

    def leave(self, node: int, cores: float) -> None:
        """Room that is free again."""
        self.free[node] += cores


class Jobs:
    """Others' jobs on the cluster; they end at any step of `step_seconds`, not together with the service's scaling."""

    def __init__(self, service_cores: float, slots: int, step_seconds: float, seed: int) -> None:
        """service_cores: of the service on average; what it leaves is what the jobs would fill."""
        self._jobs = arriving((NODES * NODE_CORES - service_cores) * 1000 * JOBS_LOAD, slots, seed)
        self._queue, self._ends = BatchQueue(self._jobs), list[tuple[int, int, float]]()
        self._steps_per_slot = int(SLOT_SECONDS // step_seconds)
        self._rng = np.random.default_rng([seed, 8])
        self.running_cores = 0.0

    def end(self, step: int, nodes: Nodes) -> None:
        """Give back the room of those that end now."""
        while self._ends and self._ends[0][0] <= step:
            _, node, cores = heapq.heappop(self._ends)
            nodes.leave(node, cores)
            self.running_cores -= cores

    def begin(self, step: int, nodes: Nodes) -> None:
        """Those that wait take what room there is, kind by kind in turn, the largest first."""
        for kind in reversed(range(len(KINDS))):
            cores = KINDS[kind][0] / 1000
            while (node := nodes.place(cores)) is not None:
                job = self._queue.take(kind, 1, step // self._steps_per_slot)
                if not len(job):
                    nodes.leave(node, cores)
                    break
                part_of_slot = int(self._rng.integers(self._steps_per_slot))
                run = int(self._jobs.work_steps[job[0]]) * self._steps_per_slot - part_of_slot
                heapq.heappush(self._ends, (step + run, node, cores))
                self.running_cores += cores
