"""Nodes of 10 cores and 100 GiB with pods, in few words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cotenant.base.identity import WorkloadRef
from cotenant.base.kubernetes.pod_identity import PodIdentity, Reference
from cotenant.base.kubernetes.qos import PriorityClass
from cotenant.scheduler_ext.extender.metric import ExtenderNode, LoadMetric, Outlook
from cotenant.scheduler_ext.extender.pod import NewPod
from cotenant.scheduler_ext.rebalance.arguments import RebalanceArgs, arguments_of
from cotenant.scheduler_ext.rebalance.load import NodeLoad, RebalanceInputs, RebalancePod, WorkloadOutlook

GIB = 2**30
NOW = 1_800_000_000.0
"""A moment at which a half hour begins."""
CPU, MEMORY = 10_000.0, 100.0 * GIB
THRESHOLDS = {"lowThresholds": {"cpu": 40, "memory": 40}, "highThresholds": {"cpu": 70, "memory": 80}}


def pod(name: str, cpu_percent: float, *, memory_percent: float = 0.0, **changes: Any) -> tuple[RebalancePod, Any]:
    """A pod of a ReplicaSet of its name before the last "-", placed a day ago, ready 10 s later; with its usage."""
    owner = changes.pop("owner", Reference("ReplicaSet", name.rpartition("-")[0] or name, "shop", "", "apps/v1", True))
    annotations = changes.pop("annotations", {})
    identity = PodIdentity("shop", name, name, {"app": name.rpartition("-")[0]}, annotations, (owner,) if owner else ())
    usage = (CPU * cpu_percent / 100, MEMORY * memory_percent / 100)
    chosen = changes.pop("priority_class", PriorityClass.BATCH)
    facts = NewPod(
        identity, priority_class=chosen, daemon=bool(owner) and owner.kind == "DaemonSet",
        requests=changes.pop("requests", {"cpu": int(usage[0]), "memory": int(usage[1])}),
        assigned_seconds=changes.pop("placed", NOW - 86400), placeholder_of=changes.pop("placeholder_of", None),
    )  # fmt: skip
    ready = changes.pop("ready_seconds", NOW - 86400 + 10)
    return RebalancePod(facts, created_seconds=NOW - 86400, ready_seconds=ready, **changes), usage


def node(
    name: str, *pods: tuple[RebalancePod, Any], system: float = 0.0, ahead: tuple[float, ...] = (), **changes: Any
) -> NodeLoad:
    """A node whose report names each pod. system: percent of CPU; ahead: q95 of CPU of half hours from now, percent."""
    report = {
        rebalance_pod.key: (usage, rebalance_pod.facts.prod) for rebalance_pod, usage in pods if usage is not None
    }
    metric = LoadMetric(changes.pop("updated", NOW - 30), usage=(0.0, 0.0), system=(CPU * system / 100, 0), pods=report)
    steps = (tuple(CPU * x / 100 for x in ahead), (0.0,) * len(ahead))
    outlook = Outlook(NOW, 1800, math.inf, NOW, steps) if ahead else None
    allocatable = {"cpu": int(CPU), "memory": int(MEMORY), "pods": 110}
    machine = ExtenderNode(name, allocatable, (CPU, MEMORY), **changes)
    placed = (replace(rebalance_pod, facts=replace(rebalance_pod.facts, node=name)) for rebalance_pod, _ in pods)
    return NodeLoad(machine, metric, outlook, tuple(placed))


def without_memory(load: NodeLoad, memory_percent: float) -> NodeLoad:
    """The node whose report has the CPU of its pods alone; memory_percent: what the whole node uses."""
    assert load.metric is not None
    pods = {key: ((cpu, math.nan), prod) for key, ((cpu, _), prod) in load.metric.pods.items()}
    return replace(load, metric=replace(load.metric, pods=pods, usage=(CPU, MEMORY * memory_percent / 100)))


def inputs(*loads: NodeLoad, **changes: Any) -> RebalanceInputs:
    """The nodes at NOW; every ReplicaSet has five replicas, so that two of its pods may be away."""
    replicas = {rebalance_pod.owner: 5 for load in loads for rebalance_pod in load.pods if rebalance_pod.owner}
    return RebalanceInputs(loads, now_seconds=NOW, **{"replicas": replicas} | changes)


def foreseen(*loads: NodeLoad, forecasts: Mapping[str, tuple[float, ...]]) -> RebalanceInputs:
    """The nodes, with forecasts of ReplicaSets by name: percent of a node's CPU in each of 48 half hours from now."""
    workloads = {
        WorkloadRef("shop", "ReplicaSet", name): WorkloadOutlook(NOW, (tuple(CPU * x / 100 for x in percents), ()))
        for name, percents in forecasts.items()
    }
    return replace(inputs(*loads), workloads=workloads)


def arguments(load: Mapping[str, Any] | None = None, **migration: Any) -> RebalanceArgs:
    """Thresholds 40/70 % of CPU and 40/80 % of memory, unless said otherwise."""
    entries = [{"name": "LowNodeLoad", "args": {**THRESHOLDS, **(load or {})}}]
    entries.append({"name": "MigrationController", "args": {"maxMigratingPerNode": 50, **migration}})
    return arguments_of({"kind": "DeschedulerConfiguration", "profiles": [{"pluginConfig": entries}]})
