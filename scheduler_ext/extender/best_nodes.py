"""Which of the nodes that a pod may have are handed back: those that load does not tell apart from the best. Pure.

The scheduler's own scores choose among them. So one question a pod is enough: load speaks by what it leaves out, and
nobody has to be asked for points.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

import numpy as np
import numpy.typing as npt

from cotenant.core.settings.sections.extender import ExtenderSettings
from scheduler_ext.extender.columns import SnapshotColumn
from scheduler_ext.extender.decide import MOST, Moment, RuleContext
from scheduler_ext.extender.pod import PodFacts
from scheduler_ext.extender.snapshot import NodeSnapshot, Rows

Floats = npt.NDArray[np.float64]
GOLDEN: Final = 2_654_435_769
"""2 ** 32 divided by the golden ratio: its multiples modulo 2 ** 32 lie evenly."""
_MASK: Final = 2**32 - 1


def narrowed(
    snapshot: NodeSnapshot, pod: PodFacts, rows: Rows, now: Moment, settings: ExtenderSettings, context: RuleContext
) -> Rows:
    """Places of the rows to hand back when all pass, in their order.

    All of them when the pod weighs nodes by preferences of its own, and when load rules have no opinion. Replicas keep
    the best of every zone, so that the scheduler can still spread them. A node that reports nothing stays.
    """
    everything = np.arange(len(rows))
    silent = not len(snapshot.names) or pod.unread or context.posture.load_off
    if pod.choosy or silent or len(rows) < 2:
        return everything
    points = context.opinions.points(snapshot, pod, rows, now.unix)
    points[~reporting(snapshot, rows)] = np.nan
    zones = zones_of(snapshot, rows) if pod.replica else None
    highest = np.full(len(rows), np.fmax.reduce(points)) if zones is None else highest_of(points, zones)[zones]
    # who asks for points ranks by them: then only what is too many is left out
    places = everything if settings.weight else np.flatnonzero(~(points < highest - settings.near_points))
    if not 0 < settings.most_nodes < len(places):
        return places
    # nodes that are less than one of the scheduler's eleven steps apart take turns
    points, highest = points[places], highest[places]
    turn = settings.score_span / MOST * turns(rows[places], pod.identity.uid)
    ranked = np.where(np.isnan(points), highest, points) + turn
    ranked[np.isnan(ranked)] = 0.0  # of zones in which nobody reports
    return places[best(ranked, None if zones is None else zones[places], settings.most_nodes)]


def reporting(snapshot: NodeSnapshot, rows: Rows) -> npt.NDArray[np.bool_]:
    """Whether each row's use is known."""
    mask: npt.NDArray[np.bool_] = (rows >= 0) & (snapshot.column(SnapshotColumn.MEASURED)[rows] > 0)
    return mask


def zones_of(snapshot: NodeSnapshot, rows: Rows) -> Rows:
    """A number from 0 on for each row's zone; nodes that nobody here knows are of one zone."""
    codes = np.where(rows >= 0, snapshot.column(SnapshotColumn.ZONE)[rows], -1.0)
    zones: Rows = np.unique(codes, return_inverse=True)[1]
    return zones


def highest_of(points: Floats, zones: Rows) -> Floats:
    """Of each zone, NaN where no points are known."""
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


def turns(rows: Rows, uid: str) -> Floats:
    """0 to 1 for each row, evenly spread: another pod sees other rows first, the same pod the same ones."""
    return ((rows * GOLDEN + crc32(uid.encode())) & _MASK) / (_MASK + 1)
