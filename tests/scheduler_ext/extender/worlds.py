"""Clusters for tests of the extender's rules, put together by the product's own table and frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from cotenant.base.kubernetes.models.node import SchedulableNode
from cotenant.base.kubernetes.models.own_kinds import UsageForecast
from cotenant.base.kubernetes.models.pod import PodWire
from cotenant.scheduler_ext.extender.decide import Instant
from cotenant.scheduler_ext.extender.metric import NodeMetricWire, metric_of, node_of, outlook_of
from cotenant.scheduler_ext.extender.pod import NewPod, facts_of
from cotenant.scheduler_ext.extender.settings import ExtenderSettings, LoadAwareSettings
from cotenant.scheduler_ext.extender.watch.feed import SnapshotFeed
from cotenant.scheduler_ext.extender.watch.frame import DECODER, ENCODER, CollectionState
from cotenant.scheduler_ext.extender.watch.table import NodeTable

NOW = 1_790_000_000.0
"""Unix time of every test; half past some hour: a multiple of 1,800 and 800 seconds."""
SOURCES = {
    name: CollectionState(0.0) for name in ("nodes", "pods", "nodemetrics", "forecasts", "reservations", "guard")
}
GIB = 2**30
ELSEWHERE = "elsewhere"
"""A node that no view knows, which every rule passes: asked beside others, some node is left whatever they get."""


def moment(seconds: float = NOW, monotonic: float = 100.0) -> Instant:
    return Instant(seconds, monotonic)


def pod_json(
    name: str = "p",
    requests: Mapping[str, str] | None = None,
    limits: Mapping[str, str] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """A Pod as the API has it; more: namespace, uid, labels, annotations, owner, node, scheduled, phase, qos."""
    conditions = []
    if "scheduled" in more:
        conditions.append({"type": "PodScheduled", "status": "True", "lastTransitionTime": stamp(more["scheduled"])})
    if "initialized" in more:
        conditions.append({"type": "Initialized", "status": "True", "lastTransitionTime": stamp(more["initialized"])})
    resources = {"requests": dict(requests or {}), "limits": dict(limits or {})}
    return {
        "metadata": {
            "name": name,
            "namespace": more.get("namespace", "default"),
            "uid": more.get("uid", f"uid-{name}"),
            "labels": dict(more.get("labels", {})),
            "annotations": dict(more.get("annotations", {})),
            "ownerReferences": more.get("owners", []),
        },
        "spec": {
            "containers": [{"name": "main", "image": "x", "resources": resources}],
            **({"nodeName": more["node"]} if "node" in more else {}),
            **({"priority": more["priority"]} if "priority" in more else {}),
        },
        "status": {"phase": more.get("phase", "Running"), "conditions": conditions, "qosClass": more.get("qos", "")},
    }


def stamp(seconds: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def facts(pod: Mapping[str, Any], settings: LoadAwareSettings | None = None) -> NewPod:
    return facts_of(msgspec.json.decode(msgspec.json.encode(pod), type=PodWire), settings or LoadAwareSettings())


def node_json(name: str, cpu: str = "10", memory: str = "100Gi", **more: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "annotations": more.get("annotations", {}), "labels": more.get("labels", {})},
        "spec": {"taints": more.get("taints", []), "unschedulable": more.get("unschedulable", False)},
        "status": {"allocatable": {"cpu": cpu, "memory": memory, "pods": "110", **more.get("extended", {})}},
    }


def metric_json(name: str, cpu: str = "1", memory: str = "10Gi", **more: Any) -> dict[str, Any]:
    """A NodeMetric; more: updated (Unix time or None), pods [(name, cpu, memory, class)], aggregated, system."""
    updated = more.get("updated", NOW)
    return {
        "metadata": {"name": name},
        "spec": {"metricCollectPolicy": {"reportIntervalSeconds": more.get("interval", 60)}},
        "status": {
            **({"updateTime": stamp(updated)} if updated is not None else {}),
            "nodeMetric": {
                "nodeUsage": {"resources": {"cpu": cpu, "memory": memory}},
                "systemUsage": {"resources": more.get("system", {})},
                "aggregatedNodeUsages": more.get("aggregated", []),
            },
            "podsMetric": [
                {"namespace": "default", "name": p, "podUsage": {"resources": {"cpu": c, "memory": m}}, "priority": k}
                for p, c, m, k in more.get("pods", [])
            ],
        },
    }


def forecast_json(name: str, cpu: Sequence[int], memory: Sequence[int] = (), **more: Any) -> dict[str, Any]:
    start = more.get("start", NOW - NOW % 1800)
    return {
        "metadata": {"name": name},
        "spec": {
            "start": stamp(start),
            "stepSeconds": 1800,
            "validUntil": stamp(more.get("valid_until", start + 1800 * 48)),
            "historyEnd": stamp(more.get("history_end", start)),
            "settingsDigest": "test",
            "cpu": {"q50Millicores": list(cpu), "q95Millicores": list(cpu), "peak": f"{max(cpu, default=0)}m"},
            "memory": {"q50Bytes": list(memory), "q95Bytes": list(memory), "peak": max(memory, default=0)},
        },
    }


class World:
    """A cluster that is changed object by object; `view` is what the serving process would have."""

    def __init__(self, settings: ExtenderSettings | None = None) -> None:
        self.settings = settings or ExtenderSettings()
        self.table = NodeTable(self.settings.load_aware)
        self.view = SnapshotFeed()

    def node(self, name: str, **more: Any) -> World:
        self.table.put_node(name, node_of(msgspec.convert(node_json(name, **more), SchedulableNode)))
        return self

    def metric(self, name: str, **more: Any) -> World:
        self.table.put_metric(name, metric_of(msgspec.convert(metric_json(name, **more), NodeMetricWire)))
        return self

    def forecast(self, name: str, cpu: Sequence[int], memory: Sequence[int] = (), **more: Any) -> World:
        wire = msgspec.convert(forecast_json(name, cpu, memory, **more), UsageForecast)
        self.table.put_outlook(name, outlook_of(wire))
        return self

    def pod(self, pod: Mapping[str, Any]) -> World:
        key = (pod["metadata"]["namespace"], pod["metadata"]["name"])
        self.table.put_pod(key, facts(pod, self.settings.load_aware), NOW)
        return self

    def remove_pod(self, name: str, namespace: str = "default") -> World:
        self.table.put_pod((namespace, name), None, NOW)
        return self

    def show(self, seconds: float = NOW, sources: Mapping[str, CollectionState] | None = None) -> SnapshotFeed:
        """Send what changed, by way of bytes."""
        frame = self.table.take(SOURCES if sources is None else sources, seconds, 100.0)
        self.view.take(DECODER.decode(ENCODER.encode(frame)))
        return self.view
