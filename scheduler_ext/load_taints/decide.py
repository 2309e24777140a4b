"""Choose the nodes that get the taint LOAD_TAINT, and its effect. Pure.

    above the thresholds -> NoSchedule, while the share of nodes that has it is small -> else PreferNoSchedule
    the busiest          -> PreferNoSchedule

A taint is set at `refuse_from` or `avoid_from` and removed `leave` below it; within `hold_seconds` after a change it
only gets stricter. Nodes without a report get no taint. Estimates refuse at most `refused_share` of the nodes, and none
while the reporting is broken.

`node_loads` gives each node's load in percent of its thresholds, by the extender's rules for a pod without requests.
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
    """The strictness of a node's load taint, from none to refusing pods."""

    NONE = 0
    AVOIDED = 1
    """PreferNoSchedule."""
    REFUSED = 2
    """NoSchedule."""


@dataclass(frozen=True, slots=True)
class LoadTaintArgs:
    """Limits of the taints: loads in percent of a node's threshold, and shares of the nodes from 0 to 1."""

    refused_share: float
    avoided_share: float
    hold_seconds: float
    refuse_from: float = 97.0
    """Load from which a node gets NoSchedule, below 100 because pods arrive before the taint does."""
    avoid_from: float = 60.0
    """Load from which a node gets PreferNoSchedule, the busiest first, up to `avoided_share` of the nodes."""
    leave: float = 8.0
    """A taint is removed once the load is this much below the level at which it was set, and moves to another node only
    if that is this much busier. Hysteresis above the noise of one NodeMetric to the next."""


@dataclass(frozen=True, slots=True)
class LoadTaintChange:
    """A change of a node's taint; `now` and `peak` are its load in percent of the threshold, NaN if unknown."""

    name: str
    before: LoadEffect
    after: LoadEffect
    now: float
    peak: float


@dataclass(frozen=True, slots=True)
class NodeLoads:
    """The loads of all nodes at one time; arrays are (nodes,). Shares in `LoadTaintArgs` are of `schedulable` nodes.

    `now` and `peak` are the higher of CPU and memory load, each in percent of its threshold, at present and at the
    forecast's peak; NaN if unknown. `effects` are the present taints, `changed_seconds` the Unix time of their last
    change, -inf if long ago. `broken` is true if load-aware rules are off or too few nodes report to trust the reports.
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
    """The effect due on each node, (nodes,); `withheld` masks nodes that only the limit saves from refusal."""

    effects: Effects
    withheld: Flags


def cap(schedulable: int, share: float) -> int:
    """Return how many nodes a `share` (0 to 1) of the schedulable ones is, rounded down; float errors do not count."""
    return math.floor(schedulable * share + 1e-9)


def decide(loads: NodeLoads, arguments: LoadTaintArgs, now_seconds: float) -> LoadTaintPlan:
    """Return the effect that each node's taint should have now; after all writes, a second decision is the same."""
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
    """Yield the changes that lead to the plan; those that make nodes available come first.

    A node gets NoSchedule only if the nodes that have it now and those that get it stay within the limit: a removed
    taint frees its place only once the removal is written, in whatever order writes arrive.
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
    """Return which nodes get a taint, (n,): a load of at least `enter`, or `enter - leave` if they have it already.

    A node with the taint that is in `holding` keeps it at any load. A NaN load counts as low.
    """
    mask: Flags = (load >= np.where(bears, enter - leave, enter)) | (bears & holding)
    return mask


def _first(candidates: Flags, keys: tuple[npt.NDArray[np.generic], ...], most: int) -> Flags:
    """Return a mask, (nodes,), of at most `most` of the candidates: the highest by the keys, compared in order."""
    order = np.lexsort(tuple(-key.astype(np.float64) for key in reversed((candidates, *keys))))
    places = order[: min(most, int(np.count_nonzero(candidates)))]
    mask = np.zeros(len(candidates), dtype=np.bool_)
    mask[places] = True
    return mask


_EFFECTS = {AVOIDED: LoadEffect.AVOIDED, REFUSED: LoadEffect.REFUSED}
_ENDLESS = NewPod(PodIdentity("", ""))
"""A pod without requests that never ends, so that every forecast peak counts."""


def effect_of(node: ExtenderNode) -> LoadEffect:
    """Return the effect of the load taint on the node; NoExecute, which cotenant does not set, counts as REFUSED."""
    effects = [_EFFECTS.get(effect, LoadEffect.REFUSED) for key, _, effect in node.taints if key == LOAD_TAINT]
    return max(effects, default=LoadEffect.NONE)


def takes_pods(node: ExtenderNode) -> bool:
    """Return whether the node takes ordinary pods: neither cordoned nor unready, and not a control-plane node."""
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
    """Return the loads of all nodes of a snapshot; nodes that take no pods (`takes_pods`) count as unreported.

    `effects` are the taints that nodes have. `changed_seconds` is the Unix time of the last change of a node's taint,
    by name; missing names changed long ago.
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
    """Return the higher of CPU and memory in percent of their thresholds, (nodes,); `used`, `limits`: (2, nodes).

    A resource without threshold, capacity or value is ignored; NaN if both are.
    """
    capacity = columns[SnapshotColumn.CAPACITY_CPU : SnapshotColumn.CAPACITY_MEMORY + 1]
    some = (capacity > 0) & (limits > 0)
    shares = np.where(some, used * 10_000 / np.where(some, capacity * limits, 1.0), np.nan)
    highest: Floats = np.fmax(shares[0], shares[1])
    return highest
