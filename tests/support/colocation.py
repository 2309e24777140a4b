"""Koordinator's colocation formulas once more, pod by pod in plain Python integers: what the columns are held against.

Written from the documentation, not from the code under test: one node, no numpy, no shared function.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from cotenant.base.cluster import Pod
from cotenant.base.colocation.colocation_strategy import ColocationStrategy
from cotenant.base.colocation.nodemetric import NodeMetric
from cotenant.base.kubernetes.qos import QosClass
from cotenant.base.resource import Resource

LOW = ("koord-batch", "koord-free")


@dataclass
class PlainNode:
    """One node as its objects describe it."""

    capacity: int
    allocatable: int
    annotated: int = 0
    ratio: float = 1.0
    third_batch: int = 0
    third_mid: int = 0
    pods: list[Pod] = field(default_factory=list)
    metric: NodeMetric | None = None


def effective_class(pod: Pod) -> str:
    """Label or band, else by QoS."""
    if pod.priority.value or not pod.qos.value:
        return pod.priority.value
    return "koord-batch" if pod.qos is QosClass.BE else "koord-prod"


def percent_of(amount: int, percent: int) -> int:
    """A percentage as upstream multiplies it: in a double, cut."""
    return int(amount * (percent / 100))


def sums(node: PlainNode, resource: Resource) -> dict[str, int]:
    """Every sum over pods."""
    metrics = {(p.namespace, p.name): p for p in (node.metric.pods if node.metric else ())}
    totals = dict.fromkeys(("hp_used", "hp_request", "hp_max", "prod_request"), 0)
    active = [p for p in node.pods if p.running]
    for pod in active:
        metric = metrics.pop((pod.namespace, pod.name), None)
        used = used_by(metric.usage, resource) if metric else None
        request, name = pod.requests.get(resource, 0), effective_class(pod)
        if name in ("koord-prod", ""):
            totals["prod_request"] += request
        request += pod.mid_requests.get(resource, 0)
        if name in LOW:
            continue
        pinned = pod.qos is QosClass.LSE and resource is Resource.CPU
        totals["hp_used"] += request if used is None or pinned else used
        totals["hp_request"] += request
        totals["hp_max"] += max(request, used or 0)
    for metric in metrics.values():
        if metric.priority.value not in LOW:
            totals["hp_used"] += metric.usage.get(resource, 0)
            totals["hp_max"] += metric.usage.get(resource, 0)
    return totals


def used_by(usage: Mapping[Resource, int], resource: Resource) -> int | None:
    """A measured amount; None = not measured. A thing that runs has some memory, so 0 bytes are no measurement, nor is
    a CPU of 0 beside them."""
    amount = usage.get(resource)
    return None if amount == 0 and usage.get(Resource.MEMORY) == 0 else amount


def machine_used(usage: Mapping[Resource, int], resource: Resource) -> int | None:
    """A machine that reports uses some of both."""
    return usage.get(resource) or None


def system_of(node: PlainNode, resource: Resource) -> int | None:
    """Outside of pods and host applications, by what is reported of it or of the whole node; None = nobody says."""
    metric = node.metric
    assert metric is not None
    machine, system = machine_used(metric.node_usage, resource), metric.system_usage.get(resource)
    if machine is None:
        return machine_used(metric.system_usage, resource)
    if system is not None:
        return system
    reported = [p.usage for p in metric.pods] + [h.usage for h in metric.host_applications]
    return max(machine - sum(usage.get(resource, 0) for usage in reported), 0)


def believable(node: PlainNode, resource: Resource) -> bool:
    """Whether the report says nothing beyond 1.2 times what the node has, neither of use nor of prod's unused part."""
    metric = node.metric
    assert metric is not None
    totals = [metric.node_usage, metric.system_usage, metric.prod_reclaimable]
    parts = [p.usage for p in metric.pods] + [h.usage for h in metric.host_applications]
    amounts = [usage.get(resource, 0) for usage in (*totals, *parts)]
    amounts.append(sum(usage.get(resource, 0) for usage in parts))
    return not node.capacity or all(amount <= 1.2 * node.capacity for amount in amounts)


def degraded(node: PlainNode, strategy: ColocationStrategy, now: float) -> bool:
    """Whether the resources are withdrawn."""
    if not strategy.enable or node.metric is None or node.metric.update_seconds is None:
        return True
    if node.metric.update_seconds > now + 120:
        return True
    return now > node.metric.update_seconds + strategy.degrade_minutes * 60


def reserved(node: PlainNode) -> int:
    return max(node.annotated, node.capacity - node.allocatable, 0)


def hosts(node: PlainNode, resource: Resource, below: tuple[str, ...]) -> int:
    """Usage of host applications whose class is none of `below`."""
    metric = node.metric
    return (
        sum(h.usage.get(resource, 0) for h in metric.host_applications if h.priority.value not in below)
        if metric
        else 0
    )


def batch(node: PlainNode, strategy: ColocationStrategy, resource: Resource, now: float) -> int | None:
    """Published batch amount; None = withdrawn."""
    if degraded(node, strategy, now):
        return None
    assert node.metric is not None
    cpu = resource is Resource.CPU
    policy = strategy.cpu_policy if cpu else strategy.memory_policy
    margin = percent_of(node.capacity, 100 - (strategy.cpu_reclaim_percent if cpu else strategy.memory_reclaim_percent))
    outside = system_of(node, resource)
    if not believable(node, resource) or (outside is None and policy != "request"):
        return None
    system = max((outside or 0) + hosts(node, resource, LOW), reserved(node))
    total = sums(node, resource)
    amount = {
        "usage": node.capacity - margin - system - total["hp_used"],
        "request": node.capacity - margin - reserved(node) - total["hp_request"],
        "maxUsageRequest": node.capacity - margin - system - total["hp_max"],
    }[policy]
    amount = max(amount, 0)
    cap = strategy.batch_cpu_percent if cpu else strategy.batch_memory_percent
    if cap is not None:
        amount = min(amount, percent_of(node.capacity, cap))
    if cpu and node.ratio > 1:
        amount = math.ceil(int(amount * 1000 * node.ratio) / 1000)
    return max(amount - node.third_batch, 0)


def mid(node: PlainNode, strategy: ColocationStrategy, resource: Resource, now: float) -> int | None:
    """Published mid amount; None = withdrawn."""
    if degraded(node, strategy, now):
        return None
    assert node.metric is not None
    cpu = resource is Resource.CPU
    if not believable(node, resource):
        return None
    cap = percent_of(node.capacity, strategy.mid_cpu_percent if cpu else strategy.mid_memory_percent)
    if strategy.mid_mode == "static":
        fixed = strategy.mid_static_cpu_percent if cpu else strategy.mid_static_memory_percent
        return max(min(percent_of(node.capacity, fixed), cap) - node.third_mid, 0)
    outside = system_of(node, resource)
    if outside is None and strategy.mid_unallocated_percent:
        return None
    system = (outside or 0) + hosts(node, resource, (*LOW, "koord-mid"))
    unallocated = max(node.capacity - max(system, reserved(node)) - sums(node, resource)["prod_request"], 0)
    usage = machine_used(node.metric.node_usage, resource)
    unused = 0 if usage is None else max(node.capacity - usage, 0)
    lent = max(min(node.metric.prod_reclaimable.get(resource, 0), unused), 0)
    amount = min(lent + percent_of(unallocated, strategy.mid_unallocated_percent), cap)
    return max(amount - node.third_mid, 0)
