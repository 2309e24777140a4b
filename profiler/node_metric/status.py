"""Computes the NodeMetric status of all nodes at once, from usage samples and pods. Pure.

Plain usage is the mean of the policy's window; the system's usage is the node's less its pods', at least 0 (Prometheus
does not know host applications). updateTime is that of the newest sample, not of the write, so that a node whose
scrapes stopped becomes stale. A node without a sample, or without any usage, has no status.

prodReclaimable is what prod requested and will not use in the next 24 hours (computed by
`recommender.colocation.formulas`; only written here).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from cotenant.base.cluster import Pod
from cotenant.base.colocation.nodemetric import CollectPolicy, go_duration
from cotenant.base.kubernetes.moments import moment
from cotenant.base.kubernetes.qos import PriorityClass, QosClass
from cotenant.base.resource import Amounts, Resource
from cotenant.profiler.node_metric.windows import KINDS, Floats, Track, aggregate_rows, mean, spans


@dataclass(frozen=True, slots=True, eq=False)
class Observed:
    """The usage samples from one round of queries, in millicores and bytes.

    `nodes` are samples of node usage, `sums` of the sum over a node's pods; `newest` is the Unix time of each node's
    last sample. `pods` are (namespace, name); `usage` has each pod's mean over `aggregate_seconds`, NaN = unknown.
    `clock_ahead_seconds` is by how much the server's clock is ahead of the caller's, 0 if both agree.
    """

    nodes: Mapping[Resource, Track]
    sums: Mapping[Resource, Track]
    newest: Mapping[str, float]
    pods: tuple[tuple[str, str], ...]
    usage: Mapping[Resource, Floats]
    clock_ahead_seconds: int = 0


@dataclass(frozen=True, slots=True)
class ProdOutlook:
    """cotenant's forecast for one node: the part of prod's requests that stays unused, and prod's peak usage."""

    reclaimable: Amounts = field(default_factory=dict)
    peak: Amounts = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Report:
    """One node's NodeMetric status, and the time of its newest sample in whole Unix seconds."""

    node: str
    time_seconds: int
    status: Mapping[str, Any]
    usage: Amounts
    system: Amounts


def reports(
    observed: Observed, pods: Sequence[Pod], policy: CollectPolicy, prod: Mapping[str, ProdOutlook]
) -> list[Report]:
    """Return the NodeMetric reports of all nodes with data, by name; `pods` are running pods with node and class."""
    names = tuple(sorted(observed.newest))
    placed = _Placed(observed, pods, names)
    plain, system = {}, {}
    windows: tuple[dict[Resource, list[_Window]], ...] = ({}, {})
    for resource in Resource:
        nodes, sums = observed.nodes[resource].of(names), observed.sums[resource].of(names)
        plain[resource] = mean(nodes.last(policy.aggregate_seconds))
        system[resource] = np.maximum(plain[resource] - placed.sums[resource], 0.0)
        podless = np.isnan(sums.values).all(axis=1, keepdims=True)
        outside_pods = np.maximum(nodes.values - np.where(podless, 0.0, sums.values), 0.0)
        rest = Track(names, nodes.end_seconds, nodes.step_seconds, outside_pods)
        for into, track in zip(windows, (nodes, rest), strict=True):
            cut = [(track.last(d), d) for d in policy.durations_seconds]
            into[resource] = [
                _Window(
                    np.rint(np.nan_to_num(aggregate_rows(values))).astype(np.int64).tolist(),
                    spans(values, track.step_seconds, d).tolist(),
                )
                for values, d in cut
            ]
    out = []
    for row, name in enumerate(names):
        usage, rest_usage = _amounts(plain, row), _amounts(system, row)
        if not usage:
            continue
        of_node, of_system = (_aggregates(some, row, policy) for some in windows)
        node_metric = {
            "nodeUsage": _usage(usage),
            "aggregatedNodeUsages": of_node,
            "systemUsage": _usage(rest_usage),
            "aggregatedSystemUsages": of_system,
        }
        time = int(observed.newest[name])
        status = {"updateTime": moment(time), "nodeMetric": node_metric, "podsMetric": placed.metrics[row]}
        out.append(Report(name, time, status | outlook_status(prod.get(name)), usage, rest_usage))
    return out


