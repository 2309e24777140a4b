"""Reclaimable capacity of nodes: Koordinator's batch and mid formulas over all nodes at once, every term kept. Pure.

`node_columns` sums pods into one resource's terms, `batch` and `mid` turn them into `Reclaimable` messages. Source:
koord-manager, `slo-controller/noderesource/plugins/{batchresource,midresource}`; a percentage of capacity is multiplied
in floating point and cut to an integer, as there. High-priority (HP) pods: the defaulted class is not batch or free.

One difference: under `maxUsageRequest` upstream leaves HP pods without a metric out on the node level (its NUMA level
counts their request). Here their request counts on the node too: a pod that was not measured may still need something.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from cotenant.model.cluster import Inventory, Pod
from cotenant.model.qos import PriorityClass, QosClass, with_default
from cotenant.model.reasons import Reason
from cotenant.model.reclaimable import Band, Reclaimable
from cotenant.model.resource import Resource
from cotenant.settings.recommender import ReclaimableSettings

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

AMOUNT_CAP: Final = 2**52
"""Terms are clipped here, so that sums of absurd inputs stay exact integers in a double."""


@dataclass(frozen=True, slots=True)
class Usages:
    """What nodes and pods use at present, in one resource's unit, and when that was measured.

    pods: by (namespace, name), a missing key = no metric; nodes: whole node, by name; measured_seconds: Unix time of
    each node's newest sample; prod_reclaimable: by node, what prod requested and will not use (forecast), missing = 0.
    """

    pods: Mapping[tuple[str, str], float]
    nodes: Mapping[str, float]
    measured_seconds: Mapping[str, float]
    prod_reclaimable: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class NodeColumns:
    """Terms of n nodes for one resource, (n,) each, in its unit, whole and >= 0.

    system_used: outside of all pods; reserved: not offered to pods, by the kubelet or an annotation; hp_used,
    hp_request, hp_max: sums over HP pods of usage, request and the larger of both; prod_request: over prod pods and
    pods without a class; measured_seconds: Unix time of the newest sample, NaN = none.
    """

    nodes: tuple[str, ...]
    resource: Resource
    capacity: Integers
    reserved: Integers
    system_used: Integers
    node_used: Integers
    hp_used: Integers
    hp_request: Integers
    hp_max: Integers
    prod_request: Integers
    prod_reclaimable: Integers
    measured_seconds: Floats


def node_columns(inventory: Inventory, resource: Resource, now: Usages) -> NodeColumns:
    """Sum the inventory's pods on their nodes; gone pods with a metric ("dangling") count with their usage."""
    nodes = tuple(n.name for n in inventory.nodes)
    place = {name: index for index, name in enumerate(nodes)}
    sums = np.zeros((len(_SUMS), len(nodes)))
    for pod in inventory.pods:
        if pod.node in place:
            sums[:, place[pod.node]] += _pod_terms(pod, resource, now.pods.get((pod.namespace, pod.name)))
    used = _whole([now.nodes.get(name, 0.0) for name in nodes])
    capacity = _whole([n.capacity.get(resource, 0) for n in inventory.nodes])
    allocatable = _whole([n.allocatable.get(resource, n.capacity.get(resource, 0)) for n in inventory.nodes])
    terms = {name: _whole(row) for name, row in zip(_SUMS, sums, strict=True)}
    return NodeColumns(
        nodes=nodes,
        resource=resource,
        capacity=capacity,
        reserved=np.maximum(capacity - allocatable, 0),
        system_used=np.maximum(used - terms.pop("all_used"), 0),
        node_used=used,
        prod_reclaimable=_whole([now.prod_reclaimable.get(name, 0.0) for name in nodes]),
        measured_seconds=np.array([_moment(now, name) for name in nodes], dtype=np.float64),
        **terms,
    )


def batch(columns: NodeColumns, settings: ReclaimableSettings, now_seconds: float) -> list[Reclaimable]:
    """What batch pods may use on each node: capacity less margin, system and high-priority pods."""
    cpu = columns.resource is Resource.CPU
    policy = settings.cpu_policy if cpu else settings.memory_policy
    percent = settings.cpu_reclaim_percent if cpu else settings.memory_reclaim_percent
    cap_percent = settings.batch_cpu_percent if cpu else settings.batch_memory_percent
    terms = {"capacity": columns.capacity, "safety_margin": _share(columns.capacity, 100 - percent)}
    if policy == "request":
        terms |= {"reserved": columns.reserved, "hp_request": columns.hp_request}
    else:
        terms["system_used"] = np.maximum(columns.system_used, columns.reserved)
        terms |= {"hp_used": columns.hp_used} if policy == "usage" else {"hp_max": columns.hp_max}
    amount = columns.capacity - sum(list(terms.values())[1:], np.zeros_like(columns.capacity))
    if cap_percent is not None:
        terms["cap"] = _share(columns.capacity, cap_percent)
        amount = np.minimum(amount, terms["cap"])
    return _messages(columns, Band.BATCH, policy, terms, _Outcome(amount, _reasons(columns, settings, now_seconds)))


