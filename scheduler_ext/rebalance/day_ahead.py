"""Expected time above its threshold of each node in the next day, by the forecasts of its workloads. Pure.

A node's own forecast is made from its past, so every move makes it wrong. Here a node's load is its system's present
usage plus the paths of its present pods, so that a moved pod takes its part of the load along. A pod's path is its
share of its workload's median forecast, scaled towards the pod's present usage by LEVEL_WEIGHT. It begins with the
present usage; the part that no forecast expected decays by half in each `log(0.5) / log(SURPRISE_KEPT)` = 2.4 half
hours.

Around that path the load is taken as logistic with a standard deviation of SPREAD, because single minutes differ from
the mean of their half hour, and forecasts err. In a half hour a node is above its threshold `high` with probability 1 /
(1 + exp((high - load) / scale)), scale = SPREAD * sqrt(3) / pi.
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
    """The present usage of a pod, an array (2,) of millicores and bytes, and the table row of its node."""

    row: int
    usage: Floats


SPREAD: Final = 0.03  # standard deviation of load around its path, as a share of capacity
LEVEL_WEIGHT: Final = 0.2
"""Exponent of (usage now / its forecast), which scales a pod's path; small, because one report is mostly noise."""
SURPRISE_KEPT: Final = 0.75  # part of the difference between usage and path that is left half an hour later
LEVEL_RANGE: Final = (0.25, 4.0)
LEAST_SPARED_SECONDS: Final = 2700.0
"""Shortest overload in a day for which a node is relieved, and least that a move must shorten it."""
NEAR_STEPS: Final = 5
"""The present half hour and the next four. A later overload waits, because forecasts improve until then and a needless
move costs a restart."""
LEAST_NEAR_SECONDS: Final = 1800.0  # a node that is expected above its threshold for less in those half hours waits


@dataclass(slots=True)
class DayAhead:
    """The next day's `loads` (steps, nodes, 2), and `paths` (steps, pods, 2) of pods' usage. A round changes its copy.

    All amounts are (millicores, bytes). `columns` are pods' columns in `paths`, `seconds` (steps,) the steps' lengths.
    """

    capacity: Floats
    loads: Floats
    paths: Floats
    columns: dict[str, int]
    seconds: Floats

    @classmethod
    def of(cls, inputs: RebalanceInputs, capacity: Floats) -> DayAhead:
        """Return the expected loads; pods without a forecast, or only partly measured, keep their present usage."""
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
        """Return the expected usage in the next day of a pod with measured usage, (steps, 2)."""
        path: Floats = self.paths[:, self.columns[pod.key]]
        return path

    def path_from(self, pod: RebalancePod, usage: Floats) -> Floats:
        """Return the expected usage of a pod, (steps, 2), with its present usage, (2,), in the first step."""
        path = self.path(pod).copy()
        path[0] = usage
        return path

    def overloaded(self, high: Floats) -> Flags:
        """Return a mask of nodes expected above `high` for LEAST_SPARED_SECONDS, LEAST_NEAR_SECONDS in NEAR_STEPS."""
        near = self.above(high, slice(None), steps=NEAR_STEPS) > LEAST_NEAR_SECONDS
        return near & (self.above(high, slice(None)) > LEAST_SPARED_SECONDS)

    def above(self, high: Floats, rows: Rows | slice, more: Floats | float = 0.0, steps: int | None = None) -> Floats:
        """Return the expected seconds of the next day in which each node is above `high` with `more` load, (rows,).

        `high` is (nodes, 2); `more` broadcasts to (steps, rows, 2); `steps` limits the day to its first steps. A step
        counts with the chance that the load is above, the larger one of CPU and memory.
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
    """Return the next day's loads and put them into the table in place of nodes' forecasts; None without a forecast."""
    if not with_forecast or not inputs.foreseen_workloads:
        return None
    day = DayAhead.of(inputs, table.capacity)
    table.ahead = day.loads
    np.fmax.reduce(table.ahead, axis=0, out=table.peak)
    return day


def _paths(inputs: RebalanceInputs, pods: Sequence[RebalancePod], usage: Floats) -> Floats:
    """Return the expected usage of each pod, (steps, pods, 2)."""
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
    """Return the expected usage per pod of a workload, (DAY_STEPS + 1, 2), NaN without a forecast.

    Steps are half hours from the present one on. The present half hour is divided by the `replicas` of now, later ones
    by those that the autoscaler will run: if it adds pods for the peak, each uses no more than now. A half hour beyond
    the end of the forecast is taken from the day before.
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
    """Return a pod's expected usage, (DAY_STEPS + 1, 2), in proportion to the forecast of its node.

    The first row is the present usage, which stays if there is no forecast. A peak that an annotation predicts is a
    lower limit of all later rows.
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
