"""Synthetic clusters and trace files as clusters to simulate (worlds). Pure.

A synthetic world consists of cells of at most CELL_NODES nodes. Each cell is a synthetic cluster with deploys,
autoscaling, kills, bursts, week-ends and a holiday; only its nodes' totals are kept, so that a large cluster fits into
memory. A trace world draws series of a trace for each node, by seed, and shifts each by whole weeks. The cluster's own
batch pods are left out, because the experiment adds its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.backtesting.policies import NodesPast, decision_slots
from cotenant.base.errors import NoData
from cotenant.base.progress import Progress
from cotenant.base.resource import Resource
from cotenant.base.usage.usage import DAY_SECONDS, TimeGrid
from cotenant.experiment.nodes_past import nodes_past
from cotenant.experiment.outcome import STEP_SECONDS, SharingScenario
from cotenant.experiment.world import HISTORY_DAYS, SLOTS_PER_DAY, World, world_of
from cotenant.pipeline.analysis import History, NodeMaxima
from cotenant.pipeline.nodes.reclaimable import pod_totals
from cotenant_lab.synthetic import SyntheticCluster, SyntheticSpec, generate
from cotenant_lab.synthetic.cluster import system_level
from cotenant_lab.synthetic.spec import DEFAULT_END_SECONDS

Floats = npt.NDArray[np.floating[Any]]


SYNTHETIC: Final = "synthetic"
CELL_NODES: Final = 50
PODS_OF_AGENTS: Final = 3
"""Of each synthetic node: the DaemonSets."""
PODS_PER_WORKLOAD: Final = 1.45
REQUESTED_SHARE: Final = 0.8
"""Of a trace node's capacity, by the requests of its pods: what a bin-packed cluster has."""


@dataclass(frozen=True, slots=True, eq=False)
class PodSeries:
    """Usage (pods, slots) and requests (pods,) of a trace's pods, in the resource's unit, from a UTC midnight on."""

    usage: Mapping[Resource, Floats]
    requests: Mapping[Resource, Floats]


def synthetic_world(scenario: SharingScenario, progress: Progress) -> World:
    """Return a world made of synthetic clusters (cells) of nearly equal size; `progress` advances once per cell."""
    count = -(-scenario.nodes // CELL_NODES)
    progress.stage("Pods of the cluster", count)
    parts: list[Mapping[Resource, NodesPast]] = []
    for number in range(count):
        nodes = scenario.nodes // count + (number < scenario.nodes % count)
        cluster = cell_cluster(scenario, number, nodes)
        history, start = history_of(cluster), cluster.spec.grid.start_seconds
        unknown = NodeMaxima((), start, np.empty((len(cluster.inventory.nodes), 0), dtype=np.float32))
        parts.append({r: nodes_past(history, r, pod_totals(history, r), unknown) for r in Resource})
        progress.advance()
    return world_of(scenario, {r: concatenate_cells([part[r] for part in parts]) for r in Resource})


def trace_world(scenario: SharingScenario, series: PodSeries) -> World:
    """Return a world with the scenario's pods / nodes series on each node, drawn by seed; NoData for a short trace."""
    days = HISTORY_DAYS + scenario.days
    size = days * SLOTS_PER_DAY
    long = next(iter(series.usage.values())).shape[1]
    if long < size:
        raise NoData(
            f"the trace has {long / SLOTS_PER_DAY:.1f} days, but {days} are needed: {HISTORY_DAYS} days of history and "
            f"{scenario.days} to evaluate",
            fix=f"Give --days {max(1, int(long / SLOTS_PER_DAY) - HISTORY_DAYS)} or a longer trace.",
        )
    rng = np.random.default_rng([scenario.seed, 1])
    pods_each = max(1, scenario.pods // scenario.nodes)
    rows = rng.integers(0, len(next(iter(series.usage.values()))), (scenario.nodes, pods_each))
    weeks = max(1, (long - size) // (7 * SLOTS_PER_DAY) + 1)
    starts = rng.integers(0, weeks, rows.shape) * 7 * SLOTS_PER_DAY
    return world_of(scenario, {r: _build_nodes_past(series, r, rows, starts, rng) for r in series.usage})


def concatenate_cells(parts: Sequence[NodesPast]) -> NodesPast:
    """Return the nodes of several cells on the same grid together; names get the cell's number as prefix."""
    names = tuple(f"{number}-{name}" for number, part in enumerate(parts) for name in part.nodes)
    columns = [f.name for f in fields(NodesPast) if f.name not in ("nodes", "resource", "grid", "demand")]
    arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in columns}
    return NodesPast(nodes=names, resource=parts[0].resource, grid=parts[0].grid, demand=None, **arrays)


def cell_cluster(scenario: SharingScenario, number: int, nodes: int) -> SyntheticCluster:
    """Return the synthetic cluster of one cell, with about the scenario's number of pods per node."""
    pods = max(1, scenario.pods * nodes // scenario.nodes)
    end = DEFAULT_END_SECONDS // DAY_SECONDS * DAY_SECONDS
    spec = SyntheticSpec(
        nodes=nodes,
        workloads=max(1, round((pods - PODS_OF_AGENTS * nodes) / PODS_PER_WORKLOAD)),
        days=HISTORY_DAYS + scenario.days,
        seed=scenario.seed * 1000 + number,
        end_seconds=end,
    )
    return generate(spec)


def history_of(cluster: SyntheticCluster) -> History:
    """Return the history that a store would have of a synthetic cluster."""
    usage = {signal: of for signal, of in cluster.usage.items() if not signal.spec.per_node}
    of_nodes = {signal: of for signal, of in cluster.usage.items() if signal.spec.per_node}
    return History(cluster.inventory, cluster.spec.grid, usage, of_nodes, None)


def _build_nodes_past(
    series: PodSeries,
    resource: Resource,
    rows: npt.NDArray[np.intp],
    starts: npt.NDArray[np.intp],
    rng: np.random.Generator,
) -> NodesPast:
    """Sums over each node's pods, capacity by their requests, and a system as the synthetic cluster's."""
    usage, requests = series.usage[resource], series.requests[resource]
    size = usage.shape[1] - int(starts.max(initial=0))
    size = size // SLOTS_PER_DAY * SLOTS_PER_DAY
    capacity = requests[rows].sum(axis=1) / REQUESTED_SHARE
    total = np.zeros((len(rows), size))
    for node, (pods, firsts) in enumerate(zip(rows.tolist(), starts.tolist(), strict=True)):
        for pod, start in zip(pods, firsts, strict=True):
            total[node] += np.nan_to_num(usage[pod, start : start + size])
    level = np.array([system_level(c, resource) if resource is Resource.CPU else 0.02 * c for c in capacity])
    system = level[:, None] * np.exp(0.08 * rng.standard_normal(total.shape))
    total = np.clip(total, 0, np.maximum(0.98 * capacity[:, None] - system, 0))
    grid = TimeGrid(DEFAULT_END_SECONDS // DAY_SECONDS * DAY_SECONDS - size * STEP_SECONDS, STEP_SECONDS, size)
    nothing = np.zeros((len(rows), 0))
    decisions = len(decision_slots(grid, nothing))
    names = tuple(f"node-{number:04d}" for number in range(len(rows)))
    return NodesPast(
        nodes=names, resource=resource, grid=grid, capacity=capacity, reserved=0.02 * capacity, prod=total, high=total,
        system=system, cold=np.zeros((len(rows), decisions)), older=nothing,
    )  # fmt: skip
