"""A month after the nodes left: what the smaller cluster is short of, in simulated time, with a node that fails a week.

    .venv/bin/python -m bench.rebalance.cluster_size_month

Eight synthetic clusters of 60 nodes and 42 days. After a fortnight the question of the size is answered with a reserve
of one node, once with the requests of that day and once with all recommendations applied; the nodes that could leave
are taken away, and four weeks are played on the rest and, beside it, on all nodes: pods end and new ones come
(roll-outs, jobs, autoscalers), a scheduler with kube-scheduler's scores places each, and every week a node fails for
six hours, the same one in both. Counted are five-minute slots of nodes in which their pods used more than is
allocatable, and pods that waited for a place in the smaller cluster and not in the whole one at the same time.

Not simulated: what a busy node does to its pods, evictions, an autoscaler that brings nodes back.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Final

import numpy as np
import numpy.typing as npt

from bench.recommender.replay_worlds import HISTORY_DAYS, SETTINGS, moment
from bench.record import Row, below, record
from cotenant.base.cluster import Inventory, Pod
from cotenant.base.identity import WorkloadRef
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.base.usage.usage import DAY_SECONDS, FIVE_MINUTES_SECONDS, HOUR_SECONDS, Signal
from cotenant.recommender.backtest import amounts_once_applied, present
from cotenant.recommender.base import load_strategy, recommend
from cotenant.scheduler_ext.cluster_size.decide import decide_size
from cotenant.scheduler_ext.cluster_size.demand import busiest_moment, state_at, with_returning
from cotenant.scheduler_ext.cluster_size.model import (
    PODS,
    ClusterSize,
    RequestLevel,
    SizedCluster,
    SizedNode,
    SizedPod,
    SizeOptions,
    Stay,
)
from cotenant.scheduler_ext.cluster_size.stock_scores import resource_scores, spread_scores
from cotenant.scheduler_ext.extender.metric import ExtenderNode
from cotenant_lab.synthetic import SyntheticCluster, SyntheticSpec, generate

COMMAND: Final = ".venv/bin/python -m bench.rebalance.cluster_size_month"
SEEDS: Final = (1, 2, 3, 5, 7, 11, 13, 23)
WEEKS: Final = 4
NODES, WORKLOADS, PODS_PER_NODE = 60, 900, 110
FAILED_SECONDS: Final = 6 * HOUR_SECONDS
RISK_PERCENT: Final = 1.0
"""The risk at which recommendations and capacity are judged elsewhere (`bench.decisions`)."""
SPREAD_KINDS: Final = frozenset({"Deployment", "StatefulSet"})
"""Kinds of workloads whose pods a scheduler spreads by itself: their controllers are of COUNTED_KINDS."""
NO_ZONES: Final = np.zeros(1, dtype=np.int64)
"""Pods by zone of nodes that have none."""
LEVELS: Final = (RequestLevel.NOW, RequestLevel.ALL_STEPS)
RESOURCES: Final = (Resource.CPU, Resource.MEMORY)
USED: Final = {Resource.CPU: Signal.CPU_USAGE_MEAN, Resource.MEMORY: Signal.MEMORY_WORKING_SET_MAX}
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Month:
    """A cluster, the moment of the question, and the requests of its pods then and with all recommendations applied.

    requests: level -> (pods, resources), millicores and bytes; usage: (pods, resources, slots of the month), NaN where
    a pod did not run or nothing was measured.
    """

    cluster: SyntheticCluster
    origin_seconds: int
    requests: Mapping[RequestLevel, Floats]
    usage: npt.NDArray[np.float32]

    @property
    def inventory(self) -> Inventory:
        """Nodes and pods of all 42 days."""
        return self.cluster.inventory

    @property
    def slots(self) -> int:
        """Five-minute slots that are played."""
        return int(self.usage.shape[2])


def month_of(seed: int, nodes: int = NODES, workloads: int = WORKLOADS) -> Month:
    """Generate a seed's cluster, and recommend from its first fortnight."""
    days = HISTORY_DAYS + 7 * WEEKS
    synthetic_cluster = generate(SyntheticSpec(nodes, workloads, days, seed, cpu_requested=0.7, memory_requested=0.65))
    origin = synthetic_cluster.spec.grid.start_seconds + HISTORY_DAYS * DAY_SECONDS
    of_pods = {signal: series for signal, series in synthetic_cluster.usage.items() if not signal.spec.per_node}
    history = moment(synthetic_cluster.inventory, of_pods, origin).evidence
    advised = amounts_once_applied(history, recommend(load_strategy("cotenant"), history, SETTINGS))
    before = present(history)
    changed: dict[WorkloadRef, Floats] = defaultdict(lambda: np.zeros(len(RESOURCES)))
    for row, ref in enumerate(history.containers):
        for column, resource in enumerate(RESOURCES):
            then, once_applied = (amounts.requests[resource][row] for amounts in (before, advised))
            changed[ref.workload][column] += np.nan_to_num(once_applied) - np.nan_to_num(then)  # NaN: not set
    pods = synthetic_cluster.inventory.pods
    now = np.array([[pod.requests.get(resource, 0) for resource in RESOURCES] for pod in pods], dtype=np.float64)
    later = np.maximum(now + np.array([changed[pod.workload] for pod in pods]), 0.0)
    return Month(
        synthetic_cluster,
        origin,
        {RequestLevel.NOW: now, RequestLevel.ALL_STEPS: later},
        _usage(synthetic_cluster, origin),
    )


