"""One row per node: the numbers that the rules read, computed from its metric, pods and forecast. Pure.

`node_row` is Koordinator's assign cache for one node: the usage in its NodeMetric plus that of pods too young to be in
it. A pod is young, and counts by its estimate, if it is not measured, was placed after the last report or less than one
report interval before it, or is within the time that its annotation or the settings give the estimate. Placeholder pods
use nothing and are left out. Source: koordinator-sh/koordinator `pkg/scheduler/plugins/loadaware/pod_assign_cache.go`.

cotenant adds a rule: if a node's batch CPU comes from a forecast, batch pods may fill the node, because they give CPU
back within seconds. Unless the node has its own thresholds, other pods are then checked against the usage without batch
pods, and batch pods against AMPLE_PERCENT of its CPU if the settings' threshold is the built-in one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final
from zlib import crc32

import numpy as np

from cotenant.base.colocation.reclaim_policies import AMPLE_PERCENT
from cotenant.scheduler_ext.arrays import Floats
from cotenant.scheduler_ext.extender.metric import (
    BATCH_NAMES,
    ExtenderNode,
    LoadMetric,
    LoadThresholds,
    Outlook,
    exceeds_capacity,
    possible_statistics,
)
from cotenant.scheduler_ext.extender.pod import RESOURCES, NewPod, Pair
from cotenant.scheduler_ext.extender.settings import USAGE_PERCENTAGES, Aggregation, LoadAwareSettings, Percentages
from cotenant.scheduler_ext.extender.turnover import UNWATCHED, Watch, addition, plus
from cotenant.scheduler_ext.extender.watch.frame import ShareOf


class SnapshotColumn(IntEnum):
    """The columns of a snapshot; in pairs, CPU (millicores) is before memory (bytes). NaN is unknown."""

    CAPACITY_CPU = 0
    CAPACITY_MEMORY = 1
    UPDATED = 2  # Unix time of the NodeMetric; -inf: it was never filled; NaN: there is none
    MEASURED = 3  # 1 when the NodeMetric says what the node uses
    USED_CPU = 4
    USED_MEMORY = 5
    LIMIT_CPU = 6  # threshold in percent of capacity, 0 = not looked at
    LIMIT_MEMORY = 7
    AGGREGATED = 8  # 1 when USED is an aggregated usage
    PROD_USED_CPU = 9
    PROD_USED_MEMORY = 10
    PROD_LIMIT_CPU = 11
    PROD_LIMIT_MEMORY = 12
    RANKED_CPU = 13  # what ranking takes for used
    RANKED_MEMORY = 14
    SINCE_CPU = 15  # what pods are expected to use beyond what the forecast holds (`turnover`)
    SINCE_MEMORY = 16
    PLAIN_CPU = 17  # plain thresholds: what forecasts are held against
    PLAIN_MEMORY = 18
    BATCH_CPU = 19  # requested batch resources
    BATCH_MEMORY = 20
    BATCH_OFFERED_CPU = 21
    BATCH_OFFERED_MEMORY = 22
    SUPPRESSED = 23
    REQUESTED_CPU = 24
    REQUESTED_MEMORY = 25
    ALLOCATABLE_CPU = 26
    ALLOCATABLE_MEMORY = 27
    PLACEHOLDERS = 28  # pods that reserve capacity here
    ZONE = 29  # a number that nodes of one zone share; 0: it says none
    REPORTED_CPU = 30  # what USED rests on without any estimate of ours; NaN: not reported
    REPORTED_MEMORY = 31
    PROD_REPORTED_CPU = 32  # the same of PROD_USED_CPU and PROD_USED_MEMORY
    PROD_REPORTED_MEMORY = 33
    BATCH_LIMIT_CPU = 34  # threshold for pods of reclaimed capacity; 0: they have none of their own
    RECLAIMED_CPU = 35  # what they use of USED_CPU, where other pods are not held against it
    RECLAIMED_REPORTED_CPU = 36  # the same of REPORTED_CPU: without estimates


WIDTH = len(SnapshotColumn)
NOTHING: Final[Pair] = (0.0, 0.0)
UNKNOWN: Final[Pair] = (np.nan, np.nan)
ZONE_LABEL: Final = "topology.kubernetes.io/zone"


@dataclass(frozen=True, slots=True)
class NodeState:
    """The inputs from which a node's row of numbers is computed."""

    node: ExtenderNode
    metric: LoadMetric | None = None
    pods: tuple[NewPod, ...] = ()
    outlook: Outlook | None = None
    watch: Watch = UNWATCHED


@dataclass(slots=True)
class _PodSums:
    delta: Pair = NOTHING
    estimated: Pair = NOTHING
    prod: Pair = NOTHING
    prod_reported: Pair = NOTHING
    requested: Pair = NOTHING
    batch: Pair = NOTHING
    reclaimed: float = 0.0  # CPU that pods of reclaimed capacity use
    reclaimed_reported: float = 0.0
    placeholders: int = 0


