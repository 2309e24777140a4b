"""The node's usage over the last half hour, and the NodeMetric that tells of it. Pure: readings in, an Apply out.

Every tick's observation becomes one sample of the node and adds to ten-second sums of each pod. Plain usage is the mean
over the policy's window, percentiles are of the nearest rank, the system's share is the node's less that of its pods
and host applications, never below 0. A window is told once its samples span more than half of it. What prod requested
and will not use is a forecast, and left to the manager.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from cotenant.model.collect_policy import CollectPolicy, go_duration
from cotenant.model.intent import Address, Apply
from cotenant.model.protocol import SLO_GROUP
from cotenant.model.qos import PriorityClass, QosClass
from enforcer.contract import GroupReading, Observation

PLURAL: Final = "nodemetrics"
BUCKET_SECONDS: Final = 10.0
LEAST_APART_SECONDS: Final = 0.9
"""Samples of the node that come faster are not kept: half an hour of them fits in memory whatever the tick."""
PERCENTILES: Final[tuple[tuple[str, int], ...]] = (("p50", 50), ("p90", 90), ("p95", 95), ("p99", 99))


class Sample(NamedTuple):
    """The node at a moment (monotonic seconds); millicores None = not known in that tick."""

    at_seconds: float
    millicores: float | None
    bytes: int
    system_millicores: float | None
    system_bytes: int


class Window(NamedTuple):
    """The node's samples of the last `duration_seconds`, oldest first; whether they span enough of it."""

    duration_seconds: int
    samples: Sequence[Sample]
    enough: bool


@dataclass(slots=True)
class _Sums:
    """One pod or host application in one bucket."""

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
class Usage:
    """What was seen; `keep_seconds` is as far back as any window reaches. For one thread."""

    keep_seconds: float = 1800.0
    samples: deque[Sample] = field(default_factory=deque)
    buckets: deque[tuple[float, dict[str, _Sums]]] = field(default_factory=deque)

    def take(self, seen: Observation) -> None:
        """One more tick."""
        groups = dict(_groups(seen))
        self._into_bucket(seen.at_seconds, groups)
        if not self.samples or seen.at_seconds - self.samples[-1].at_seconds >= LEAST_APART_SECONDS:
            self.samples.append(_sample(seen, list(groups.values())))
        while self.samples and seen.at_seconds - self.samples[0].at_seconds > self.keep_seconds:
            self.samples.popleft()
        while self.buckets and seen.at_seconds - self.buckets[0][0] > self.keep_seconds:
            self.buckets.popleft()

    def window(self, duration_seconds: int) -> Window:
        """The last `duration_seconds` up to the newest sample."""
        if not self.samples:
            return Window(duration_seconds, (), enough=False)
        newest = self.samples[-1].at_seconds
        found = [s for s in self.samples if newest - s.at_seconds < duration_seconds]
        return Window(duration_seconds, found, 2 * (newest - found[0].at_seconds) > duration_seconds)

    def mean_of(self, key: str, duration_seconds: int) -> dict[str, str]:
        """A pod's (uid) or host application's (name) mean usage as quantities; unknown ones are left out."""
        if not self.buckets:
            return {}
        newest = self.buckets[-1][0]
        found = [b[key] for at, b in self.buckets if newest - at < duration_seconds and key in b]
        cpu = _mean(sum(s.millicores for s in found), sum(s.ticks for s in found))
        memory = _mean(sum(s.bytes for s in found), sum(s.readings for s in found))
        return _quantities(cpu, memory)

    def _into_bucket(self, at_seconds: float, groups: dict[str, GroupReading]) -> None:
        if not self.buckets or at_seconds - self.buckets[-1][0] >= BUCKET_SECONDS:
            self.buckets.append((at_seconds, {}))
        bucket = self.buckets[-1][1]
        for key, group in groups.items():
            bucket.setdefault(key, _Sums()).add(group)