class _Window(NamedTuple):
    """One duration: each node's aggregates in the order of KINDS, and whether its samples cover enough of it."""

    amounts: list[list[int]]
    enough: list[bool]


class _Placed:
    """Running pods on their nodes: the sum of their usage, (nodes,), and each node's podsMetric."""

    def __init__(self, observed: Observed, pods: Sequence[Pod], names: Sequence[str]) -> None:
        row_of = {name: row for row, name in enumerate(names)}
        index_of = {key: i for i, key in enumerate(observed.pods)}
        running = [p for p in pods if p.running and p.node in row_of and (p.namespace, p.name) in index_of]
        rows = np.fromiter((row_of[p.node] for p in running), dtype=np.intp, count=len(running))
        picked = np.fromiter((index_of[p.namespace, p.name] for p in running), dtype=np.intp, count=len(running))
        usage = {r: np.asarray(observed.usage[r][picked]) for r in Resource}
        self.sums = {r: np.bincount(rows, np.nan_to_num(usage[r]), minlength=len(names)) for r in Resource}
        self.metrics: list[list[dict[str, Any]]] = [[] for _ in names]
        texts = (_texts(Resource.CPU, usage[Resource.CPU]), _texts(Resource.MEMORY, usage[Resource.MEMORY]))
        for pod, row, cpu, memory in zip(running, rows.tolist(), *texts, strict=True):
            resources = {name: text for name, text in (("cpu", cpu), ("memory", memory)) if text}
            if not resources:
                continue
            metric: dict[str, Any] = {"namespace": pod.namespace, "name": pod.name}
            metric["podUsage"] = {"resources": resources}
            if (priority := pod.effective_priority) is not PriorityClass.NONE:
                metric["priority"] = priority.value
            if pod.qos is not QosClass.NONE:
                metric["qos"] = pod.qos.value
            self.metrics[row].append(metric)


def _aggregates(windows: Mapping[Resource, list[_Window]], row: int, policy: CollectPolicy) -> list[dict[str, Any]]:
    """Return one node's aggregated usage; a window is left out if no resource's samples cover enough of it."""
    out = []
    for i, duration in enumerate(policy.durations_seconds):
        amounts = {r: w[i].amounts[row] for r, w in windows.items() if w[i].enough[row]}
        if amounts:
            kinds = {name: _usage({r: v[j] for r, v in amounts.items()}) for j, name in enumerate(KINDS)}
            out.append({"duration": go_duration(duration), "usage": kinds})
    return out


def _amounts(values: Mapping[Resource, Floats], row: int) -> dict[Resource, int]:
    return {r: round(float(v[row])) for r, v in values.items() if np.isfinite(v[row])}


def _texts(resource: Resource, values: Floats) -> Iterator[str]:
    """Yield each amount as a Kubernetes quantity, "" for an unknown one."""
    unit = "m" if resource is Resource.CPU else ""
    integers = np.where(np.isfinite(values), np.rint(np.nan_to_num(values)), -1).astype(np.int64).tolist()
    return (f"{v}{unit}" if v >= 0 else "" for v in integers)


def _usage(amounts: Amounts) -> dict[str, Any]:
    """Return millicores as 138m and bytes as a plain number, as Koordinator's agent writes them."""
    return {"resources": {r.value: f"{v}m" if r is Resource.CPU else str(v) for r, v in amounts.items()}}


def outlook_status(prod: ProdOutlook | None) -> dict[str, Any]:
    """Return the forecast part of a NodeMetric status; empty without a forecast."""
    if prod is None:
        return {}
    parts = {"prodReclaimableMetric": prod.reclaimable, "prodPeakMetric": prod.peak}
    return {name: {"resource": _usage(amounts)} for name, amounts in parts.items() if amounts}
