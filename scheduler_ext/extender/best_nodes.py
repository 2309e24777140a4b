"""Which of the nodes that a pod may have are handed back: those that load does not tell apart from the best. Pure.

The scheduler's own scores choose among them. So one question per pod is enough: load speaks by what it leaves out, and
nobody has to be asked for points.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

import numpy as np
import numpy.typing as npt

from cotenant.scheduler_ext.extender.columns import SnapshotColumn
from cotenant.scheduler_ext.extender.decide import MOST, Instant, RuleContext
from cotenant.scheduler_ext.extender.pod import NewPod
from cotenant.scheduler_ext.extender.settings import ExtenderSettings
from cotenant.scheduler_ext.extender.snapshot import NodeSnapshot, Rows

Floats = npt.NDArray[np.float64]
GOLDEN: Final = np.uint32(2_654_435_769)
"""2 ** 32 divided by the golden ratio: its multiples modulo 2 ** 32 lie evenly."""


def best_row_indices(
    snapshot: NodeSnapshot, pod: NewPod, rows: Rows, now: Instant, settings: ExtenderSettings, context: RuleContext
) -> Rows:
    """Places of the rows to hand back when all pass, in their order.

    All of them when the pod weighs nodes by preferences of its own, and when load rules have no opinion. Replicas keep
    the best of every zone, so that the scheduler can still spread them. A node that reports nothing stays.
    """
    everything = np.arange(len(rows))
    without_opinion = not len(snapshot.names) or pod.unread or context.posture.load_off
    if pod.choosy or without_opinion or len(rows) < 2:
        return everything
    points = context.opinions.standings(snapshot, pod, rows, now.unix)
    zones = zones_of(snapshot, rows) if pod.replica else None
    highest = np.fmax.reduce(points) if zones is None else highest_of(points, zones)[zones]
    # who asks for points ranks by them: then only what is too many is left out
    places = everything if settings.weight else np.flatnonzero(~(points < highest - settings.near_points))
    if not 0 < settings.most_nodes < len(places):
        return places
    ranked = points[places]
    silent = np.isnan(ranked)
    if silent.any():
        # 0: of zones in which nobody reports
        ranked[silent] = np.nan_to_num(highest if zones is None else highest[places][silent])
    # nodes that are less than one of the scheduler's eleven steps apart take turns
    ranked += turns(rows[places], pod.identity.uid, settings.score_span / MOST)
    return places[best(ranked, None if zones is None else zones[places], settings.most_nodes)]


def zones_of(snapshot: NodeSnapshot, rows: Rows) -> Rows:
    """A number from 0 on for each row's zone; unknown nodes share one zone."""
    codes = np.where(rows >= 0, snapshot.column(SnapshotColumn.ZONE)[rows], -1.0)
    zones: Rows = np.unique(codes, return_inverse=True)[1]
    return zones


def highest_of(points: Floats, zones: Rows) -> Floats:
    """Return the highest points in each zone, (zones,); NaN where no points are known."""
    highest = np.full(zones.max() + 1, np.nan)
    np.fmax.at(highest, zones, points)
    return highest


def best(points: Floats, zones: Rows | None, most: int) -> Rows:
    """Places of the `most` best, in their order: of each zone equally many, unless there are more zones than that."""
    if zones is None or most <= zones.max():
        return np.sort(np.argsort(-points, kind="stable")[:most])
    order = np.lexsort((-points, zones))
    firsts = np.searchsorted(zones[order], np.arange(zones.max() + 1))
    rank = np.arange(len(order)) - firsts[zones[order]]
    return np.sort(order[rank < most // len(firsts)])


def turns(rows: Rows, uid: str, span: float = 1.0) -> Floats:
    """0 to span for each row, evenly spread: another pod sees other rows first, the same pod the same ones."""
    steps = rows.astype(np.uint32) * GOLDEN + np.uint32(crc32(uid.encode()))  # modulo 2 ** 32
    return steps.astype(np.float64) * (span / 2**32)
