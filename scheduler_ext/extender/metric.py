"""The data that the rules read of NodeMetrics, UsageForecasts, ResourceSlices and Nodes, as frozen values. Pure.

Unreadable quantities are left out; a single bad number never removes a node.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import msgspec
import numpy as np

from cotenant.base.colocation.reclaim_policies import BY_FORECAST, Band
from cotenant.base.errors import CotenantError, UsageError
from cotenant.base.json_documents.json_decoders import mapping_or_empty, readable_object
from cotenant.base.kubernetes.amplification import machine_allocatable
from cotenant.base.kubernetes.models.node import SchedulableNode
from cotenant.base.kubernetes.models.own_kinds import UsageForecast
from cotenant.base.kubernetes.models.pod import Quantities
from cotenant.base.kubernetes.moments import seconds_of
from cotenant.base.kubernetes.pod_request import parse_readable_quantities
from cotenant.base.kubernetes.protocol import (
    AMPLIFICATION_RATIO_ANNOTATION,
    BATCH_CPU_POLICY_ANNOTATION,
    EXTENDED_RESOURCES,
    NODE_RESERVATION_ANNOTATION,
    RAW_ALLOCATABLE_ANNOTATION,
    SUPPRESSED_FRACTION_ANNOTATION,
    SYSTEM_QOS_ANNOTATION,
)
from cotenant.base.kubernetes.quantity import parse_amount
from cotenant.base.resource import BEYOND_CAPACITY
from cotenant.scheduler_ext.arrays import Floats
from cotenant.scheduler_ext.extender.pod import RESOURCES, Pair

THRESHOLDS_ANNOTATION: Final = "scheduling.koordinator.sh/usage-thresholds"
DEFAULT_REPORT_SECONDS: Final = 60.0


class _SlicedDevice(msgspec.Struct):
    name: str = ""


class _SliceSpec(msgspec.Struct, rename="camel"):
    node_name: str = ""
    devices: list[_SlicedDevice] | None = None


class SliceWire(msgspec.Struct):
    """The fields of a ResourceSlice that the extender reads."""

    spec: _SliceSpec = msgspec.field(default_factory=_SliceSpec)


@dataclass(frozen=True, slots=True)
class NodeSlice:
    """The names of the devices in a node's ResourceSlice, free or claimed."""

    node: str
    devices: frozenset[str]


def slice_of(wire: SliceWire) -> NodeSlice:
    """Return a ResourceSlice's node and the names of its devices."""
    return NodeSlice(wire.spec.node_name, frozenset(device.name for device in wire.spec.devices or ()))


class _ResourceMap(msgspec.Struct):
    resources: Quantities | None = None


class _Aggregated(msgspec.Struct):
    duration: str = ""
    usage: dict[str, _ResourceMap] | None = None


class _MetricNode(msgspec.Struct, rename="camel"):
    node_usage: _ResourceMap | None = None
    aggregated_node_usages: list[_Aggregated] | None = None
    system_usage: _ResourceMap | None = None


class _MetricPod(msgspec.Struct, rename="camel"):
    namespace: str = ""
    name: str = ""
    pod_usage: _ResourceMap | None = None
    priority: str = ""


class _MetricStatus(msgspec.Struct, rename="camel"):
    update_time: datetime | None = None
    node_metric: _MetricNode | None = None
    pods_metric: list[_MetricPod | None] | None = None


class _Collect(msgspec.Struct, rename="camel"):
    report_interval_seconds: float | None = None


class _MetricSpec(msgspec.Struct, rename="camel"):
    metric_collect_policy: _Collect | None = None


class NodeMetricWire(msgspec.Struct):
    """The fields of a NodeMetric that the extender reads."""

    spec: _MetricSpec = msgspec.field(default_factory=_MetricSpec)
    status: _MetricStatus = msgspec.field(default_factory=_MetricStatus)


