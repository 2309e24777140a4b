"""The node's usage over the last half hour, and the NodeMetric that reports it. Pure: readings in, an Apply out.

Each tick's observation is one sample of the node and adds to ten-second sums of each pod. Plain usage is the mean over
the policy's window, percentiles are by nearest rank, and the system's usage is the node's minus that of its pods and
host applications, at least 0. A window is reported once its samples span more than half of it. What prod pods requested
and will not use is a forecast, which the manager adds.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from cotenant.base.colocation.nodemetric import PLURAL, CollectPolicy, go_duration, spec_of
from cotenant.base.kubernetes.intent import Address, Apply
from cotenant.base.kubernetes.moments import moment
from cotenant.base.kubernetes.protocol import SLO_GROUP
from cotenant.base.kubernetes.qos import PriorityClass, QosClass
from cotenant.enforcer.contract import GroupReading, Observation

BUCKET_SECONDS: Final = 10.0
LEAST_APART_SECONDS: Final = 0.9
"""Least time between two kept samples of the node, so that half an hour fits in memory, however short the tick is."""
PERCENTILES: Final[tuple[tuple[str, int], ...]] = (("p50", 50), ("p90", 90), ("p95", 95), ("p99", 99))


class NodeUsageSample(NamedTuple):
    """The node's usage at a moment (monotonic seconds); millicores are None if not known in that tick."""

    at_seconds: float
    millicores: float | None
    bytes: int
    system_millicores: float | None
    system_bytes: int


class UsageWindow(NamedTuple):
    """The node's samples of the last `duration_seconds`, oldest first, and whether they span enough of that time."""

    duration_seconds: int
    samples: Sequence[NodeUsageSample]
    enough: bool


@dataclass(slots=True)
class _UsageSums:
    """The sums of one pod or host application in one ten-second bucket."""

    millicores: float = 0.0
    ticks: int = 0
    bytes: int = 0
    readings: int = 0

    def add(self, group: GroupReading) -> None:
        if group.cpu.millicores is not None:
            self.millicores += group.cpu.millicores
            self.ticks += 1
        if group.memory is not None:
            self.bytes += group.memory.working_set
            self.readings += 1


@dataclass(slots=True)
class UsageHistory:
    """The node's usage history, kept for `keep_seconds`, the longest window; for use by a single thread."""

    keep_seconds: float = 1800.0
    samples: deque[NodeUsageSample] = field(default_factory=deque)
    buckets: deque[tuple[float, dict[str, _UsageSums]]] = field(default_factory=deque)

    def take(self, observation: Observation) -> None:
        """Add the observation of one tick to the history."""
        # Everything that is not the system: pods by uid, host applications by name.
        groups = {pod.spec.uid: pod.group for pod in observation.pods if pod.group is not None}
        groups |= {app.name: app.group for app in observation.host_applications if app.group is not None}
        if not self.buckets or observation.at_seconds - self.buckets[-1][0] >= BUCKET_SECONDS:
            self.buckets.append((observation.at_seconds, {}))
        bucket = self.buckets[-1][1]
        for key, group in groups.items():
            bucket.setdefault(key, _UsageSums()).add(group)
        if not self.samples or observation.at_seconds - self.samples[-1].at_seconds >= LEAST_APART_SECONDS:
            node = observation.node
            used, memory = node.cpu.millicores, max(0, node.memory_total_bytes - node.memory_available_bytes)
            of_pods = sum(group.cpu.millicores or 0.0 for group in groups.values())
            memory_of_pods = sum(group.memory.working_set for group in groups.values() if group.memory is not None)
            rest = None if used is None else max(0.0, used - of_pods)
            rest_bytes = max(0, memory - memory_of_pods)
            self.samples.append(NodeUsageSample(observation.at_seconds, used, memory, rest, rest_bytes))
        while self.samples and observation.at_seconds - self.samples[0].at_seconds > self.keep_seconds:
            self.samples.popleft()
        while self.buckets and observation.at_seconds - self.buckets[0][0] > self.keep_seconds:
            self.buckets.popleft()

    def window(self, duration_seconds: int) -> UsageWindow:
        """Return the samples of the last `duration_seconds` up to the newest sample."""
        if not self.samples:
            return UsageWindow(duration_seconds, (), enough=False)
        newest = self.samples[-1].at_seconds
        samples = [s for s in self.samples if newest - s.at_seconds < duration_seconds]
        return UsageWindow(duration_seconds, samples, 2 * (newest - samples[0].at_seconds) > duration_seconds)

    def mean_of(self, key: str, duration_seconds: int) -> dict[str, str]:
        """Return the mean usage of a pod (by uid) or host application (by name) as quantities, without unknown ones."""
        if not self.buckets:
            return {}
        newest = self.buckets[-1][0]
        buckets = [b[key] for at, b in self.buckets if newest - at < duration_seconds and key in b]
        cpu = _mean(sum(s.millicores for s in buckets), sum(s.ticks for s in buckets))
        memory = _mean(sum(s.bytes for s in buckets), sum(s.readings for s in buckets))
        return _quantities(cpu, memory)


