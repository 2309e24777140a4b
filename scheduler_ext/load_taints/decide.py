"""Which nodes bear the taint LOAD_TAINT, and with which effect. Pure.

    above the thresholds -> NoSchedule, while the share of nodes that has it is small -> else PreferNoSchedule
    the busiest          -> PreferNoSchedule

A taint is set at `refuse_from` or `avoid_from` and goes `leave` below it; within `hold_seconds` after a change it only
becomes stricter. What nobody reports has no taint. No estimate of ours takes more than `refused_share` of the nodes
away, and while the reporting is broken none.

How busy a node is, `node_loads` says in percent of its thresholds: what the extender's rules say to a pod of no size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from cotenant.base.kubernetes.node_taints import AVOIDED, REFUSED
from cotenant.base.kubernetes.pod_identity import PodIdentity
from cotenant.base.kubernetes.protocol import CONTROL_PLANE_KEYS, LOAD_TAINT, NODE_CONDITION_PREFIX
from cotenant.scheduler_ext.extender.columns import SnapshotColumn
from cotenant.scheduler_ext.extender.load import load_aware, prediction
from cotenant.scheduler_ext.extender.metric import ExtenderNode
from cotenant.scheduler_ext.extender.pod import NewPod
from cotenant.scheduler_ext.extender.settings import ExtenderSettings
from cotenant.scheduler_ext.extender.snapshot import NodeSnapshot

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Effects = npt.NDArray[np.int8]


class LoadEffect(IntEnum):
    """The strictness with which a node's taint keeps pods away, from not at all to always."""

    NONE = 0
    AVOIDED = 1
    """PreferNoSchedule."""
    REFUSED = 2
    """NoSchedule."""


@dataclass(frozen=True, slots=True)
class LoadTaintArgs:
    """Bounds: loads in percent of a node's threshold, shares of the nodes from 0 to 1."""

    refused_share: float
    avoided_share: float
    hold_seconds: float
    refuse_from: float = 97.0
    """NoSchedule from here on: pods arrive before the taint does."""
    avoid_from: float = 60.0
    """PreferNoSchedule from here on, the busiest first; avoided_share bounds how many it reaches."""
    leave: float = 8.0
    """A taint goes when the node is so far below what it was set for; a node in the place of another is so much busier.
    Hysteresis above the noise of one NodeMetric to the next."""


@dataclass(frozen=True, slots=True)
class LoadTaintChange:
    """Another effect for a node's taint; now, peak: its load in percent of the threshold, NaN unknown."""

    name: str
    before: LoadEffect
    after: LoadEffect
    now: float
    peak: float


@dataclass(frozen=True, slots=True)
class NodeLoads:
    """Nodes at one moment; arrays are (nodes,). schedulable: how many take pods, of which shares are counted.

    now, peak: load in percent of the threshold that is nearest, of CPU and memory: at present, and the highest of the
    forecast; NaN: nobody says. effects: of the taint that stands there, as LoadEffect. changed_seconds: Unix time when
    it last changed, -inf where that is long ago. broken: so few report that it is the reporting that failed.
    """

    names: tuple[str, ...]
    now: Floats
    peak: Floats
    effects: Effects
    changed_seconds: Floats
    schedulable: int
    broken: bool = False


@dataclass(frozen=True, slots=True)
class LoadTaintPlan:
    """The effect that each node should have, (nodes,); withheld: which should be refused, and are not for the cap."""

    effects: Effects
    withheld: Flags


def cap(schedulable: int, share: float) -> int:
    """Nodes that a share of the schedulable ones is at most; rounded down, but for what floats lose (29 % of 100)."""
    return math.floor(schedulable * share + 1e-9)


def decide(loads: NodeLoads, arguments: LoadTaintArgs, now_seconds: float) -> LoadTaintPlan:
    """The effects of a moment; a cluster that already has them gives the same ones again."""
    effects = np.zeros(len(loads.names), dtype=np.int8)
    if loads.broken:
        return LoadTaintPlan(effects, np.zeros(len(loads.names), dtype=np.bool_))
    reported, holding = ~np.isnan(loads.now), now_seconds - loads.changed_seconds < arguments.hold_seconds
    pressure: Floats = np.fmax(loads.now, loads.peak)

    was_refused = loads.effects == LoadEffect.REFUSED
    above: Flags = reported & _taint_mask(pressure, was_refused, holding, arguments.refuse_from, arguments.leave)
    # what is too busy now goes before what a forecast says, and who has the taint before who is about as busy
    over_now = np.where(loads.now >= arguments.refuse_from, np.inf, pressure)
    keys = (was_refused & holding, over_now, pressure + was_refused * arguments.leave)
    refused = _first(above, keys, cap(loads.schedulable, arguments.refused_share))
    withheld: Flags = above & ~refused

    was_avoided = loads.effects != LoadEffect.NONE
    busy = reported & _taint_mask(loads.now, was_avoided, holding, arguments.avoid_from, arguments.leave)
    rank = loads.now + (loads.effects == LoadEffect.AVOIDED) * arguments.leave
    keys = (was_avoided & holding, withheld, rank)
    avoided = _first((busy | withheld) & ~refused, keys, cap(loads.schedulable, arguments.avoided_share))
    effects[avoided], effects[refused] = LoadEffect.AVOIDED, LoadEffect.REFUSED
    return LoadTaintPlan(effects, withheld)


