"""How busy each node is, in percent of its thresholds: what the extender's rules say to a pod of no size. Pure."""

from __future__ import annotations

from collections.abc import Mapping

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
from cotenant.scheduler_ext.load_taints.decide import LoadEffect, NodeLoads

Floats = npt.NDArray[np.float64]
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
