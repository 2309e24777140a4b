"""All rules together: which of the requested nodes a pod may use, their scores, and preemption victims. Pure.

If the view of the cluster is outdated, load rules are off: every node passes and scores zero. Rules about reservations
refuse instead. If estimates in load rules would refuse every node of a call, these rules are ignored
(`load_rules.without_estimates`).

Of the passing nodes, filter returns those whose load is about as low as the best node's; the scheduler's own scores
choose among them. So one call per pod is enough: load acts by what is left out, and no prioritize call is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple
from zlib import crc32

import numpy as np

from cotenant.scheduler_ext.arrays import Floats, Rows
from cotenant.scheduler_ext.extender import cpus, devices, guard
from cotenant.scheduler_ext.extender.columns import SnapshotColumn
from cotenant.scheduler_ext.extender.judgement import NodeVerdicts
from cotenant.scheduler_ext.extender.judgement_cache import Opinions
from cotenant.scheduler_ext.extender.load import load_aware, load_rules
from cotenant.scheduler_ext.extender.pod import NewPod
from cotenant.scheduler_ext.extender.settings import ExtenderSettings
from cotenant.scheduler_ext.extender.snapshot import RESERVING, NodeSnapshot
from cotenant.scheduler_ext.extender.watch.frame import ShareOf

GOLDEN: Final = np.uint32(2_654_435_769)  # 2 ** 32 divided by the golden ratio: its multiples modulo 2 ** 32 lie evenly
MOST: Final = 10  # points of the best node in an answer; the scheduler takes any number, and multiplies it on


@dataclass(frozen=True, slots=True)
class Instant:
    """The present time: as Unix time, and as monotonic time, from which ages are computed."""

    unix: float
    monotonic: float


@dataclass(frozen=True, slots=True)
class Posture:
    """The state of the rules during a call; `load_off` says why the load rules are off, "" if they are on.

    `yielded` is the rule that was ignored because its estimates would have left no node, or "".
    """

    load_off: str = ""
    reservations_stale: bool = False
    yielded: str = ""


def posture(snapshot: NodeSnapshot, now: Instant, settings: ExtenderSettings) -> Posture:
    """Return the state of the rules; load rules are off if the snapshot is too old or most nodes do not report.

    Settings can switch load rules off too. The age of reservation data is checked separately: if they are too old,
    `reservations_stale` is true, and the rules about reservations refuse.
    """
    stale = snapshot.age_seconds(now.monotonic, RESERVING) > settings.stale_seconds
    if not settings.load_aware.on:
        return Posture("switched off by extender.load_aware.on", stale)
    if snapshot.age_seconds(now.monotonic) > settings.stale_seconds:
        return Posture("the view of the cluster is out of date", stale)
    if load_aware.breaker_open(snapshot.columns, now.unix, settings.load_aware):
        return Posture("most nodes do not report their usage", stale)
    return Posture("", stale)


class RuleContext(NamedTuple):
    """The data that a server keeps between calls: the state of the rules, and a cache of the load rules' results."""

    posture: Posture
    opinions: Opinions


def known_now(snapshot: NodeSnapshot, now: Instant, settings: ExtenderSettings) -> RuleContext:
    """Return the context of the rules for a single call, with an empty cache."""
    return RuleContext(posture(snapshot, now, settings), Opinions(settings))


def check_nodes(
    snapshot: NodeSnapshot,
    pod: NewPod,
    rows: Rows,
    now: Instant,
    settings: ExtenderSettings,
    context: RuleContext | None = None,
) -> tuple[NodeVerdicts, Posture]:
    """Return the results of all rules for the pod on each of the rows, and the state of the rules.

    `rows` are row numbers of the snapshot; -1 is an unknown node, which passes.
    """
    stance, opinions = context or known_now(snapshot, now, settings)
    if len(snapshot.names) == 0:
        return NodeVerdicts.passing(len(rows)), stance
    if stance.load_off or pod.unread:
        verdicts = NodeVerdicts.passing(len(rows))
    else:
        verdicts = opinions.verdicts_of(snapshot, pod, rows, now.unix)
        guard.let_owners_in(snapshot, pod, rows, verdicts.codes)
    guard.apply(verdicts.codes, rows, guard.codes(snapshot, pod, stance.reservations_stale))
    cpus.apply(verdicts.codes, snapshot, rows, pod, settings.cpus)
    devices.apply(verdicts.codes, snapshot, rows, pod, settings.devices)
    if len(rows) and verdicts.codes.all():  # a row that is not known, -1, passes: here all are known
        stance = replace(stance, yielded=load_rules.without_estimates(verdicts, snapshot.columns[:, rows], pod))
    return verdicts, stance


def points(
    snapshot: NodeSnapshot,
    pod: NewPod,
    rows: Rows,
    now: Instant,
    settings: ExtenderSettings,
    context: RuleContext | None = None,
) -> Rows:
    """Return a score from 0 to 10 for each row; all 0 if load rules are off.

    Koordinator's scores have 101 steps, an extender's 11: the best row gets 10, one that is `score_span` lower gets 0.
    """
    stance, opinions = context or known_now(snapshot, now, settings)
    if not len(snapshot.names) or pod.unread or stance.load_off:
        return np.zeros(len(rows), np.intp)
    return scale_scores(opinions.points(snapshot, pod, rows, now.unix), settings.score_span)


