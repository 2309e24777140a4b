"""For how long each node is expected above its threshold over the next day, from the forecasts of its workloads. Pure.

A node's own forecast is made from its past and goes stale with every move. Here its load is what its system uses now
and the paths of the pods that it has now, so that a pod takes its part of the load along. A pod's path is its share of
its workload's median forecast, drawn to what the pod uses now by LEVEL_WEIGHT; it begins with what the pod uses now,
and what no forecast knew of goes away by half in each of `log(0.5) / log(SURPRISE_KEPT)` = 2.4 half hours.

Around that path load is taken as logistic with a standard deviation of SPREAD: single minutes leave the mean of their
half hour, and forecasts err. A node is then above its threshold `high` in a half hour with probability
1 / (1 + exp((high - load) / scale)), scale = SPREAD * sqrt(3) / pi.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from cotenant.base.kubernetes.protocol import PREDICTED_USAGE_ANNOTATION
from cotenant.scheduler_ext.arrays import Flags, Floats, Rows
from cotenant.scheduler_ext.extender.metric import measured_together
from cotenant.scheduler_ext.rebalance.classification import DAY_STEPS, HALF_HOUR, LoadTable
from cotenant.scheduler_ext.rebalance.load import (
    RebalanceInputs,
    RebalancePod,
    WorkloadOutlook,
    unmeasured_use,
    usage_of,
)
from cotenant.scheduler_ext.rebalance.price import step_seconds


class PodUse(NamedTuple):
    """The present usage of a pod, (2,): millicores and bytes; row: of its node in the table."""

    row: int
    usage: Floats


SPREAD: Final = 0.03  # standard deviation of load around its path, as a share of capacity
LEVEL_WEIGHT: Final = 0.2
"""Exponent of (usage now / forecast of now) by which a pod's path is scaled: one report is mostly noise."""
SURPRISE_KEPT: Final = 0.75  # part of the difference between usage and path that is left half an hour later
LEVEL_RANGE: Final = (0.25, 4.0)
LEAST_SPARED_SECONDS: Final = 2700.0
"""A node that is expected above its threshold for less in a day is left alone, and so is a pod that spares it less."""
NEAR_STEPS: Final = 5
"""The present half hour and the four after it. An overload that lies further ahead waits: forecasts get better until
then, and a move that turns out to be needless is one too many."""
LEAST_NEAR_SECONDS: Final = 1800.0  # a node that is expected above its threshold for less in those half hours waits


@dataclass(slots=True)
class DayAhead:
    """The next day of nodes and pods; a round changes its own. Loads are (steps, nodes, 2) and (steps, pods, 2).

    capacity: (nodes, 2), millicores and bytes; columns: of each pod in `paths`; seconds: of each step, (steps,).
    """

    capacity: Floats
    loads: Floats
    paths: Floats
    columns: dict[str, int]
    seconds: Floats

    @classmethod
    def of(cls, inputs: RebalanceInputs, capacity: Floats) -> DayAhead:
        """Pods of workloads without a forecast stay at what they use now, and so do pods that are measured in part."""
        pods, rows, usages = list[RebalancePod](), list[int](), list[tuple[float, float]]()
        loads = np.zeros((DAY_STEPS + 1, len(inputs.loads), 2))
        staying = np.zeros((len(inputs.loads), 2))  # what systems use, and pods of which the report lacks a resource
        for row, load in enumerate(inputs.loads):
            for pod in load.pods:
                used = usage_of(pod, load.metric)
                # deleted ones have no next day
                if used is not None and not (pod.leaving and not pod.is_stuck(inputs.now_seconds)):
                    pods.append(pod)
                    rows.append(row)
                    usages.append(used)
            if (metric := load.metric) is not None:
                halves = {key: pair for key, pair in metric.pods.items() if any(map(math.isnan, pair[0]))}
                parts = (metric.system, measured_together(halves), unmeasured_use(metric))
                staying[row] = [sum(amounts) for amounts in zip(*parts, strict=True)]
        paths = _paths(inputs, pods, np.array(usages, dtype=np.float64).reshape(-1, 2))
        in_rows = np.array(rows, dtype=np.intp)
        for step, resource in np.ndindex(DAY_STEPS + 1, 2):
            loads[step, :, resource] = np.bincount(in_rows, paths[step, :, resource], len(inputs.loads))
        loads += staying
        columns = {pod.key: column for column, pod in enumerate(pods)}
        seconds = step_seconds(DAY_STEPS + 1, inputs.now_seconds)
        seconds[-1] -= seconds[0]  # the last half hour is the present one of tomorrow: one whole day, whatever the time
        return cls(capacity, loads, paths, columns, seconds)

    def path(self, pod: RebalancePod) -> Floats:
        """Return what a measured pod is expected to use, (steps, 2)."""
        path: Floats = self.paths[:, self.columns[pod.key]]
        return path

    def path_from(self, pod: RebalancePod, usage: Floats) -> Floats:
        """The same, beginning with what the pod uses now, (2,)."""
        path = self.path(pod).copy()
        path[0] = usage
        return path

    def overloaded(self, high: Floats) -> Flags:
        """Nodes that are expected above `high` for long in the next day, some of it near, (nodes,)."""
        near = self.above(high, slice(None), steps=NEAR_STEPS) > LEAST_NEAR_SECONDS
        return near & (self.above(high, slice(None)) > LEAST_SPARED_SECONDS)

    def above(self, high: Floats, rows: Rows | slice, more: Floats | float = 0.0, steps: int | None = None) -> Floats:
        """Expected seconds above `high` of nodes in the next day with `more` load, (rows,).

        high: (nodes, 2); more: broadcasts to (steps, rows, 2); steps: only the first of the day. A node above it in one
        resource is above it.
        """
        capacity = self.capacity[rows]
        distance = (high[rows] - self.loads[:steps, rows] - more) / np.where(capacity > 0, capacity, np.inf)
        chance = 1 / (1 + np.exp(np.clip(distance / (SPREAD * math.sqrt(3) / math.pi), -50.0, 50.0)))
        seconds: Floats = self.seconds[:steps] @ np.maximum(chance[:, :, 0], chance[:, :, 1])
        return seconds

    def move(self, pod: RebalancePod, source: int, target: int) -> None:
        """Move the pod's part of the forecast load from one node to another, both rows of `loads`."""
        path = self.path(pod)
        self.loads[:, source] = np.maximum(self.loads[:, source] - path, 0)
        self.loads[:, target] += path


