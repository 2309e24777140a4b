"""The most batch capacity that a node may publish, from the objects that the formula reads. Pure, shares no code."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from typing import Any, Final

from tests.support.invariants.amounts import amount, amounts
from tests.support.invariants.records import ApiWrite, Bounds, Json, Recording, Violation

BATCH: Final = {"cpu": "kubernetes.io/batch-cpu", "memory": "kubernetes.io/batch-memory"}
CONFIG: Final = "slo-controller-config"
LOW: Final = frozenset({"koord-batch", "koord-free"})
_LOW_PRIORITIES: Final = frozenset({*range(3000, 4000), *range(5000, 6000)})
_CLASS: Final = "koordinator.sh/priority-class"
_PERCENT: Final = {"cpu": ("cpuReclaimThresholdPercent", 60), "memory": ("memoryReclaimThresholdPercent", 65)}
"""Koordinator's keys and defaults."""
_CAP: Final = {"cpu": "batchCPUThresholdPercent", "memory": "batchMemoryThresholdPercent"}
_POLICY: Final = {"cpu": "cpuCalculatePolicy", "memory": "memoryCalculatePolicy"}
_DEGRADE_MINUTES: Final = 15
_UNIT: Final = {"cpu": 1000, "memory": 1}
"""batch-cpu is in millicores."""
_OWN_WAY: Final = ("node.koordinator.sh/colocation-strategy", "node.koordinator.sh/cpu-normalization-ratio")
"""Annotations by which a node has a formula of its own."""


@dataclass(slots=True)
class _Known:
    """What was written so far: reports by node, each with its moment, every version of the strategy, pods of batch."""

    reports: dict[str, list[tuple[float, Json]]] = field(default_factory=dict)
    strategies: list[tuple[float, Json]] = field(default_factory=list)
    low: set[tuple[str, str]] = field(default_factory=set)


def batch_below_its_ceiling(recording: Recording, bounds: Bounds) -> Iterator[Violation]:
    """Batch allocatable is never set above the formula's ceiling.

    Judged is each write that changes the amount of a node; one that leaves it as it was, such as a kubelet's, decides
    nothing, and within its dead band an amount may stand while usage moves. The ceiling is what would be lent if
    nothing ran on the node but what its NodeMetric reports: capacity less the safety margin (none under the policy
    `forecast`, whose margin is in the forecast), less the larger of system usage and what the kubelet reserves, less
    the reported usage of pods above batch (under `request` none of it), and at most the configured cap. The largest
    ceiling counts by any report and strategy that stood within `view_seconds` before the write; without a report
    younger than `degradeTimeMinutes` it is 0. Nothing is said of a node with a strategy or a CPU normalization of its
    own, of one whose capacity the log does not show, nor where a strategy has parts for some nodes, nor without any.
    """
    knowledge = _Known()
    standing: dict[tuple[str, str], object] = {}
    for write in recording.writes:
        _remember(knowledge, write)
        if write.resource.partition("/")[0] != "nodes" or not write.stored:
            continue
        lent = (write.stored.get("status") or {}).get("allocatable") or {}
        for resource, name in BATCH.items():
            before = standing.get((write.name, name))
            standing[write.name, name] = lent.get(name)
            if lent.get(name) in (None, before):
                continue
            most = _most(knowledge, write, resource, bounds)
            if most is not None and amount(lent[name]) > most:
                why = f"{name} is {float(amount(lent[name])):g}, the formula's ceiling {float(most):g}"
                yield Violation("batch-below-its-ceiling", write.answered_seconds, write.name, why)


def _remember(knowledge: _Known, write: ApiWrite) -> None:
    if write.resource.partition("/")[0] == "nodemetrics" and write.stored.get("status"):
        knowledge.reports.setdefault(write.name, []).append((write.answered_seconds, write.stored["status"]))
    elif write.resource == "configmaps" and write.name == CONFIG and write.stored:
        text = (write.stored.get("data") or {}).get("colocation-config") or "{}"
        knowledge.strategies.append((write.answered_seconds, json.loads(text)))
    elif write.resource == "pods" and write.stored and _is_low(write.stored):
        knowledge.low.add((write.namespace, write.name))


def _is_low(pod: Json) -> bool:
    labels = pod["metadata"].get("labels") or {}
    return labels.get(_CLASS) in LOW or (pod.get("spec") or {}).get("priority", 0) in _LOW_PRIORITIES


def _most(knowledge: _Known, write: ApiWrite, resource: str, bounds: Bounds) -> Fraction | None:
    """The largest ceiling by what may have been seen; None: nothing is said of this node."""
    since = write.asked_seconds - bounds.view_seconds
    strategies = _in_force(knowledge.strategies, since)
    annotations = (write.stored.get("metadata") or {}).get("annotations") or {}
    if not strategies or any(s.get("nodeConfigs") for s in strategies) or any(key in annotations for key in _OWN_WAY):
        return None
    if resource not in amounts(write.stored["status"].get("capacity")):  # the node was made where no log shows it
        return None
    reports = _in_force(knowledge.reports.get(write.name, []), since)
    ceilings = [
        _ceiling(write.stored["status"], (report, knowledge.low), strategy, resource, since)
        for report in reports
        for strategy in strategies
    ]
    return max(ceilings, default=Fraction(0))


def _in_force(history: list[tuple[float, Json]], since: float) -> list[Json]:
    """What stood at that moment, and everything after it."""
    before = [body for seconds, body in history if seconds <= since][-1:]
    return before + [body for seconds, body in history if seconds > since]


def _ceiling(
    node: Json, reported: tuple[Json, Collection[tuple[str, str]]], strategy: Json, resource: str, since: float
) -> Fraction:
    report, low = reported
    minutes = strategy.get("degradeTimeMinutes") or _DEGRADE_MINUTES
    stamp = report.get("updateTime")
    if not strategy.get("enable") or not stamp or datetime.fromisoformat(stamp).timestamp() + 60 * minutes < since:
        return Fraction(0)
    unit, capacity = _UNIT[resource], amounts(node["capacity"])[resource]
    reserved = max(capacity - amounts(node["allocatable"]).get(resource, capacity), Fraction(0))
    key, default = _PERCENT[resource]
    policy = strategy.get(_POLICY[resource]) or "usage"
    percent = strategy.get(key)
    kept_percent = 0 if policy == "forecast" else 100 - (default if percent is None else percent)
    system, pods = (Fraction(0), Fraction(0)) if policy == "request" else _used(report, low, resource)
    unused = capacity - capacity * kept_percent / 100 - max(system, reserved) - pods
    cap = strategy.get(_CAP[resource])
    lent = max(unused if cap is None else min(unused, capacity * cap / 100), Fraction(0))
    return lent * unit + 1  # amounts are whole: each term is rounded by less than one


def _used(report: Json, low: Collection[tuple[str, str]], resource: str) -> tuple[Fraction, Fraction]:
    """What the system uses, as reported, and pods above batch, by the report or by the pods themselves."""
    metric: Mapping[str, Any] = report.get("nodeMetric") or {}
    pods = [
        _usage(pod.get("podUsage"), resource)
        for pod in report.get("podsMetric") or ()
        if pod.get("priority") not in LOW and (pod.get("namespace"), pod["name"]) not in low
    ]
    return _usage(metric.get("systemUsage"), resource), sum(pods, Fraction(0))


def _usage(part: Json | None, resource: str) -> Fraction:
    return amounts((part or {}).get("resources")).get(resource, Fraction(0))