def _usage(synthetic_cluster: SyntheticCluster, origin_seconds: int) -> npt.NDArray[np.float32]:
    """Sum of the containers' usage by pod, resource and slot from the origin on."""
    row_of = {(pod.namespace, pod.name): row for row, pod in enumerate(synthetic_cluster.inventory.pods)}
    first = synthetic_cluster.spec.grid.index_of(origin_seconds)
    usage = np.full((len(row_of), len(RESOURCES), synthetic_cluster.spec.grid.size - first), np.nan, dtype=np.float32)
    for column, resource in enumerate(RESOURCES):
        series = synthetic_cluster.usage[USED[resource]]
        for ref, values in zip(series.refs, series.values[:, first:], strict=True):
            own = usage[row_of[ref.namespace, ref.pod], column]
            own[:] = np.where(np.isnan(own), values, np.where(np.isnan(values), own, own + values))
    return usage


def size_of(month: Month, level: RequestLevel) -> ClusterSize:
    """Ask at the month's beginning which nodes could leave, with one node in reserve, for the busiest moment too."""
    names = {resource: resource.value for resource in RESOURCES}
    pods = []
    for row, pod in enumerate(month.inventory.pods):
        if _runs_at(pod, month.origin_seconds):
            now, later = (_amounts(month.requests[of][row], names) for of in LEVELS)
            pods.append(
                SizedPod(
                    pod.namespace,
                    pod.name,
                    pod.node,
                    now,
                    owner=str(pod.workload),
                    goes_with_node=_is_daemon(pod),
                    stays=None if pod.workload.kind != "Pod" else Stay(Reason.NO_CONTROLLER, "has no controller"),
                    later={RequestLevel.ALL_STEPS: later},
                )
            )
    nodes = tuple(
        SizedNode(
            ExtenderNode(node.name),
            {**{names[r]: node.allocatable[r] for r in RESOURCES}, PODS: PODS_PER_NODE},
        )
        for node in month.inventory.nodes
    )
    state, record_until = SizedCluster(nodes, tuple(pods)), _until(month.inventory, month.origin_seconds)
    if (busiest := busiest_moment(record_until)) is not None:
        state = with_returning(state, busiest)
    return decide_size(state_at(state, level), SizeOptions(reserve_nodes=1))


def _until(inventory: Inventory, seconds: int) -> Inventory:
    """The inventory as it was known at a moment."""
    pods = (
        replace(pod, end_seconds=None) if pod.end_seconds is not None and pod.end_seconds > seconds else pod
        for pod in inventory.pods
        if pod.start_seconds <= seconds
    )
    return replace(inventory, time_seconds=seconds, pods=tuple(pods))


def _amounts(row: Floats, names: Mapping[Resource, str]) -> dict[str, int]:
    return {**{name: round(value) for name, value in zip(names.values(), row.tolist(), strict=True)}, PODS: 1}


def _is_daemon(pod: Pod) -> bool:
    return pod.workload.kind == "DaemonSet"


def _runs_at(pod: Pod, seconds: float) -> bool:
    return pod.start_seconds <= seconds and (pod.end_seconds is None or seconds < pod.end_seconds)