def node_metric(seen: Observation, usage: Usage, policy: CollectPolicy) -> Apply | None:
    """The status to write over the NodeMetric of this node; None before the first CPU reading."""
    window = usage.window(policy.aggregate_seconds)
    node = _usage(_averaged(window, _node_cpu), _averaged(window, _node_memory))
    if "cpu" not in node["resources"]:
        return None
    status: dict[str, Any] = {
        "updateTime": datetime.fromtimestamp(seen.wall_seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "nodeMetric": {
            "nodeUsage": node,
            "aggregatedNodeUsages": _aggregates(usage, policy, _node_cpu, _node_memory),
            "systemUsage": _usage(_averaged(window, _system_cpu), _averaged(window, _system_memory)),
            "aggregatedSystemUsages": _aggregates(usage, policy, _system_cpu, _system_memory),
        },
        "podsMetric": list(_pods(seen, usage, policy)),
    }
    if seen.host_applications:
        status["hostApplicationMetric"] = list(_hosts(seen, usage, policy))
    body = {"apiVersion": SLO_GROUP, "kind": "NodeMetric", "metadata": {"name": seen.node.name}, "status": status}
    return Apply(Address(SLO_GROUP, PLURAL, seen.node.name), body, subresource="status", why="usage of this node")


def own_object(node: str, node_uid: str, policy: CollectPolicy) -> Apply:
    """The NodeMetric itself, where nobody has made it: it belongs to the Node and goes with it."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid}
    spec = {
        "metricCollectPolicy": {
            "aggregateDurationSeconds": policy.aggregate_seconds,
            "reportIntervalSeconds": policy.report_seconds,
            "nodeAggregatePolicy": {"durations": [go_duration(d) for d in policy.durations_seconds]},
            "nodeMemoryCollectPolicy": policy.memory_policy,
        }
    }
    body = {"apiVersion": SLO_GROUP, "kind": "NodeMetric", "metadata": {"name": node, "ownerReferences": [owner]}}
    return Apply(Address(SLO_GROUP, PLURAL, node), body | {"spec": spec}, force=False, why="how the node is measured")


def _groups(seen: Observation) -> Iterable[tuple[str, GroupReading]]:
    """Everything that is not the system: pods by uid, host applications by name."""
    for pod in seen.pods:
        if pod.group is not None:
            yield pod.spec.uid, pod.group
    for app in seen.host_applications:
        if app.group is not None:
            yield app.name, app.group


def _sample(seen: Observation, groups: Sequence[GroupReading]) -> Sample:
    used = seen.node.cpu.millicores
    memory = max(0, seen.node.memory_total_bytes - seen.node.memory_available_bytes)
    of_pods = sum(group.cpu.millicores or 0.0 for group in groups)
    held = sum(group.memory.working_set for group in groups if group.memory is not None)
    rest = None if used is None else max(0.0, used - of_pods)
    return Sample(seen.at_seconds, used, memory, rest, max(0, memory - held))


Pick = Callable[[Sample], float | None]


def _node_cpu(sample: Sample) -> float | None:
    return sample.millicores


def _node_memory(sample: Sample) -> float | None:
    return sample.bytes


def _system_cpu(sample: Sample) -> float | None:
    return sample.system_millicores


def _system_memory(sample: Sample) -> float | None:
    return sample.system_bytes


def _values(window: Window, pick: Pick) -> list[float]:
    return [value for value in map(pick, window.samples) if value is not None]


def _averaged(window: Window, pick: Pick) -> float | None:
    values = _values(window, pick)
    return _mean(sum(values), len(values))


def _mean(total: float, count: int) -> float | None:
    return total / count if count else None


def _aggregates(usage: Usage, policy: CollectPolicy, cpu: Pick, memory: Pick) -> list[dict[str, Any]]:
    """Average and percentiles of each of the policy's windows that is long enough by now."""
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
    """The ceil(percent x n / 100)-th smallest, in whole numbers so that no fraction counts one too many."""
    return ordered[max(1, math.ceil(percent * len(ordered) / 100)) - 1] if ordered else None


def _pods(seen: Observation, usage: Usage, policy: CollectPolicy) -> Iterable[dict[str, Any]]:
    for pod in seen.pods:
        spec = pod.spec
        if resources := usage.mean_of(spec.uid, policy.aggregate_seconds):
            told = {"namespace": spec.namespace, "name": spec.name, "podUsage": {"resources": resources}}
            yield told | _classes(spec.effective_priority, spec.qos_class)


def _hosts(seen: Observation, usage: Usage, policy: CollectPolicy) -> Iterable[dict[str, Any]]:
    for app in seen.host_applications:
        if resources := usage.mean_of(app.name, policy.aggregate_seconds):
            told = {"name": app.name, "usage": {"resources": resources}}
            yield told | _classes(app.priority_class, app.qos_class)


def _classes(priority: PriorityClass, qos: QosClass) -> dict[str, str]:
    """Those that are known."""
    return {key: found.value for key, found in (("priority", priority), ("qos", qos)) if found.value}


def _usage(millicores: float | None, memory: float | None) -> dict[str, Any]:
    return {"resources": _quantities(millicores, memory)}


def _quantities(millicores: float | None, memory: float | None) -> dict[str, str]:
    """Millicores as 138m and bytes as a plain number, as Koordinator's agent writes them."""
    cpu = {} if millicores is None else {"cpu": f"{round(millicores)}m"}
    return cpu | ({} if memory is None else {"memory": str(round(memory))})
