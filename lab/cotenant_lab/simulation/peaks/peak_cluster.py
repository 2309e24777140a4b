"""A cluster that batch jobs keep full, for a service that scales up at its peak. Pure except for its own state.

The service's autoscaler follows its demand every five minutes and scales down after five (Kubernetes' default). The
remaining capacity is filled by the jobs of `cotenant.experiment.batch_jobs`, as ordinary pods that hold their requests
until they end: nothing is preempted. Three times as many jobs arrive as would fill the mean free capacity; waiting jobs
get free capacity after the service's pods and after placeholders. The same seed gives the same jobs.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from cotenant.base.resource import MILLICORES_PER_CORE
from cotenant.experiment.batch_jobs import KINDS, BatchQueue, sample_batch_jobs
from cotenant.scheduler_ext.reservations.plans.proposals import Size, need_of

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

SLOT_SECONDS: Final = 300
DAY_SLOTS: Final = 288
JOBS_LOAD: Final = 3.0
"""Work of the jobs that arrive by what the service leaves on average."""


@dataclass(frozen=True, slots=True)
class ClusterShape:
    """The number of nodes of a cluster and their cores; all nodes are alike."""

    nodes: int
    node_cores: float

    @property
    def cores(self) -> float:
        """Cores of all nodes."""
        return self.nodes * self.node_cores


def autoscaled_peak_pods(demand: Floats, size: Size) -> Counts:
    """Return the peak pods that the autoscaler requests in each slot, (T,): the most needed in it or the one before."""
    need: Counts = need_of(demand, size).astype(np.int64)
    replicas: Counts = np.maximum(need, np.concatenate([[0], need[:-1]]))
    return replicas


@dataclass(slots=True)
class PeakNodes:
    """The cores of each node that no pod requests, (n,)."""

    free: Floats

    @classmethod
    def empty(cls, shape: ClusterShape) -> PeakNodes:
        """Return nodes on which no pod requests anything."""
        return cls(np.full(shape.nodes, shape.node_cores))

    def place(self, cores: float) -> int | None:
        """Place a pod of these cores on the node with most free cores; return its index, None if no node has enough."""
        node = int(np.argmax(self.free))
        if self.free[node] < cores:
            return None
        self.free[node] -= cores
        return node

    def leave(self, node: int, cores: float) -> None:
        """Free the cores of a pod that leaves a node."""
        self.free[node] += cores


class PeakJobs:
    """Batch jobs on the cluster; they end at any step of `step_seconds`, independent of the service's scaling."""

    def __init__(self, free_cores: float, slots: int, step_seconds: float, seed: int) -> None:
        """free_cores: what the service leaves on average, which the jobs would fill."""
        self._jobs = sample_batch_jobs(free_cores * MILLICORES_PER_CORE * JOBS_LOAD, slots, seed)
        self._queue, self._ends = BatchQueue(self._jobs), list[tuple[int, int, float]]()
        self._steps_per_slot = int(SLOT_SECONDS // step_seconds)
        self._rng = np.random.default_rng([seed, 8])
        self.running_cores = 0.0

    def end(self, step: int, nodes: PeakNodes) -> None:
        """End the jobs that are complete, and free their cores."""
        while self._ends and self._ends[0][0] <= step:
            _, node, cores = heapq.heappop(self._ends)
            nodes.leave(node, cores)
            self.running_cores -= cores

    def begin(self, step: int, nodes: PeakNodes) -> None:
        """Start waiting jobs on the free capacity, kind by kind in turn, the largest first."""
        for kind in reversed(range(len(KINDS))):
            cores = KINDS[kind][0] / MILLICORES_PER_CORE
            while (node := nodes.place(cores)) is not None:
                waiting = self._queue.waiting(step // self._steps_per_slot)
                job = self._queue.take(np.flatnonzero(self._jobs.kind[waiting] == kind)[:1])
                if not len(job):
                    nodes.leave(node, cores)
                    break
                part_of_slot = int(self._rng.integers(self._steps_per_slot))
                run = int(self._jobs.work_steps[job[0]]) * self._steps_per_slot - part_of_slot
                heapq.heappush(self._ends, (step + run, node, cores))
                self.running_cores += cores