@dataclass(slots=True, eq=False)
class Play:
    """The month on the nodes that stay. node_of: place of each pod, -1 without one; waits: pods that want one.

    busy: slots of living nodes by resource in which usage was above what is allocatable, and all that were measured.
    """

    month: Month
    requests: Floats
    capacity: Floats
    stays: npt.NDArray[np.bool_]
    dice: random.Random
    node_of: npt.NDArray[np.int64] = field(init=False)
    free: Floats = field(init=False)
    count: npt.NDArray[np.int64] = field(init=False)
    waits: dict[int, None] = field(default_factory=dict)
    failed: int = -1
    busy: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(len(RESOURCES), dtype=np.int64))
    measured: int = 0
    waited: set[tuple[int, int]] = field(default_factory=set)
    """(pod, slot) of each pod that had no place at the end of a slot."""
    alike: dict[int, npt.NDArray[np.int64]] = field(default_factory=dict)
    """Pod -> pods of the same controller, where a scheduler spreads them."""

    def __post_init__(self) -> None:
        self.node_of = np.full(len(self.requests), -1, dtype=np.int64)
        self.free, self.count = self.capacity.copy(), np.zeros(len(self.capacity), dtype=np.int64)
        by_workload: dict[WorkloadRef, list[int]] = defaultdict(list)
        for row, pod in enumerate(self.month.inventory.pods):
            if pod.workload.kind in SPREAD_KINDS:
                by_workload[pod.workload].append(row)
        for rows in by_workload.values():
            self.alike |= dict.fromkeys(rows, np.array(rows))

    def put(self, pod: int, node: int) -> None:
        """Give the pod its place."""
        self.node_of[pod] = node
        self.free[node] -= self.requests[pod]
        self.count[node] += 1

    def end(self, pod: int) -> None:
        """Take the pod away, wherever it is."""
        self.waits.pop(pod, None)
        if (node := int(self.node_of[pod])) >= 0:
            self.node_of[pod] = -1
            self.free[node] += self.requests[pod]
            self.count[node] -= 1

    def fail(self, node: int) -> list[int]:
        """Let a node fail; return its pods, which want another place. Those of DaemonSets come back with it."""
        of_node = np.flatnonzero(self.node_of == node).tolist()
        pods = [pod for pod in of_node if not _is_daemon(self.month.inventory.pods[pod])]
        for pod in pods:
            self.end(pod)
        self.failed = node
        return pods

    def place(self) -> None:
        """Place the pods that wait where kube-scheduler would by its default profile, by lot among equal nodes."""
        for pod in list(self.waits):
            remaining = self.free - self.requests[pod]
            fits = self.stays & (remaining >= 0).all(axis=1) & (self.count < PODS_PER_NODE)
            if self.failed >= 0:
                fits[self.failed] = False
            candidates = np.flatnonzero(fits)
            if len(candidates):
                scores = resource_scores((remaining[candidates] / self.capacity[candidates]).T)
                if (alike := self.alike.get(pod)) is not None:
                    on_node = np.bincount(self.node_of[alike] + 1, minlength=len(self.capacity) + 1)[1:]
                    scores = scores + spread_scores(on_node[candidates], NO_ZONES, np.full(len(candidates), -1))
                best = candidates[scores == scores.max()]
                del self.waits[pod]
                self.put(pod, int(best[self.dice.randrange(len(best))]))

    def measure(self, slot: int) -> None:
        """Count the nodes whose pods used more than is allocatable, in slots of which every value is known."""
        bound = np.flatnonzero(self.node_of >= 0)
        used = self.month.usage[bound, :, slot]
        if not np.isfinite(used).any():
            return  # an outage of the measuring: nobody knows
        sums = np.zeros_like(self.capacity)
        np.add.at(sums, self.node_of[bound], np.nan_to_num(used))
        self.busy += (sums[self.stays] > self.capacity[self.stays]).sum(axis=0)
        self.measured += int(self.stays.sum())
        self.waited.update((pod, slot) for pod in self.waits)