def node_metric(observation: Observation, usage: UsageHistory, policy: CollectPolicy) -> Apply | None:
    """Return the patch of the NodeMetric's status; None before the first CPU reading."""
    window = usage.window(policy.aggregate_seconds)
    node = _usage(_average(window, "millicores"), _average(window, "bytes"))
    if "cpu" not in node["resources"]:
        return None
    pods, hosts = [], []  # those without samples are left out
    for pod in observation.pods:
        spec = pod.spec
        if resources := usage.mean_of(spec.uid, policy.aggregate_seconds):
            entry = {"namespace": spec.namespace, "name": spec.name, "podUsage": {"resources": resources}}
            pods.append(entry | _classes(spec.effective_priority, spec.qos_class))
    for app in observation.host_applications:
        if resources := usage.mean_of(app.name, policy.aggregate_seconds):
            entry = {"name": app.name, "usage": {"resources": resources}}
            hosts.append(entry | _classes(app.priority_class, app.qos_class))
    status: dict[str, Any] = {
        "updateTime": moment(observation.wall_seconds),
        "nodeMetric": {
            "nodeUsage": node,
            "aggregatedNodeUsages": _aggregates(usage, policy, "millicores", "bytes"),
            "systemUsage": _usage(_average(window, "system_millicores"), _average(window, "system_bytes")),
            "aggregatedSystemUsages": _aggregates(usage, policy, "system_millicores", "system_bytes"),
        },
        "podsMetric": pods,
    }
    if observation.host_applications:
        status["hostApplicationMetric"] = hosts
    address = Address(SLO_GROUP, PLURAL, observation.node.name)
    return Apply(address, address.manifest("NodeMetric", status=status), "status", why="usage of this node")


def own_object(node: str, node_uid: str, policy: CollectPolicy) -> Apply:
    """Return the request that creates the NodeMetric; the Node owns it, so it is deleted with the Node."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid}
    address, spec = Address(SLO_GROUP, PLURAL, node), {"metricCollectPolicy": spec_of(policy)}
    body = address.manifest("NodeMetric", {"ownerReferences": [owner]}, spec=spec)
    return Apply(address, body, force=False, why="how the usage of this node is measured")


def _values(window: UsageWindow, field_name: str) -> list[float]:
    values = (getattr(sample, field_name) for sample in window.samples)
    return [value for value in values if value is not None]


def _average(window: UsageWindow, field_name: str) -> float | None:
    values = _values(window, field_name)
    return _mean(sum(values), len(values))


def _mean(total: float, count: int) -> float | None:
    return total / count if count else None


def _aggregates(usage: UsageHistory, policy: CollectPolicy, cpu: str, memory: str) -> list[dict[str, Any]]:
    """Return the average and percentiles of each of the policy's windows with enough samples."""
    out = []
    for window in map(usage.window, policy.durations_seconds):
        if not window.enough:
            continue
        first, second = sorted(_values(window, cpu)), sorted(_values(window, memory))
        kinds = {name: _usage(_rank(first, percent), _rank(second, percent)) for name, percent in PERCENTILES}
        kinds["avg"] = _usage(_mean(sum(first), len(first)), _mean(sum(second), len(second)))
        out.append({"duration": go_duration(window.duration_seconds), "usage": kinds})
    return out


def _rank(ordered: Sequence[float], percent: int) -> float | None:
    """Return the ceil(percent x n / 100)-th smallest value, computed in integers so that rounding cannot shift it."""
    return ordered[max(1, math.ceil(percent * len(ordered) / 100)) - 1] if ordered else None


def _classes(priority: PriorityClass, qos: QosClass) -> dict[str, str]:
    return {key: member.value for key, member in (("priority", priority), ("qos", qos)) if member.value}


def _usage(millicores: float | None, memory: float | None) -> dict[str, Any]:
    return {"resources": _quantities(millicores, memory)}


def _quantities(millicores: float | None, memory: float | None) -> dict[str, str]:
    """Return millicores as 138m and bytes as a plain number, as Koordinator's agent writes them."""
    cpu = {} if millicores is None else {"cpu": f"{round(millicores)}m"}
    return cpu | ({} if memory is None else {"memory": str(round(memory))})