def mid(columns: NodeColumns, settings: ReclaimableSettings, now_seconds: float) -> list[Reclaimable]:
    """What mid pods may use on each node: what prod will not use for long, and a share of what nobody requested."""
    cpu = columns.resource is Resource.CPU
    percent = settings.mid_cpu_percent if cpu else settings.mid_memory_percent
    static_percent = settings.mid_static_cpu_percent if cpu else settings.mid_static_memory_percent
    terms = {"capacity": columns.capacity}
    if settings.mid_mode == "static":
        terms["static_share"] = amount = _share(columns.capacity, static_percent)
    else:
        taken = np.maximum(columns.system_used, columns.reserved)
        unallocated = np.maximum(columns.capacity - taken - columns.prod_request, 0)
        terms["prod_reclaimable"] = columns.prod_reclaimable
        terms["unused"] = np.maximum(columns.capacity - columns.node_used, 0)
        terms["unallocated_share"] = _share(unallocated, settings.mid_unallocated_percent)
        amount = np.minimum(terms["prod_reclaimable"], terms["unused"]) + terms["unallocated_share"]
    terms["cap"] = _share(columns.capacity, percent)
    outcome = _Outcome(np.minimum(amount, terms["cap"]), _reasons(columns, settings, now_seconds))
    return _messages(columns, Band.MID, settings.mid_mode, terms, outcome)


_SUMS: Final = ("all_used", "hp_used", "hp_request", "hp_max", "prod_request")


def _pod_terms(pod: Pod, resource: Resource, used: float | None) -> tuple[float, ...]:
    """One pod's share of each of `_SUMS`."""
    priority = with_default(pod.qos, pod.priority)
    measured = used is not None and np.isfinite(used)
    usage = max(float(used or 0.0), 0.0) if measured else 0.0
    if not pod.running:  # dangling: its usage is there, its request no longer holds anything
        return (usage, 0.0, 0.0, 0.0, 0.0) if priority.is_reclaimer else (usage, usage, 0.0, usage, 0.0)
    request = float(pod.requests.get(resource, 0))
    prod = request if priority in (PriorityClass.PROD, PriorityClass.NONE) else 0.0
    if priority.is_reclaimer:
        return (usage, 0.0, 0.0, 0.0, prod)
    exclusive = pod.qos is QosClass.LSE and resource is Resource.CPU  # its CPUs are never lent
    counted = request if exclusive or not measured else usage
    return (usage, counted, request, max(request, usage), prod)


@dataclass(frozen=True, slots=True, eq=False)
class _Outcome:
    """Amounts before the floor of 0, and why a node has none."""

    amounts: Integers
    reasons: list[Reason]


def _reasons(columns: NodeColumns, settings: ReclaimableSettings, now_seconds: float) -> list[Reason]:
    age = now_seconds - columns.measured_seconds
    expired = age > settings.degrade_minutes * 60
    return [
        Reason.METRIC_MISSING if np.isnan(a) else Reason.METRIC_EXPIRED if late else Reason.OK
        for a, late in zip(age, expired, strict=True)
    ]


def _messages(
    columns: NodeColumns, band: Band, policy: str, terms: Mapping[str, Integers], outcome: _Outcome
) -> list[Reclaimable]:
    """One message a node; a degraded one reclaims nothing."""
    return [
        Reclaimable(
            node=node,
            band=band,
            resource=columns.resource,
            amount=max(int(outcome.amounts[i]), 0) if outcome.reasons[i] is Reason.OK else 0,
            policy=policy,
            terms={name: int(column[i]) for name, column in terms.items()},
            reason=outcome.reasons[i],
        )
        for i, node in enumerate(columns.nodes)
    ]


def _moment(now: Usages, node: str) -> float:
    """When a node was measured; NaN when it was not, or its usage is no number."""
    return now.measured_seconds.get(node, np.nan) if np.isfinite(now.nodes.get(node, np.nan)) else np.nan


def _share(capacity: Integers, percent: int) -> Integers:
    """Percentage of an amount, cut to an integer."""
    return (capacity * (percent / 100.0)).astype(np.int64)


def _whole(amounts: npt.ArrayLike) -> Integers:
    """Amounts rounded up to integers, clipped to 0..AMOUNT_CAP; NaN counts as 0, infinity as AMOUNT_CAP."""
    known = np.nan_to_num(np.asarray(amounts, dtype=np.float64), nan=0.0, posinf=AMOUNT_CAP, neginf=0.0)
    return np.ceil(np.clip(known, 0, AMOUNT_CAP)).astype(np.int64)
