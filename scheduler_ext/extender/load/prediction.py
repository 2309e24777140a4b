"""Refuse a node if a forecast peak within the pod's run time would not fit under the node's thresholds. Pure.

Within the pod's expected run time, at most six hours: the highest p95 of the node's forecast, plus the expected usage
of its pods beyond the forecast (`turnover`), plus the pod's own prediction, against the node's plain thresholds (those
for pods on reclaimed capacity, if the node has them). The forecast covers the whole node with its batch pods, so their
usage is not added again. For a node without a forecast only the present load counts; the load-aware rule applies in any
case.
"""

from __future__ import annotations

import numpy as np

from cotenant.scheduler_ext.arrays import Floats, Rows
from cotenant.scheduler_ext.extender.columns import SnapshotColumn
from cotenant.scheduler_ext.extender.judgement import LARGEST_PERCENT, Code, NodeVerdicts
from cotenant.scheduler_ext.extender.load.load_aware import for_pod, percent_of
from cotenant.scheduler_ext.extender.pod import NewPod
from cotenant.scheduler_ext.extender.settings import PredictionSettings
from cotenant.scheduler_ext.extender.snapshot import NodeSnapshot, slot_of
from cotenant.scheduler_ext.extender.watch.frame import SLOTS


def window(snapshot: NodeSnapshot, pod: NewPod, now_seconds: float, settings: PredictionSettings) -> slice:
    """Return the slice of the half hours of the snapshot's forecast that are within the pod's run time."""
    life = min(pod.run_seconds, settings.horizon_hours * 3600)
    first = max(slot_of(now_seconds) - snapshot.first_slot, 0)
    last = slot_of(now_seconds + life) - snapshot.first_slot
    return slice(min(first, SLOTS), min(max(last + 1, first), SLOTS))


def peaks(snapshot: NodeSnapshot, part: slice, rows: Rows | slice) -> Floats:
    """Return each node's highest forecast p95 per resource (CPU millicores, memory bytes), (2, n); NaN if unknown.

    `part` is the slice of half hours that `window` returns. Half hours without a forecast are ignored.
    """
    ahead = snapshot.ahead[:, part][:, :, rows]
    if ahead.shape[1] == 0:
        return np.full((2, ahead.shape[2]), np.nan)
    highest: Floats = np.fmax.reduce(ahead, axis=1)
    return highest


def check_predicted_peak(
    snapshot: NodeSnapshot, rows: Rows | slice, pod: NewPod, now_seconds: float, settings: PredictionSettings
) -> NodeVerdicts:
    """Refuse nodes whose expected peak during the pod's run time would exceed their threshold of CPU or memory.

    The peak is the highest forecast p95, plus the expected usage of pods that the forecast lacks, plus the pod's own
    prediction. Nodes without a forecast and DaemonSets' pods pass. If both resources exceed, CPU is the reason.
    """
    verdicts = NodeVerdicts.passing(len(snapshot.column(SnapshotColumn.CAPACITY_CPU)[rows]))
    if pod.daemon or not settings.on:
        return verdicts
    part = window(snapshot, pod, now_seconds, settings)
    highest = peaks(snapshot, part, rows)
    for offset in (1, 0):
        firsts = (SnapshotColumn.CAPACITY_CPU, SnapshotColumn.PLAIN_CPU, SnapshotColumn.SINCE_CPU)
        capacity, limit, since = (snapshot.columns[first + offset][rows] for first in firsts)
        limit = for_pod(limit, snapshot.columns[:, rows], pod, offset)
        total = highest[offset] + since + pod.predicted[offset]
        percent = percent_of(total, capacity)
        high = (capacity > 0) & (limit > 0) & (percent > limit)
        verdicts.codes[high] = Code.PEAK_CPU + offset
        verdicts.percent[high] = np.minimum(percent[high], LARGEST_PERCENT).astype(np.int64)
    refused = np.flatnonzero(verdicts.codes)
    if len(refused):  # the half hour of the peak, of refused nodes only
        numbers = np.arange(snapshot.columns.shape[1])[rows][refused]
        which = (verdicts.codes[refused] - Code.PEAK_CPU).astype(np.intp)
        ahead = snapshot.ahead[which[:, None], np.arange(part.start, part.stop)[None, :], numbers[:, None]]
        verdicts.slot[refused] = snapshot.first_slot + part.start + np.nanargmax(ahead, axis=1)
    return verdicts