def node_row(state: NodeState, settings: LoadAwareSettings) -> Floats:
    """Return the numbers of one node that the rules read, shape (WIDTH,), indexed by SnapshotColumn.

    CPU is in millicores, memory in bytes, thresholds in percent, times in Unix seconds. Without a NodeMetric, UPDATED
    is NaN, so that the node never counts as expired; for an empty one it is -inf, so that the node always does.
    """
    row = [0.0] * WIDTH  # a list until it is whole: each assignment to an array costs ten of these
    node, metric = state.node, state.metric
    if metric is not None and exceeds_capacity(metric, node):  # nobody's load: not too busy, and not idle either
        metric = LoadMetric(metric.updated_seconds, metric.report_seconds)
        state = replace(state, metric=metric)
    elif metric is not None and metric.aggregated:
        metric = replace(metric, aggregated=possible_statistics(metric, node))
        state = replace(state, metric=metric)
    sums = _sums(state)
    _put(row, SnapshotColumn.CAPACITY_CPU, node.capacity)
    row[SnapshotColumn.UPDATED] = np.nan if metric is None else -np.inf
    if metric is not None and metric.updated_seconds is not None:
        row[SnapshotColumn.UPDATED] = metric.updated_seconds
    row[SnapshotColumn.MEASURED] = metric is not None and metric.usage is not None
    _put_load(row, state, sums, settings)
    _put(row, SnapshotColumn.SINCE_CPU, addition(state.pods, state.outlook, metric, state.watch))
    _put(row, SnapshotColumn.BATCH_CPU, sums.batch)
    _put(row, SnapshotColumn.BATCH_OFFERED_CPU, [node.allocatable.get(n, 0) for n in BATCH_NAMES])
    row[SnapshotColumn.SUPPRESSED] = node.suppressed
    _put(row, SnapshotColumn.REQUESTED_CPU, sums.requested)
    _put(row, SnapshotColumn.ALLOCATABLE_CPU, [node.allocatable.get(r, 0) for r in RESOURCES])
    row[SnapshotColumn.PLACEHOLDERS] = sums.placeholders
    row[SnapshotColumn.ZONE] = crc32(node.labels.get(ZONE_LABEL, "").encode())
    return np.array(row)


def share_of(pod: NewPod, metric: LoadMetric | None) -> ShareOf:
    """Return the CPU (millicores) and memory (bytes) that one pod adds to its node's row.

    It is the measured usage; while the pod is young (the NodeMetric may not contain it yet), at least its estimate.
    PROD_USED counts a prod pod's estimate instead if the NodeMetric calls the pod not prod or lacks its usage.
    """
    measured, is_prod = metric.pods.get(pod.key, (None, False)) if metric else (None, False)
    known_use = _fill_gaps(measured, NOTHING)
    young = _young(pod, measured, metric)
    used = (max(pod.estimate[0], known_use[0]), max(pod.estimate[1], known_use[1])) if young else known_use
    prod_used = NOTHING
    if pod.prod and measured is not None and not is_prod:
        prod_used = pod.estimate
    elif pod.prod:
        prod_used = used if young else _fill_gaps(measured, pod.estimate)
    return ShareOf(*used, *prod_used, used[0] if pod.reclaimer else 0.0)


def _put(row: list[float], cpu: SnapshotColumn, pair: Iterable[float]) -> None:
    """Write a pair: CPU at its column, memory at the next one."""
    row[cpu], row[cpu + 1] = pair


def _put_load(row: list[float], state: NodeState, sums: _PodSums, settings: LoadAwareSettings) -> None:
    """Write USED, RANKED, PROD_USED and the thresholds."""
    own, metric = state.node.thresholds, state.metric or LoadMetric()
    plain = own.usage or _pair(settings.usage)
    aggregated, statistic = own.aggregated, own.aggregation
    if aggregated is None and settings.aggregated_usage.given and settings.aggregation:
        aggregated = _pair(settings.aggregated_usage)
        statistic = (settings.aggregation, float(settings.aggregated_seconds))
    row[SnapshotColumn.AGGREGATED] = aggregated is not None
    _put(row, SnapshotColumn.LIMIT_CPU, plain if aggregated is None else aggregated)
    _put(row, SnapshotColumn.PLAIN_CPU, plain)
    _put(row, SnapshotColumn.PROD_LIMIT_CPU, own.prod or _pair(settings.prod_usage))
    looked_at = statistic if aggregated is not None else ("", 0.0)
    _put(row, SnapshotColumn.USED_CPU, _usage_with_estimates(metric, looked_at, sums))
    _put(row, SnapshotColumn.REPORTED_CPU, _reported_usage(metric, looked_at) or UNKNOWN)
    ranked_by = (settings.score_aggregation, float(settings.score_aggregated_seconds))
    _put(row, SnapshotColumn.RANKED_CPU, _usage_with_estimates(metric, ranked_by, sums))
    system = metric.system if settings.prod_usage_includes_system else (0.0, 0.0)
    _put(row, SnapshotColumn.PROD_USED_CPU, plus(sums.prod, system))
    _put(row, SnapshotColumn.PROD_REPORTED_CPU, plus(sums.prod_reported, system))
    if state.node.lends_forecast and own == LoadThresholds():
        if aggregated is None and settings.usage.cpu == USAGE_PERCENTAGES.cpu:
            row[SnapshotColumn.BATCH_LIMIT_CPU] = AMPLE_PERCENT
        # a sum of estimates holds other numbers of these pods: then they count like all others
        if _reported_usage(metric, looked_at) is not None:
            row[SnapshotColumn.RECLAIMED_CPU] = sums.reclaimed
            row[SnapshotColumn.RECLAIMED_REPORTED_CPU] = sums.reclaimed_reported


