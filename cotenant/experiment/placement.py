"""Places batch jobs on nodes by the extender's own filter and scores over all nodes, then the scheduler's choice. Pure.

As in a cluster with the shipped configuration, kube-scheduler filters nodes by free batch-cpu and batch-memory. The
extender refuses those that are too busy and returns the best. kube-scheduler, for which batch pods are all alike (they
request no cpu), chooses one of them at random. The extender's forecast by half hours is not available here: its rule is
neutral, and its estimate of a node's peak counts half.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from cotenant.base.kubernetes.pod_identity import PodIdentity
from cotenant.base.kubernetes.qos import PriorityClass
from cotenant.base.resource import Resource
from cotenant.experiment.batch_jobs import KINDS
from cotenant.experiment.install import Install
from cotenant.scheduler_ext.extender import decide
from cotenant.scheduler_ext.extender.columns import WIDTH, NodeState, SnapshotColumn, node_row
from cotenant.scheduler_ext.extender.metric import BATCH_NAMES, ExtenderNode
from cotenant.scheduler_ext.extender.pod import NewPod, estimate_of
from cotenant.scheduler_ext.extender.settings import ExtenderSettings
from cotenant.scheduler_ext.extender.snapshot import NEEDED, RESERVING, NodeSnapshot, slot_of
from cotenant.scheduler_ext.extender.watch.frame import CollectionState

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]

ROUNDS: Final = 12
"""Most times in a step that the extender sees the cluster anew; each time a node gets at most one pod."""
LIMITS: Final = [
    SnapshotColumn.LIMIT_CPU,
    SnapshotColumn.LIMIT_MEMORY,
    SnapshotColumn.PLAIN_CPU,
    SnapshotColumn.PLAIN_MEMORY,
    SnapshotColumn.BATCH_LIMIT_CPU,
]
"""Columns of thresholds, which are alike on all nodes."""
_FRESH: Final = {name: CollectionState(0.0) for name in (*NEEDED, *RESERVING)}


@dataclass(frozen=True, slots=True, eq=False)
class PlacementLoad:
    """The extender's data about n nodes, (2, n), CPU before memory: capacity, usage, lent, and requested by batch.

    `suppressed`, (n,), is the share of their CPU that batch pods did not get, mean over the last hour.
    """

    capacity: Floats
    used: Floats
    offered: Floats
    bound: Floats
    suppressed: Floats


class BatchPlacement:
    """The scheduler extender and kube-scheduler of one simulated cluster, which place batch pods."""

    def __init__(self, nodes: int, install: Install, rng: np.random.Generator) -> None:
        """Create the extender and the scheduler; the nodes are named by number."""
        settings = install.extender
        alike = NodeState(ExtenderNode("", lends_forecast=install.lends_forecast))
        self._limits = node_row(alike, settings.load_aware)[LIMITS, None]
        names = tuple(str(number) for number in range(nodes))
        self._empty = NodeSnapshot(names=names, rows={n: i for i, n in enumerate(names)}, sources=_FRESH)
        self._ahead = np.full((2, self._empty.ahead.shape[1], nodes), np.nan)
        self._settings, self._rng = settings, rng
        self._pods = tuple(batch_pod(number, settings) for number in range(len(KINDS)))
        self.estimates = np.array([pod.estimate for pod in self._pods], dtype=np.float64).T
        """What the extender expects pods to use, (2, kinds): millicores before bytes."""

    def places(self, kinds: Indices, load: PlacementLoad, now_seconds: float) -> tuple[Indices, Indices]:
        """Return the indices of the waiting pods that are placed now, and a different node for each of them.

        `kinds` has the kind of each waiting pod, the oldest first. Like kube-scheduler this takes the oldest pod that
        fits on some node, of any kind, and skips a pod that fits on none. It ends at the first pod whose offered nodes
        are all taken, because that pod needs a new answer of the extender.
        """
        offered = self._offered_nodes(kinds, load, now_seconds)
        untried = {kind: iter(nodes) for kind, nodes in offered.items()}
        has_node = np.array([kind in offered for kind in range(len(KINDS))])[kinds]
        most = sum(map(len, offered.values())) + 1  # the pod after these finds nobody's offer left
        places: dict[int, int] = {}
        for pod in np.flatnonzero(has_node)[:most].tolist():
            node = next((node for node in untried[int(kinds[pod])] if node not in places), None)
            if node is None:
                break
            places[node] = pod
        return np.array(list(places.values()), dtype=np.intp), np.array(list(places), dtype=np.intp)

    def _offered_nodes(self, kinds: Indices, load: PlacementLoad, now_seconds: float) -> dict[int, list[int]]:
        """Return the nodes offered to each kind of pod, in random order; kinds without any node are left out."""
        fitting: dict[int, Indices] = {}
        for kind in np.unique(kinds).tolist():
            # Nodes whose batch-cpu and batch-memory have room, as kube-scheduler's NodeResourcesFit sees it.
            request = np.array(KINDS[kind], dtype=np.float64)[:, None]
            rows = np.flatnonzero((load.bound + request <= load.offered).all(axis=0))
            if len(rows):
                fitting[kind] = rows
        if not fitting:
            return {}
        snapshot = self._snapshot(load, now_seconds)
        now = decide.Instant(now_seconds, now_seconds)
        context = decide.known_now(snapshot, now, self._settings)
        offered = {}
        for kind, rows in fitting.items():
            pod = self._pods[kind]
            checked, _ = decide.check_nodes(snapshot, pod, rows, now, self._settings, context)
            passed = rows[checked.passed]
            if len(passed):
                best = decide.best_row_indices(snapshot, pod, passed, now, self._settings, context)
                offered[kind] = self._rng.permutation(passed[best]).tolist()
        return offered

    def _snapshot(self, load: PlacementLoad, now_seconds: float) -> NodeSnapshot:
        """Return the rows that a watcher would send if every node had just reported."""
        columns = np.zeros((WIDTH, load.capacity.shape[1]))
        columns[LIMITS] = self._limits
        for column, values in (
            (SnapshotColumn.CAPACITY_CPU, load.capacity),
            (SnapshotColumn.USED_CPU, load.used),
            (SnapshotColumn.RANKED_CPU, load.used),
            (SnapshotColumn.REPORTED_CPU, load.used),
            (SnapshotColumn.BATCH_CPU, load.bound),
            (SnapshotColumn.BATCH_OFFERED_CPU, load.offered),
            (SnapshotColumn.ALLOCATABLE_CPU, load.capacity),
        ):
            columns[column : column + 2] = values
        columns[SnapshotColumn.UPDATED] = now_seconds
        columns[SnapshotColumn.MEASURED] = 1.0
        columns[SnapshotColumn.SUPPRESSED] = load.suppressed
        return replace(
            self._empty,
            columns=columns,
            ahead=self._ahead,
            first_slot=slot_of(now_seconds),
            reserved_rows=np.zeros(columns.shape[1], dtype=np.bool_),
            taken_seconds=now_seconds,
        )


def batch_pod(kind: int, settings: ExtenderSettings) -> NewPod:
    """Return a batch pod of a kind as the extender parses it, with requests and limits of the batch resources."""
    requests = dict(zip(BATCH_NAMES, KINDS[kind], strict=True))
    factors = settings.load_aware.scaling_factors
    scale = {Resource.CPU: factors.cpu, Resource.MEMORY: factors.memory}
    estimate = estimate_of(PriorityClass.BATCH, requests, requests, scale)
    identity = PodIdentity("batch", f"kind-{kind}", f"kind-{kind}", {}, {}, ())
    return replace(NewPod(identity), priority_class=PriorityClass.BATCH, requests=requests, estimate=estimate)