@dataclass(frozen=True, slots=True)
class LoadMetric:
    """A node's reported usage, (millicores, bytes) pairs; `aggregated` is by (statistic, seconds), 0 = longest window.

    `usage` is None if the report has no node usage; NaN is an unreported resource. `pods` has by NAMESPACE/NAME the
    pod's usage (NaN if unreported) and whether it is reported as prod.
    """

    updated_seconds: float | None = None
    report_seconds: float = DEFAULT_REPORT_SECONDS
    usage: Pair | None = None
    system: Pair = (0.0, 0.0)
    aggregated: Mapping[tuple[str, float], Pair] = field(default_factory=dict)
    pods: Mapping[str, tuple[Pair, bool]] = field(default_factory=dict)


def metric_of(wire: NodeMetricWire) -> LoadMetric:
    """Return the parts of a NodeMetric that the rules read, in millicores and bytes.

    Pods without reported usage are left out; the report interval defaults to Koordinator's.
    """
    status, policy = wire.status, wire.spec.metric_collect_policy
    node = status.node_metric
    interval = policy.report_interval_seconds if policy else None
    usage = _usage_pair(node.node_usage) if node else None
    pods: dict[str, tuple[Pair, bool]] = {}
    for pod in filter(None, status.pods_metric or ()):
        cpu, memory = _amounts(pod.pod_usage)
        # Every running pod has memory: one of which 0 bytes are reported was not measured, nor was a CPU of 0 beside
        # them.
        if memory == 0:
            cpu, memory = cpu or math.nan, math.nan
        if not (math.isnan(cpu) and math.isnan(memory)):
            pods[f"{pod.namespace}/{pod.name}"] = (cpu, memory), pod.priority == "koord-prod"
    cpu, memory = _amounts(node.system_usage if node else None)
    return LoadMetric(
        updated_seconds=status.update_time.timestamp() if status.update_time else None,
        report_seconds=DEFAULT_REPORT_SECONDS if interval is None else interval,
        usage=usage,
        system=(_rest(cpu, 0, usage, pods), _rest(memory, 1, usage, pods)),
        aggregated=_aggregated_usages(node.aggregated_node_usages) if node and node.aggregated_node_usages else {},
        pods=pods,
    )


def _rest(reported: float, place: int, usage: Pair | None, pods: Mapping[str, tuple[Pair, bool]]) -> float:
    if not math.isnan(reported):
        return reported
    if usage is None or math.isnan(usage[place]):
        return 0.0
    return max(usage[place] - measured_together(pods)[place], 0.0)


def measured_together(pods: Mapping[str, tuple[Pair, bool]]) -> Pair:
    """Return the sum of the pods' measured usage, (millicores, bytes); NaN values count as 0."""
    cpu, memory = (math.fsum(pair[i] for pair, _ in pods.values() if not math.isnan(pair[i])) for i in (0, 1))
    return cpu, memory


def _aggregated_usages(windows: list[_Aggregated]) -> dict[tuple[str, float], Pair]:
    """Return every window's usage, and under 0 seconds the longest window that has the statistic."""
    usages: dict[tuple[str, float], Pair] = {}
    longest: dict[str, float] = {}
    for window in windows:
        try:
            seconds = seconds_of(window.duration, "aggregatedNodeUsages")
        except UsageError:
            continue
        for statistic, usage in (window.usage or {}).items():
            pair = _usage_pair(usage)
            if pair is None:
                continue
            usages[statistic, seconds] = pair
            if seconds > longest.get(statistic, 0.0):
                longest[statistic] = seconds
    return usages | {(statistic, 0.0): usages[statistic, seconds] for statistic, seconds in longest.items()}


def _usage_pair(usage: _ResourceMap | None) -> Pair | None:
    """Return both amounts, NaN for one that is missing, unreadable or 0 bytes of memory; None if both are."""
    cpu, memory = _amounts(usage)
    cpu, memory = cpu or math.nan, memory or math.nan  # no machine that reports uses none of either
    return None if math.isnan(cpu) and math.isnan(memory) else (cpu, memory)