def _usage_with_estimates(metric: LoadMetric, statistic: tuple[Aggregation | str, float], sums: _PodSums) -> Pair:
    """Return a node's usage with its young pods; if the statistic is not reported, all pods' estimates."""
    usage = _reported_usage(metric, statistic)
    return sums.estimated if usage is None else plus(usage, sums.delta)


def _reported_usage(metric: LoadMetric, statistic: tuple[Aggregation | str, float]) -> Pair | None:
    """Return the node's reported statistic; the mean if the statistic is not reported for the longest window."""
    if not statistic[0]:
        return metric.usage
    return metric.aggregated.get(statistic, metric.usage if statistic[1] == 0 else None)


def _sums(state: NodeState) -> _PodSums:
    """Return the sums over the node's running pods, as in Koordinator's assign cache.

    Placeholders count only in requests. `delta` is how much young pods' estimates exceed their measured usage; it is
    added to the node's report. A prod pod that is reported under another class counts with its whole estimate, because
    the report's prod sum lacks it; so does an unmeasured resource of a prod pod.
    """
    sums, metric = _PodSums(), state.metric
    for pod in state.pods:
        if pod.ended:
            continue
        sums.requested = plus(sums.requested, (pod.requests.get("cpu", 0), pod.requests.get("memory", 0)))
        if pod.placeholder_of is not None:
            sums.placeholders += 1
            continue
        if pod.reclaimer:
            cpu, memory = BATCH_NAMES
            sums.batch = plus(sums.batch, (pod.requests.get(cpu, 0), pod.requests.get(memory, 0)))
            sums.reclaimed += share_of(pod, metric).reclaimed_cpu
            reported, _ = metric.pods.get(pod.key, (NOTHING, False)) if metric else (NOTHING, False)
            sums.reclaimed_reported += _fill_gaps(reported, NOTHING)[0]
        measured, is_prod = metric.pods.get(pod.key, (None, False)) if metric else (None, False)
        young = _young(pod, measured, metric)
        if young:
            sums.delta = plus(sums.delta, _excess(pod.estimate, measured))
        sums.estimated = plus(sums.estimated, pod.estimate)
        if not pod.prod:
            continue
        if is_prod and measured is not None:
            sums.prod = plus(sums.prod, _fill_gaps(measured, NOTHING if young else pod.estimate))
            sums.prod_reported = plus(sums.prod_reported, _fill_gaps(measured, NOTHING))
        elif measured is not None:  # reported under another class: its estimate counts
            measured, young = None, True
        if young:
            sums.prod = plus(sums.prod, _excess(pod.estimate, measured))
    return sums


def _young(pod: NewPod, measured: Pair | None, metric: LoadMetric | None) -> bool:
    """Return whether the node's report cannot contain the pod's usage yet, so that the pod's estimate counts.

    This is the case for a pod that is not measured, that was placed after the report or less than one interval before
    it, or that is within the window of `young_until`.
    """
    if measured is None or metric is None or metric.updated_seconds is None:
        return True
    if pod.assigned_seconds is None or metric.updated_seconds - metric.report_seconds < pod.assigned_seconds:
        return True
    return pod.young_until is not None and pod.young_until > metric.updated_seconds


def _excess(estimate: Pair, measured: Pair | None) -> Pair:
    """Return how much an estimate exceeds the measured usage, per resource; never negative."""
    cpu, memory = _fill_gaps(measured, NOTHING)
    return max(estimate[0] - cpu, 0.0), max(estimate[1] - memory, 0.0)


def _fill_gaps(measured: Pair | None, instead: Pair) -> Pair:
    """Return the measured pair, with `instead` for unmeasured resources."""
    if measured is None:
        return instead
    cpu, memory = (other if np.isnan(used) else used for used, other in zip(measured, instead, strict=True))
    return cpu, memory


def _pair(percentages: Percentages) -> Pair:
    return float(percentages.cpu), float(percentages.memory)


def rows_of(states: Iterable[NodeState], settings: LoadAwareSettings) -> Floats:
    """Return the rows of several nodes, shape (nodes, WIDTH)."""
    rows = [node_row(state, settings) for state in states]
    return np.array(rows) if rows else np.zeros((0, WIDTH))
