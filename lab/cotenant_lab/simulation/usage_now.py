"""Simulated usage of pods at a moment, from the synthetic history of their workloads. Pure.

A workload's curve is the usage of one of its pods in each five minutes of the last week of history; a later moment has
the value of the same weekday and time of day, interpolated. A pod of no known workload uses a fixed share of its
requests, batch and mid resources included.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from cotenant.base.cluster import Node, Pod
from cotenant.base.colocation.nodemetric import CollectPolicy
from cotenant.base.identity import WorkloadRef
from cotenant.base.kubernetes.observed import ObservedPod
from cotenant.base.kubernetes.protocol import EXTENDED_RESOURCES
from cotenant.base.kubernetes.qos import PriorityClass, with_default
from cotenant.base.resource import Resource
from cotenant.base.usage.usage import DAY_SECONDS, FIVE_MINUTES_SECONDS, Signal, TimeGrid
from cotenant.forecasting.node_peaks.koordinator_peaks import MARGIN
from cotenant.profiler.node_metric.status import Observed, ProdOutlook
from cotenant.profiler.node_metric.windows import Track
from cotenant.recommender.colocation.formulas import prod_reclaimable
from cotenant_lab.simulation.objects import WORKLOAD_LABEL, workload_label
from cotenant_lab.synthetic import SyntheticCluster
from cotenant_lab.synthetic.cluster import system_level

Floats = npt.NDArray[np.float64]
Key = tuple[str, str]
"""(namespace, value of the workload's label): how a pod finds its curve."""

SAMPLE_SECONDS: Final = 60
SHARES: Final = {Resource.CPU: 0.6, Resource.MEMORY: 0.7}
"""Of its requests, what a pod without a curve uses."""
SPREAD: Final = 0.3
"""Replicas differ: each uses between 1 - SPREAD/2 and 1 + SPREAD/2 of its workload's curve, by its name."""
FULL: Final = 0.98
"""No node uses more of its capacity."""
PEAK_QUANTILE: Final = 0.95
_NOBODY: Final = WorkloadRef("", "", "")
_SIGNALS: Final = {Resource.CPU: Signal.CPU_USAGE_MEAN, Resource.MEMORY: Signal.MEMORY_WORKING_SET_MAX}
_NAMES: Final = {r: (r.value, *(n for (_, of), n in EXTENDED_RESOURCES.items() if of is r)) for r in Resource}


@dataclass(frozen=True, slots=True, eq=False)
class Curves:
    """Usage of one pod of each workload: `values` is (workloads, grid.size) by resource, `rows` has each key's row."""

    rows: Mapping[Key, int]
    grid: TimeGrid
    values: Mapping[Resource, Floats]

    def at(self, resource: Resource, rows: npt.NDArray[np.intp], times: Floats) -> Floats:
        """Return the usage at times (Unix seconds), (len(rows), len(times)); the curves repeat with the grid's span."""
        slots = (times - self.grid.start_seconds) / self.grid.step_seconds % self.grid.size
        index = slots.astype(np.intp) % self.grid.size
        weight = slots - np.floor(slots)
        values = self.values[resource]
        before, after = values[rows[:, None], index], values[rows[:, None], (index + 1) % self.grid.size]
        return np.asarray(before * (1.0 - weight) + after * weight)


def curves(cluster: SyntheticCluster) -> Curves:
    """Return the usage curves of a cluster's workloads; a workload that never ran in the window uses nothing."""
    full_grid = cluster.usage[Signal.CPU_USAGE_MEAN].grid
    grid = full_grid.last(min(full_grid.size // full_grid.slots_per_day, 7) * full_grid.slots_per_day)
    owners = cluster.inventory.owners()
    keys = {w.ref: (w.ref.namespace, workload_label(w.ref)) for w in cluster.inventory.workloads}
    rows = {key: i for i, key in enumerate(keys.values())}
    row_of = {ref: rows[key] for ref, key in keys.items()}
    values = {}
    for resource, signal in _SIGNALS.items():
        usage = cluster.usage[signal]
        of_series = np.array([row_of[owners[ref.namespace, ref.pod]] for ref in usage.refs], dtype=np.intp)
        pods = [(ref.namespace, ref.pod) for ref in usage.refs]
        values[resource] = _per_pod(usage.values[:, -grid.size :], of_series, pods, len(rows))
    return Curves(rows, grid, values)


def _per_pod(values: npt.NDArray[np.float32], of_series: npt.NDArray[np.intp], pods: Sequence[Key], n: int) -> Floats:
    """Sum over a workload's series / pods that ran, (n, slots); where none ran, its mean; where none ever did, 0."""
    finite = np.isfinite(values)
    total, count = np.zeros((n, values.shape[1])), np.zeros((n, values.shape[1]))
    np.add.at(total, of_series, np.where(finite, values, 0.0))
    firsts = np.array([i for i, pod in enumerate(pods) if i == 0 or pods[i - 1] != pod], dtype=np.intp)
    np.add.at(count, of_series[firsts], finite[firsts])
    with np.errstate(invalid="ignore", divide="ignore"):
        per_pod = np.where(count > 0, total / count, np.nan)
        mean = np.where(count.any(axis=1), total.sum(axis=1) / count.sum(axis=1), 0.0)
    return np.asarray(np.where(np.isfinite(per_pod), per_pod, mean[:, None]))


@dataclass(frozen=True, slots=True, eq=False)
class PodLoad:
    """The usage of pods on nodes: `usage` (pods, samples) by resource, `node` the index of each pod's node."""

    pods: tuple[Pod, ...]
    node: npt.NDArray[np.intp]
    usage: Mapping[Resource, Floats]


def pods_of(observed: Iterable[ObservedPod], nodes: Sequence[Node]) -> list[ObservedPod]:
    """Return the pods that run or will run on these nodes."""
    names = {node.name for node in nodes}
    return [pod for pod in observed if pod.active and not pod.deleting and pod.node in names]


def load(pods: Sequence[ObservedPod], nodes: Sequence[Node], shape: Curves, times: Floats) -> PodLoad:
    """Return the usage of the pods at these times (Unix seconds)."""
    index = {node.name: i for i, node in enumerate(nodes)}
    rows = np.array([shape.rows.get(key_of(pod), -1) for pod in pods], dtype=np.intp)
    draws = (zlib.crc32(f"{pod.namespace}/{pod.name}".encode()) / 2**32 for pod in pods)
    own = np.array([1.0 + SPREAD * (draw - 0.5) for draw in draws]).reshape(-1, 1)
    usage = {}
    for resource in Resource:
        requested = np.array([sum(pod.requests.get(name, 0) for name in _NAMES[resource]) for pod in pods], dtype=float)
        values = np.repeat(SHARES[resource] * requested[:, None], len(times), axis=1)
        of_demo = np.flatnonzero(rows >= 0)
        values[of_demo] = shape.at(resource, rows[of_demo], times)
        usage[resource] = values * own
    node = np.array([index[pod.node] for pod in pods], dtype=np.intp)
    return PodLoad(tuple(_pod(pod) for pod in pods), node, usage)


def key_of(pod: ObservedPod) -> Key:
    """Return the key of a demo pod's curve."""
    return pod.namespace, pod.labels.get(WORKLOAD_LABEL, "")


def _pod(observed: ObservedPod) -> Pod:
    requests = {r: observed.requests[r.value] for r in Resource if r.value in observed.requests}
    return Pod(
        observed.namespace, observed.name, _NOBODY, observed.node, 0,
        qos=observed.qos_class, priority=observed.priority_class, requests=requests, best_effort=observed.best_effort,
    )  # fmt: skip


def observed(
    pods: Sequence[ObservedPod], nodes: Sequence[Node], shape: Curves, moment: DemoMoment
) -> tuple[Observed, list[Pod]]:
    """Return what an agent on each node would have sampled up to now, and the pods.

    There is one sample per minute of the policy's longest window.
    """
    samples = max(1, moment.policy.longest_seconds // SAMPLE_SECONDS)
    times = moment.of_day_seconds - SAMPLE_SECONDS * np.arange(samples - 1, -1, -1, dtype=float)
    pod_load = load(pods, nodes, shape, times)
    names, end = tuple(node.name for node in nodes), int(moment.now_seconds) // SAMPLE_SECONDS * SAMPLE_SECONDS
    tracks: tuple[dict[Resource, Track], ...] = ({}, {})
    last = max(1, moment.policy.aggregate_seconds // SAMPLE_SECONDS)
    usage = {}
    for resource, values in pod_load.usage.items():
        capacity = np.array([float(node.capacity.get(resource, 0)) for node in nodes])
        system = np.array([system_level(amount, resource) for amount in capacity])
        demanded = _by_node(pod_load, values, len(nodes))
        allocatable = np.maximum(FULL * capacity - system, 0.0)[:, None]
        squeeze = np.minimum(allocatable / np.maximum(demanded, 1.0), 1.0)
        sums = demanded * squeeze
        used = np.minimum(sums + system[:, None], capacity[:, None])
        for into, matrix in zip(tracks, (used, sums), strict=True):
            into[resource] = Track(names, end, SAMPLE_SECONDS, matrix)
        usage[resource] = (values * squeeze[pod_load.node])[:, -last:].mean(axis=1)
    pod_names = tuple((pod.namespace, pod.name) for pod in pod_load.pods)
    newest = dict.fromkeys(names, float(int(moment.now_seconds)))
    return Observed(tracks[0], tracks[1], newest, pod_names, usage), list(pod_load.pods)


@dataclass(frozen=True, slots=True)
class DemoMoment:
    """The present time by the clock that stamps reports, and by the one that drives demand, which may run faster."""

    now_seconds: float
    of_day_seconds: float
    policy: CollectPolicy


def outlooks(
    pods: Sequence[ObservedPod], nodes: Sequence[Node], shape: Curves, moment: DemoMoment
) -> dict[str, ProdOutlook]:
    """Return by node the part of prod's requests beyond the p95 of its next day's usage, as an agent predicts it."""
    prod = [pod for pod in pods if with_default(pod.qos_class, pod.priority_class) is PriorityClass.PROD]
    times = moment.of_day_seconds + FIVE_MINUTES_SECONDS * np.arange(DAY_SECONDS // FIVE_MINUTES_SECONDS, dtype=float)
    pod_load = load(prod, nodes, shape, times)
    amounts: list[dict[Resource, int]] = [{} for _ in nodes]
    for resource, values in pod_load.usage.items():
        peaks = np.quantile(_by_node(pod_load, values, len(nodes)), PEAK_QUANTILE, axis=1)
        requested = np.array([float(pod.requests.get(resource, 0)) for pod in pod_load.pods])
        requests: Floats = np.bincount(pod_load.node, requested, minlength=len(nodes)).astype(np.float64)
        allocatable = np.array([float(node.allocatable.get(resource, 0)) for node in nodes])
        for row, amount in enumerate(prod_reclaimable(requests, allocatable, MARGIN * peaks).astype(np.int64).tolist()):
            amounts[row][resource] = amount
    return {node.name: ProdOutlook(reclaimable=amounts[row]) for row, node in enumerate(nodes)}


def _by_node(pod_load: PodLoad, values: Floats, nodes: int) -> Floats:
    out = np.zeros((nodes, values.shape[1]))
    np.add.at(out, pod_load.node, values)
    return out