def _amounts(usage: _ResourceMap | None) -> Pair:
    """Return both amounts, NaN for one that is missing or unreadable."""
    resources, amounts = usage.resources or {} if usage else {}, [math.nan, math.nan]
    for place, resource in enumerate(RESOURCES):
        if (text := resources.get(resource.value)) is not None:
            try:
                amounts[place] = float(parse_amount(resource, text))
            except CotenantError:
                amounts[place] = math.nan
    cpu, memory = amounts
    return cpu, memory


@dataclass(frozen=True, slots=True)
class LoadThresholds:
    """A node's own thresholds in percent, None if the settings apply; `aggregation` is (statistic, seconds)."""

    usage: Pair | None = None
    prod: Pair | None = None
    aggregated: Pair | None = None
    aggregation: tuple[str, float] = ("", 0.0)


@dataclass(frozen=True, slots=True)
class ExtenderNode:
    """A node: its allocatable amounts, the capacity that load is measured against, its own thresholds.

    `capacity` is (millicores, bytes) before amplification, `whole` the machine's. `suppressed` is the share of the last
    hour in which best effort was throttled, NaN if unknown. `lends_forecast` is true if its batch CPU is from a
    forecast.
    """

    name: str
    allocatable: Mapping[str, int] = field(default_factory=dict)
    capacity: Pair = (0.0, 0.0)
    thresholds: LoadThresholds = LoadThresholds()
    suppressed: float = math.nan
    lends_forecast: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[tuple[str, str, str], ...] = ()
    unschedulable: bool = False
    cpu_annotations: Mapping[str, str] = field(default_factory=dict)  # those that keep CPUs from pods
    whole: Pair = (0.0, 0.0)  # all that the machine has, what is reserved too, (millicores, bytes); 0 = not known


_KEEPING_CPUS: Final = (
    NODE_RESERVATION_ANNOTATION,
    SYSTEM_QOS_ANNOTATION,
    AMPLIFICATION_RATIO_ANNOTATION,
    RAW_ALLOCATABLE_ANNOTATION,
)
BATCH_NAMES: Final = tuple(EXTENDED_RESOURCES[Band.BATCH, r] for r in RESOURCES)


def node_of(wire: SchedulableNode) -> ExtenderNode:
    """Return the parts of a Node that the rules read, in millicores and bytes.

    `capacity` is the annotation `raw-allocatable` if amplification has raised the allocatable, else the allocatable.
    Unreadable annotations count as absent.
    """
    annotations = wire.metadata.annotations or {}
    allocatable = parse_readable_quantities(wire.status.allocatable or {})
    capacity = machine_allocatable(allocatable, annotations)
    try:
        suppressed = float(annotations.get(SUPPRESSED_FRACTION_ANNOTATION, ""))
    except ValueError:
        suppressed = math.nan
    return ExtenderNode(
        name=wire.metadata.name,
        allocatable=allocatable,
        capacity=_pair(capacity),
        thresholds=thresholds_of(annotations.get(THRESHOLDS_ANNOTATION, "")),
        suppressed=suppressed if 0.0 <= suppressed <= 1.0 else math.nan,
        lends_forecast=annotations.get(BATCH_CPU_POLICY_ANNOTATION, "") in BY_FORECAST,
        labels=wire.metadata.labels or {},
        taints=tuple((t.key, t.value, t.effect) for t in wire.spec.taints or ()),
        unschedulable=wire.spec.unschedulable,
        cpu_annotations={key: annotations[key] for key in _KEEPING_CPUS if key in annotations},
        whole=_pair(parse_readable_quantities(wire.status.capacity or {})),
    )


def _pair(amounts: Mapping[str, int]) -> Pair:
    cpu, memory = (float(amounts.get(r.value, 0)) for r in RESOURCES)
    return cpu, memory


def exceeds_capacity(metric: LoadMetric, node: ExtenderNode) -> bool:
    """Return whether reported usage (node, system, a pod or all pods) is so far above capacity that it must be wrong.

    The bound is BEYOND_CAPACITY x the machine's capacity; pods and system together may exceed its allocatable.
    """
    pods = [usage for usage, _ in metric.pods.values()]
    together = measured_together(metric.pods)
    return any(_is_beyond(pair, node) for pair in (metric.usage or (0.0, 0.0), metric.system, *pods, together))