def changes_of(loads: NodeLoads, plan: LoadTaintPlan, arguments: LoadTaintArgs) -> Iterator[LoadTaintChange]:
    """Yield the changes that lead to the plan; those that give capacity back come first.

    A node is refused only while those that are refused now, and those that become so, are within the cap: what is
    given back counts once it has been given back, in whatever order writes arrive.
    """
    taintable = cap(loads.schedulable, arguments.refused_share) - int(
        np.count_nonzero(loads.effects == LoadEffect.REFUSED)
    )
    due = np.flatnonzero(plan.effects != loads.effects)
    for place in sorted(due.tolist(), key=lambda place: -int(loads.effects[place])):
        before, after = LoadEffect(loads.effects[place]), LoadEffect(plan.effects[place])
        if after is LoadEffect.REFUSED:
            if taintable <= 0:
                continue
            taintable -= 1
        yield LoadTaintChange(loads.names[place], before, after, float(loads.now[place]), float(loads.peak[place]))


def _taint_mask(load: Floats, bears: Flags, holding: Flags, enter: float, leave: float) -> Flags:
    """Return which nodes are to bear a taint, (n,): load of at least `enter`, or `enter - leave` where they bear it.

    A node that bears it and is in `holding` keeps it at any load. A NaN load counts as low.
    """
    mask: Flags = (load >= np.where(bears, enter - leave, enter)) | (bears & holding)
    return mask


def _first(candidates: Flags, keys: tuple[npt.NDArray[np.generic], ...], most: int) -> Flags:
    """Return a mask of at most `most` of the candidates, (nodes,): the highest by the keys, compared in order."""
    order = np.lexsort(tuple(-key.astype(np.float64) for key in reversed((candidates, *keys))))
    places = order[: min(most, int(np.count_nonzero(candidates)))]
    mask = np.zeros(len(candidates), dtype=np.bool_)
    mask[places] = True
    return mask


_EFFECTS = {AVOIDED: LoadEffect.AVOIDED, REFUSED: LoadEffect.REFUSED}
_ENDLESS = NewPod(PodIdentity("", ""))
"""A pod of no size that runs on: it meets every peak that is looked at."""


def effect_of(node: ExtenderNode) -> LoadEffect:
    """Return the effect of our taint on the node; NoExecute, which we do not set, counts as the strictest of ours."""
    effects = [_EFFECTS.get(effect, LoadEffect.REFUSED) for key, _, effect in node.taints if key == LOAD_TAINT]
    return max(effects, default=LoadEffect.NONE)


def takes_pods(node: ExtenderNode) -> bool:
    """Return whether pods in general may be placed: neither cordoned nor unready, and not a control-plane node."""
    return not node.unschedulable and not any(
        effect != AVOIDED and (key in CONTROL_PLANE_KEYS or key.startswith(NODE_CONDITION_PREFIX))
        for key, _, effect in node.taints
    )


def node_loads(
    snapshot: NodeSnapshot,
    nodes: Mapping[str, ExtenderNode],
    effects: Mapping[str, LoadEffect],
    changed_seconds: Mapping[str, float],
    now_seconds: float,
    settings: ExtenderSettings,
) -> NodeLoads:
    """All nodes of a snapshot; those that take no pods anyway (`takes_pods`) count as unreported.

    effects: of the taint that each node bears. changed_seconds: Unix time at which a node's taint last changed, by
    name; of others it is long ago.
    """
    columns, load = snapshot.columns, settings.load_aware
    expired = load_aware.expired_metric_mask(columns, now_seconds, load)
    measured = ~np.isnan(columns[SnapshotColumn.UPDATED]) & ~expired & (columns[SnapshotColumn.MEASURED] > 0)
    schedulable = np.array([takes_pods(nodes[name]) for name in snapshot.names], dtype=np.bool_)
    measured &= schedulable
    limits = columns[SnapshotColumn.LIMIT_CPU : SnapshotColumn.LIMIT_MEMORY + 1]
    used = np.stack([load_aware.without_reclaimed(columns, SnapshotColumn.USED_CPU, offset) for offset in (0, 1)])
    peak = np.full(len(snapshot.names), np.nan)
    if settings.prediction.on:
        window = prediction.window(snapshot, _ENDLESS, now_seconds, settings.prediction)
        since = columns[SnapshotColumn.SINCE_CPU : SnapshotColumn.SINCE_MEMORY + 1]
        plain = columns[SnapshotColumn.PLAIN_CPU : SnapshotColumn.PLAIN_MEMORY + 1]
        peak = _nearest(columns, prediction.peaks(snapshot, window, slice(None)) + since, plain)
    return NodeLoads(
        names=snapshot.names,
        now=np.where(measured, _nearest(columns, used, limits), np.nan),
        peak=peak,
        effects=np.array([effects[name] for name in snapshot.names], dtype=np.int8),
        changed_seconds=np.array([changed_seconds.get(name, -np.inf) for name in snapshot.names], dtype=np.float64),
        schedulable=int(np.count_nonzero(schedulable)),
        broken=not load.on or load_aware.breaker_open(columns, now_seconds, load),
    )


def _nearest(columns: Floats, used: Floats, limits: Floats) -> Floats:
    """The higher of CPU and memory in percent of their thresholds, (nodes,); used, limits: (2, nodes).

    A resource without a threshold, capacity or number has no say; NaN where neither has one.
    """
    capacity = columns[SnapshotColumn.CAPACITY_CPU : SnapshotColumn.CAPACITY_MEMORY + 1]
    some = (capacity > 0) & (limits > 0)
    shares = np.where(some, used * 10_000 / np.where(some, capacity * limits, 1.0), np.nan)
    highest: Floats = np.fmax(shares[0], shares[1])
    return highest