def scale_scores(points: Floats, span: int) -> Rows:
    """Return scores of 0 to 100, (n,), as 0 to 10: 10 for the best, one less for each span / 10 below it; 0 stays 0."""
    if not len(points):
        return np.zeros(0, np.intp)
    steps = np.rint(MOST - (points.max() - points) * (MOST / span))
    return np.where(points > 0, np.clip(steps, 0, MOST), 0).astype(np.intp)


def without_victims(
    snapshot: NodeSnapshot, node: str, victims: Sequence[str], shares: Mapping[str, ShareOf]
) -> Floats | None:
    """Return the node's columns, (WIDTH, 1), as if these pods (uids) were gone; None for an unknown node."""
    row = snapshot.rows.get(node)
    if row is None:
        return None
    columns = snapshot.columns[:, row : row + 1].copy()
    for uid in victims:
        share = shares.get(uid)
        if share is None:
            continue
        for first in (SnapshotColumn.USED_CPU, SnapshotColumn.RANKED_CPU, SnapshotColumn.REPORTED_CPU):
            columns[first : first + 2, 0] -= (share.used_cpu, share.used_memory)
        for first in (SnapshotColumn.PROD_USED_CPU, SnapshotColumn.PROD_REPORTED_CPU):
            columns[first : first + 2, 0] -= (share.prod_cpu, share.prod_memory)
        columns[[SnapshotColumn.RECLAIMED_CPU, SnapshotColumn.RECLAIMED_REPORTED_CPU], 0] -= share.reclaimed_cpu
    return np.asarray(np.where(columns < 0, np.where(np.isinf(columns), columns, 0.0), columns))


def protected_nodes(
    snapshot: NodeSnapshot,
    pod: NewPod,
    victims: Mapping[str, Sequence[str]],
    shares: Mapping[str, ShareOf],
    moment: tuple[Instant, ExtenderSettings],
) -> dict[str, str]:
    """Return the nodes on which the pod must not preempt, with the reason; `victims` are pod uids by node.

    A node is protected if a victim is the placeholder of a Reservation that the pod may not use, or if the rules would
    refuse the node even without the victims' `shares`. Refusals by estimates count only if another node remains.
    """
    now, settings = moment
    stance = posture(snapshot, now, settings)
    guard_codes = guard.codes(snapshot, pod, stance.reservations_stale)
    reasons: dict[str, str] = {}
    estimated: list[str] = []
    for node, uids in victims.items():
        holders = [snapshot.placeholders[uid] for uid in uids if uid in snapshot.placeholders]
        foreign = [h.reservation for h in holders if not guard.owns(snapshot, pod, h.reservation)]
        if foreign:
            reasons[node] = f"reservation {foreign[0]} is not for this pod"
        elif snapshot.rows.get(node, -1) in guard_codes:
            reasons[node] = "the node's capacity is being handed over to another pod"
        elif not holders and not stance.load_off and not pod.unread:
            columns = without_victims(snapshot, node, uids, shares)
            if columns is None:
                continue
            usage_verdicts = load_aware.check_usage(columns, pod, now.unix, settings.load_aware)
            if usage_verdicts.codes[0]:
                reasons[node] = usage_verdicts.refused().words[0]
                estimated += [node] if load_rules.without_estimates(usage_verdicts, columns, pod) else []
    if len(reasons) == len(victims):
        for node in estimated:
            del reasons[node]
    return reasons


def best_row_indices(
    snapshot: NodeSnapshot, pod: NewPod, rows: Rows, now: Instant, settings: ExtenderSettings, context: RuleContext
) -> Rows:
    """Return the indices, ascending, of the rows that filter returns, out of `rows` that have all passed the rules.

    All are returned if the pod has its own preferences among nodes or load rules are off. Otherwise rows over
    `near_points` below the best score are left out (unless `weight` is set), then all but the `most_nodes` best.
    Replicas' rows are compared within each zone, so that they can be spread. Nodes without a report count as best.
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
    """Return the index of each row's zone, from 0; unknown nodes share one zone."""
    codes = np.where(rows >= 0, snapshot.column(SnapshotColumn.ZONE)[rows], -1.0)
    zones: Rows = np.unique(codes, return_inverse=True)[1]
    return zones


def highest_of(points: Floats, zones: Rows) -> Floats:
    """Return the highest score in each zone, (zones,); NaN if no score is known."""
    highest = np.full(zones.max() + 1, np.nan)
    np.fmax.at(highest, zones, points)
    return highest


def best(points: Floats, zones: Rows | None, most: int) -> Rows:
    """Return the indices, ascending, of the `most` highest points; with `zones`, an equal number from each zone."""
    if zones is None or most <= zones.max():
        return np.sort(np.argsort(-points, kind="stable")[:most])
    order = np.lexsort((-points, zones))
    firsts = np.searchsorted(zones[order], np.arange(zones.max() + 1))
    rank = np.arange(len(order)) - firsts[zones[order]]
    return np.sort(order[rank < most // len(firsts)])


def turns(rows: Rows, uid: str, span: float = 1.0) -> Floats:
    """Return a value from 0 to `span` for each row, spread evenly by pod uid, so that pods prefer different rows."""
    steps = rows.astype(np.uint32) * GOLDEN + np.uint32(crc32(uid.encode()))  # modulo 2 ** 32
    return steps.astype(np.float64) * (span / 2**32)