def possible_statistics(metric: LoadMetric, node: ExtenderNode) -> dict[tuple[str, float], Pair]:
    """Return the NodeMetric's statistics that do not exceed the machine's capacity; a wrong sample can be its p99."""
    return {statistic: pair for statistic, pair in metric.aggregated.items() if not _is_beyond(pair, node)}


def _is_beyond(used: Pair, node: ExtenderNode) -> bool:
    bounds = [BEYOND_CAPACITY * total if total > 0 else math.inf for total in node.whole]
    return any(amount > bound for amount, bound in zip(used, bounds, strict=True))


def thresholds_of(text: str) -> LoadThresholds:
    """Return the thresholds in a node's annotation; unreadable parts count as absent."""
    annotation = readable_object(text)
    aggregated = mapping_or_empty(annotation.get("aggregatedUsage"))
    statistic = aggregated.get("usageAggregationType")
    percent = _percentages(aggregated.get("usageThresholds"))
    complete = percent is not None and isinstance(statistic, str) and bool(statistic)
    duration, seconds = aggregated.get("usageAggregatedDuration"), 0.0
    with suppress(UsageError):
        seconds = seconds_of(duration, "usageAggregatedDuration") if isinstance(duration, str) else 0.0
    return LoadThresholds(
        usage=_percentages(annotation.get("usageThresholds")),
        prod=_percentages(annotation.get("prodUsageThresholds")),
        aggregated=percent if complete else None,
        aggregation=(str(statistic), seconds) if complete else ("", 0.0),
    )


def _percentages(percentages: Any) -> Pair | None:
    """Return the percentages of a map; None if it is empty or not a map of whole numbers."""
    if not isinstance(percentages, dict) or not percentages:
        return None
    if not all(isinstance(v, int) and not isinstance(v, bool) and 0 <= v <= 10**6 for v in percentages.values()):
        return None
    return _pair(percentages)


@dataclass(frozen=True, slots=True)
class Outlook:
    """A node's forecast: `high` is the p95 of each step's mean usage, (CPU, memory), NaN for a missing step.

    The forecast is based on usage up to `known_until` (Unix time); pods placed later are not in it.
    """

    start_seconds: float
    step_seconds: int
    valid_until: float
    known_until: float
    high: tuple[tuple[float, ...], tuple[float, ...]]

    def at(self, seconds: float) -> Pair:
        """Return the forecast p95, (millicores, bytes), of the step that contains a Unix time; NaN if no step does."""
        step = math.floor((seconds - self.start_seconds) / self.step_seconds)
        cpu, memory = (
            series[step] if 0 <= step < len(series) and seconds < self.valid_until else math.nan for series in self.high
        )
        return cpu, memory

    def slots(self, first: int, count: int, slot_seconds: int) -> Floats:
        """Return the p95 at the start of `count` slots, (2, count), or NaN; the first is at `first * slot_seconds`."""
        highest = np.full((2, count), np.nan)
        begins = (first + np.arange(count)) * slot_seconds
        steps = np.floor_divide(begins - self.start_seconds, self.step_seconds).astype(np.int64)
        alive = begins < self.valid_until
        for row, series in enumerate(self.high):
            inside = alive & (steps >= 0) & (steps < len(series))
            highest[row, inside] = np.asarray(series, dtype=np.float64)[steps[inside]]
        return highest


def outlook_of(wire: UsageForecast) -> Outlook | None:
    """Return the part of a UsageForecast that the rules use; None if it has no start or no positive step."""
    spec = wire.spec
    start, valid_until, history_end = spec.start_seconds, spec.valid_until_seconds, spec.history_end_seconds
    if start is None or spec.step_seconds <= 0:
        return None
    return Outlook(
        start_seconds=start,
        step_seconds=spec.step_seconds,
        valid_until=math.inf if valid_until is None else valid_until,
        known_until=start if history_end is None else history_end,
        high=(tuple(spec.cpu.high) if spec.cpu else (), tuple(spec.memory.high) if spec.memory else ()),
    )
