"""Koordinator's LoadAware over all nodes at once: which are too busy for a pod, and how idle the others are. Pure.

Source: koordinator-sh/koordinator `pkg/scheduler/plugins/loadaware` (Filter, Score). `columns.node_row` estimates each
node's usage; here it is compared with the pod. All arrays are (n,), for the requested rows.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cotenant.base.colocation.nodemetric import AHEAD_SECONDS
from cotenant.scheduler_ext.arrays import Flags, Floats
from cotenant.scheduler_ext.extender.columns import SnapshotColumn
from cotenant.scheduler_ext.extender.judgement import LARGEST_PERCENT, Code, NodeVerdicts
from cotenant.scheduler_ext.extender.pod import NewPod
from cotenant.scheduler_ext.extender.settings import LoadAwareSettings

BREAKER_FRACTION: Final = 0.5
"""If more than this share of the reporting nodes is expired, the load rules are off until reports return. When half of
the nodes stop reporting it is the reporting that broke, not the nodes."""

_RECLAIMED: Final = {
    SnapshotColumn.USED_CPU: SnapshotColumn.RECLAIMED_CPU,
    SnapshotColumn.REPORTED_CPU: SnapshotColumn.RECLAIMED_REPORTED_CPU,
}
HIGHEST: Final = 100  # points of an idle node


def expired_metric_mask(columns: Floats, now_seconds: float, settings: LoadAwareSettings) -> Flags:
    """Return a mask of the nodes with a NodeMetric that is too old, in the future or empty; not those without one."""
    age = now_seconds - columns[SnapshotColumn.UPDATED]
    # a comparison with NaN is false
    mask: Flags = (age >= settings.metric_expiration_seconds) | (age < -AHEAD_SECONDS)
    return mask


def breaker_open(columns: Floats, now_seconds: float, settings: LoadAwareSettings) -> bool:
    """Return whether so many nodes (BREAKER_FRACTION) are expired that the reporting itself must be broken."""
    reporting = np.count_nonzero(~np.isnan(columns[SnapshotColumn.UPDATED]))
    old = np.count_nonzero(expired_metric_mask(columns, now_seconds, settings))
    return bool(reporting and old > BREAKER_FRACTION * reporting)


def check_usage(columns: Floats, pod: NewPod, now_seconds: float, settings: LoadAwareSettings) -> NodeVerdicts:
    """Return whether each node is too busy for the pod; `columns` is (WIDTH, n).

    Nodes with an expired NodeMetric are refused too, unless `schedule_when_expired`. Pods of DaemonSets pass
    everywhere, and so does every pod if load-aware scheduling is off.
    """
    verdicts = NodeVerdicts.passing(columns.shape[1])
    if pod.daemon or not settings.on:
        return verdicts
    old = expired_metric_mask(columns, now_seconds, settings)
    measured = ~np.isnan(columns[SnapshotColumn.UPDATED]) & ~old & (columns[SnapshotColumn.MEASURED] > 0)
    prod = _by_prod(columns, pod)
    aggregated = (columns[SnapshotColumn.AGGREGATED] > 0) & ~prod
    for offset in (1, 0):  # CPU last: where both are too high, it is the one that is named
        limit = _limit(columns, pod, prod, offset)
        total = _relevant_usage(columns, pod, SnapshotColumn.USED_CPU, offset)
        used = np.where(prod, columns[SnapshotColumn.PROD_USED_CPU + offset], total)
        capacity = columns[SnapshotColumn.CAPACITY_CPU + offset]
        percent = percent_of(used + pod.estimate[offset], capacity)
        high = measured & (limit > 0) & (capacity > 0) & (percent > limit)
        codes = np.where(aggregated, Code.AGGREGATED_CPU + offset, Code.CPU + offset)
        verdicts.codes[high] = codes[high]
        verdicts.percent[high] = np.minimum(limit[high], LARGEST_PERCENT).astype(np.int64)
    if not settings.schedule_when_expired:
        verdicts.codes[old] = Code.EXPIRED
        verdicts.percent[old] = 0
    return verdicts


def over_by_report(columns: Floats, pod: NewPod) -> Flags:
    """Return a mask, (n,), of nodes whose reported usage alone, without estimates, exceeds a threshold of the pod."""
    prod = _by_prod(columns, pod)
    over = np.zeros(columns.shape[1], dtype=np.bool_)
    for offset in (0, 1):
        reported = np.where(
            prod,
            columns[SnapshotColumn.PROD_REPORTED_CPU + offset],
            _relevant_usage(columns, pod, SnapshotColumn.REPORTED_CPU, offset),
        )
        limit, capacity = _limit(columns, pod, prod, offset), columns[SnapshotColumn.CAPACITY_CPU + offset]
        over |= (limit > 0) & (capacity > 0) & (percent_of(reported, capacity) > limit)
    return over


def _by_prod(columns: Floats, pod: NewPod) -> Flags:
    """Return the nodes on which prod's thresholds apply to the pod, (n,)."""
    mask: Flags = pod.prod & (
        (columns[SnapshotColumn.PROD_LIMIT_CPU] > 0) | (columns[SnapshotColumn.PROD_LIMIT_MEMORY] > 0)
    )
    return mask