def day_of(inputs: RebalanceInputs, table: LoadTable, *, with_forecast: bool) -> DayAhead | None:
    """The next day, which takes the place of the nodes' own forecasts in the table; None without such forecasts."""
    if not with_forecast or not inputs.foreseen_workloads:
        return None
    day = DayAhead.of(inputs, table.capacity)
    table.ahead = day.loads
    np.fmax.reduce(table.ahead, axis=0, out=table.peak)
    return day


def _paths(inputs: RebalanceInputs, pods: Sequence[RebalancePod], usage: Floats) -> Floats:
    """Return what each pod is expected to use, (steps, pods, 2)."""
    by_owner = {pod.owner: pod for pod in pods}
    workload_of = {owner: pod.workload for owner, pod in by_owner.items()}
    workloads = [workload_of[pod.owner] if pod.owner else pod.workload for pod in pods]
    places = {workload: index for index, workload in enumerate(dict.fromkeys(workloads))}
    of_pods = np.array([places[workload] for workload in workloads], dtype=np.intp)
    replicas = np.maximum(np.bincount(of_pods, minlength=len(places)), 1)
    each = [
        per_pod(inputs.workloads.get(workload), count, inputs.now_seconds)
        for workload, count in zip(places, replicas, strict=True)
    ]
    paths: Floats = np.stack(each, axis=1)[:, of_pods] if each else np.zeros((DAY_STEPS + 1, 0, 2))
    has_forecast = np.isfinite(paths).all(axis=0) & (paths[0] >= 1.0)
    level = np.clip(usage / np.where(has_forecast, paths[0], 1.0), *LEVEL_RANGE) ** LEVEL_WEIGHT
    paths *= level
    surprise = (usage - paths[0]) * SURPRISE_KEPT ** np.arange(len(paths))[:, None, None]
    paths = np.where(has_forecast, np.maximum(paths + surprise, 0.0), usage)
    for column, pod in enumerate(pods):
        if PREDICTED_USAGE_ANNOTATION in pod.facts.identity.annotations:
            paths[:, column] = np.maximum(paths[:, column], pod.facts.predicted)
    return paths


def per_pod(outlook: WorkloadOutlook | None, replicas: int, now_seconds: float) -> Floats:
    """Return the expected use of each pod of a workload, (DAY_STEPS + 1, 2), NaN where it has no forecast.

    Steps are half hours from the present one on. replicas: pods that it has now, which share the present half hour.
    Later ones are shared by the pods that an autoscaler will run then: where it adds pods for the peak, each of them
    uses no more than now. A half hour beyond the forecast's end is taken from the day before.
    """
    usage = np.full((DAY_STEPS + 1, 2), np.nan)
    if outlook is None or not outlook.covers(now_seconds):
        return usage
    first = int(now_seconds - outlook.start_seconds) // HALF_HOUR
    steps = (first + np.arange(DAY_STEPS + 1)) % DAY_STEPS
    sharing = np.full(DAY_STEPS + 1, float(replicas))
    if len(outlook.replicas) == DAY_STEPS:
        sharing[1:] = np.maximum(np.array(outlook.replicas), 1)[steps[1:]]
    for resource, median in enumerate(outlook.median):
        if len(median) == DAY_STEPS:
            usage[:, resource] = np.array(median)[steps] / sharing
    return usage


def pod_path(table: LoadTable, pod: RebalancePod, present: PodUse, *, with_forecast: bool) -> Floats:
    """Usage of a pod of which only the node has a forecast, (DAY_STEPS + 1, 2): the pod grows as its node does.

    The first row is what it uses now. Without a forecast it stays at that. A
    peak that an annotation predicts is not undercut at any later time.
    """
    row, usage = present
    growth = np.full((DAY_STEPS + 1, 2), np.nan)
    if with_forecast:
        growth = table.ahead[:, row] / np.where(table.usage[row] > 0, table.usage[row], np.nan)
    path: Floats = usage * np.where(np.isfinite(growth), growth, 1.0)
    if PREDICTED_USAGE_ANNOTATION in pod.facts.identity.annotations:
        path = np.maximum(path, np.array(pod.facts.predicted))
    path[0] = usage
    return path