def play(
    month: Month, level: RequestLevel, leaving: Collection[str], places: Mapping[str, str], failures: Sequence[int]
) -> Play:
    """Play four weeks without the nodes that leave.

    places: pod -> the node that takes it; failures: the node that fails in each week.
    """
    inventory, origin = month.inventory, month.origin_seconds
    number = {node.name: index for index, node in enumerate(inventory.nodes)}
    capacity = np.array([[node.allocatable[r] for r in RESOURCES] for node in inventory.nodes], dtype=np.float64)
    stays = np.array([node.name not in leaving for node in inventory.nodes])
    run = Play(month, month.requests[level], capacity, stays, random.Random(1))
    starts: dict[int, list[int]] = defaultdict(list)
    ends: dict[int, list[int]] = defaultdict(list)
    for row, pod in enumerate(inventory.pods):
        if _is_daemon(pod) and pod.node in leaving:
            continue
        begin = _slot(pod.start_seconds, origin)
        over = month.slots if pod.end_seconds is None else _slot(pod.end_seconds, origin)
        if over > 0 and begin < month.slots:
            ends[over].append(row)
            if begin > 0:
                starts[begin].append(row)
            else:
                run.put(row, number[places.get(f"{pod.namespace}/{pod.name}", pod.node)])
    for slot in range(month.slots):
        for row in ends[slot]:
            run.end(row)
        for row in starts[slot]:
            run.waits[row] = None
        week, second = divmod(slot * FIVE_MINUTES_SECONDS, 7 * DAY_SECONDS)
        since = second - 3 * DAY_SECONDS - 14 * HOUR_SECONDS  # on the fourth day, two in the afternoon
        if 0 <= since < FIVE_MINUTES_SECONDS:
            run.waits.update(dict.fromkeys(run.fail(failures[week])))
        elif FAILED_SECONDS <= since < FAILED_SECONDS + FIVE_MINUTES_SECONDS:
            run.failed = -1
        run.place()
        run.measure(slot)
    return run


def _slot(seconds: float, origin: int) -> int:
    return int((seconds - origin) // FIVE_MINUTES_SECONDS)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A month of one seed at one level. short: shares of slots in percent, by resource, without the nodes that left.

    waiting: pods that waited in the smaller cluster and not in the whole one at the same time, of `pods`.
    """

    seed: int
    kept: int
    pods: int
    waiting: int
    short: tuple[float, ...]
    short_before: tuple[float, ...]


def outcome_of(seed: int, month: Month, level: RequestLevel) -> Outcome:
    """Ask, let the nodes leave, and play four weeks on the rest and on all nodes."""
    size = size_of(month, level)
    leaving = {node.name for node in size.leaving}
    places = {place.pod: place.target for node in size.leaving for place in node.places}
    staying = [at for at, node in enumerate(month.inventory.nodes) if node.name not in leaving]
    failures = random.Random(seed).sample(staying, WEEKS)
    full_run = play(month, level, (), {}, failures)
    small = play(month, level, leaving, places, failures)
    short, before = (tuple((100 * run.busy / run.measured).tolist()) for run in (small, full_run))
    waiting = len({pod for pod, _ in small.waited - full_run.waited})
    return Outcome(seed, len(staying), len(small.requests), waiting, short, before)


def level_rows(level: RequestLevel, outcomes: Sequence[Outcome]) -> list[Row]:
    """Rows of all seeds at one level."""
    title = f"requests {level.value}"
    kept_counts = ", ".join(str(outcome.kept) for outcome in outcomes)
    rows = [Row(f"{title}: nodes kept, mean", fmean(outcome.kept for outcome in outcomes), "nodes", note=kept_counts)]
    for column, resource in enumerate(RESOURCES):
        of_seeds = [outcome.short[column] for outcome in outcomes]
        before = max(outcome.short_before[column] for outcome in outcomes)
        name = f"{title}: slots of nodes whose pods used more {resource.value} than is allocatable"
        rows.append(below(f"{name}, mean", fmean(of_seeds), "%", RISK_PERCENT))
        rows.append(
            below(f"{name}, worst seed", max(of_seeds), "%", RISK_PERCENT, f"worst with all nodes {before:.3g}")
        )
    waiting, pods = sum(outcome.waiting for outcome in outcomes), sum(outcome.pods for outcome in outcomes)
    title += ": pods that waited a slot or longer because of the smaller size"
    return [*rows, below(title, waiting, "pods", 0, f"of {pods:,}")]


def main() -> int:
    """Play every seed at every level, print and record."""
    outcomes: dict[RequestLevel, list[Outcome]] = {level: [] for level in LEVELS}
    for seed in SEEDS:
        month = month_of(seed)
        for level in LEVELS:
            outcomes[level].append(outcome_of(seed, month, level))
            print(level.value, outcomes[level][-1], flush=True)
    record("cluster_size_month", COMMAND, [row for level in LEVELS for row in level_rows(level, outcomes[level])])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