def _limit(columns: Floats, pod: NewPod, prod: Flags, offset: int) -> Floats:
    """Return each node's threshold in percent; `offset` is 0 for CPU, 1 for memory."""
    limits: Floats = np.where(
        prod,
        columns[SnapshotColumn.PROD_LIMIT_CPU + offset],
        for_pod(columns[SnapshotColumn.LIMIT_CPU + offset], columns, pod, offset),
    )
    return limits


def for_pod(limits: Floats, columns: Floats, pod: NewPod, offset: int) -> Floats:
    """Return `limits`, (n,); for CPU (`offset` 0) of a pod on reclaimed capacity, the node's own limit if set."""
    if offset or not pod.reclaimer:
        return limits
    own = columns[SnapshotColumn.BATCH_LIMIT_CPU]
    return np.where(own > 0, own, limits)


def _relevant_usage(columns: Floats, pod: NewPod, of: SnapshotColumn, offset: int) -> Floats:
    """Return the usage that counts for the pod, (n,): without reclaimed usage unless the pod itself reclaims."""
    return np.asarray(columns[of + offset]) if pod.reclaimer else without_reclaimed(columns, of, offset)


def without_reclaimed(columns: Floats, of: SnapshotColumn, offset: int) -> Floats:
    """Return usage by node, (n,): memory (offset 1), or CPU (offset 0) without pods on reclaimed capacity."""
    used: Floats = columns[of + offset]
    return used if offset else np.maximum(used - columns[_RECLAIMED[of]], 0.0)


def points(columns: Floats, pod: NewPod, now_seconds: float, settings: LoadAwareSettings) -> Floats:
    """Return whole scores of 0 to 100, (n,), highest for the least used node; 0 without a current report."""
    reporting = ~np.isnan(columns[SnapshotColumn.UPDATED]) & ~expired_metric_mask(columns, now_seconds, settings)
    reporting &= columns[SnapshotColumn.MEASURED] > 0
    first = (
        SnapshotColumn.PROD_USED_CPU if pod.prod and settings.score_according_prod_usage else SnapshotColumn.RANKED_CPU
    )
    total, dominant = np.zeros(columns.shape[1]), np.full(columns.shape[1], float(HIGHEST))
    weights = (settings.weights.cpu, settings.weights.memory)
    for offset, weight in enumerate(weights):
        score = least_used(
            columns[first + offset] + pod.estimate[offset], columns[SnapshotColumn.CAPACITY_CPU + offset]
        )
        total += score * weight
        np.minimum(dominant, score, out=dominant)
    total += dominant * settings.dominant_weight
    weight_sum = sum(weights) + settings.dominant_weight
    if weight_sum == 0:
        return np.zeros(columns.shape[1])
    return np.where(reporting, np.floor_divide(total, weight_sum), 0.0)


def least_used(used: Floats, capacity: Floats) -> Floats:
    """Return (capacity - used) x 100 // capacity; 0 if usage exceeds capacity or there is no capacity."""
    some = (capacity > 0) & (used <= capacity)
    safe = np.where(some, capacity, 1.0)
    return np.where(some, np.floor_divide((safe - used) * HIGHEST, safe), 0.0)


def percent_of(used: Floats, capacity: Floats) -> Floats:
    """Return used as percent of capacity, rounded as Go's math.Round does; 0 without capacity."""
    some = capacity > 0
    return np.where(some, np.floor(used / np.where(some, capacity, 1.0) * 100 + 0.5), 0.0)
