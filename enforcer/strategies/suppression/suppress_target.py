"""How much CPU best effort may use now: Koordinator's suppression target, with every term. Pure.

    target = capacity * thresholdPercent / 100
             - use of pods that are not best effort - use of host applications that are not best effort
             - max(use of the system, reserved)
    result = max(target, capacity * minPercent / 100)          only where minPercent is set

In whole millicores, each term rounded down. Not best effort: a label other than BE and a Kubernetes QoS class other
than BestEffort. The system's usage is the machine's without that of pods and host applications; a cgroup of an unknown
pod is therefore part of it, and never counts as best effort. Reserved: the larger of the annotation `reservation` and
capacity - allocatable, before amplification. Without minPercent the result may be negative; each policy has its own
minimum.

Before a predicted peak, the amount by which the node's usage is expected to rise soon is already kept free:

    rise   = max(0, highest p95 of the half hours that the next `ahead_seconds` touch - p95 of the present half hour)
    online = max(online now, min(online now + rise, that highest p95))

The forecast is of the whole node, best effort included; so its level says little about the online part, but its rise
does, and a rise of best effort itself only makes this more careful. Such a target is never above the reactive one,
because `online` is never below its present value. Without a valid forecast it equals the reactive one.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from cotenant.base.allocation.cpu_annotations import reserved_cpus
from cotenant.base.errors import QuantityError
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.kubernetes.amplification import machine_allocatable
from cotenant.base.kubernetes.protocol import NODE_RESERVATION_ANNOTATION
from cotenant.base.kubernetes.qos import QosClass
from cotenant.base.kubernetes.quantity import parse_millicores
from cotenant.base.resource import MILLICORES_PER_CORE
from cotenant.enforcer.contract import GroupReading, KubeQos, NodeForecast, NodeReading, Observation, PodSpec
from cotenant.enforcer.model.node_policy import Thresholds

CountT = TypeVar("CountT", int, Any)
_RESERVED_CPUS_ONLY: Final = "ReservedCPUsOnly"


@dataclass(frozen=True, slots=True)
class NodeCpuDemand:
    """The node's CPU usage by kind of user, in millicores; no amount is negative."""

    capacity: int
    latency_sensitive: int
    """Pods and host applications that are not best effort."""
    best_effort: int
    system: int
    reserved: int

    @property
    def online(self) -> int:
        """The millicores that best effort must leave to pods, host applications and the system."""
        return self.latency_sensitive + max(self.system, self.reserved)


class _ReservationPolicy(msgspec.Struct, frozen=True, rename="camel"):
    resources: dict[str, str | int | float] | None = None
    apply_policy: str = ""


def headroom(capacity: CountT, online: CountT, percent: int) -> CountT:
    """Return the millicores that the threshold leaves to best effort, of one node or an array; may be negative."""
    spare: CountT = capacity * percent // 100 - online
    return spare


def suppressible(pod: PodSpec) -> bool:
    """Return whether the pod's usage counts as best effort's in the formula of the suppression target."""
    return pod.qos_class is QosClass.BE or pod.kube_qos is KubeQos.BEST_EFFORT


def demand(observation: Observation) -> NodeCpuDemand | None:
    """Return the CPU usage by kind of user; None if the machine's usage is not known."""
    if observation.node.cpu.millicores is None:
        return None
    apps = [(app.qos_class is QosClass.BE, app.group) for app in observation.host_applications]
    parts = [*((suppressible(pod.spec), pod.group) for pod in observation.pods), *apps]
    best_effort = _sum(group for yields, group in parts if yields)
    others = _sum(group for yields, group in parts if not yields)
    system = max(int(observation.node.cpu.millicores) - best_effort - others, 0)
    node = observation.node
    return NodeCpuDemand(node.cpu_millicores, others, best_effort, system, reserved_millicores(node))


def with_least(millicores: int, use: NodeCpuDemand, thresholds: Thresholds) -> int:
    """Return `millicores`, but at least the share that the policy guarantees to best effort."""
    percent = thresholds.cpu_suppress_min_percent
    return millicores if percent is None else max(millicores, use.capacity * percent // 100)


def reserved_millicores(node: NodeReading) -> int:
    """Return the CPU that the node keeps for other processes than pods, in millicores.

    These are the CPUs that the annotation `reservation` names, else its amount of cpu unless applyPolicy is
    ReservedCPUsOnly; an unreadable annotation counts as none. If the kubelet keeps more, the kubelet's amount applies.
    """
    capacity = node.capacity.get("cpu", 0)
    kubelet = capacity - machine_allocatable(node.allocatable, node.annotations).get("cpu", capacity)
    annotated = MILLICORES_PER_CORE * len(reserved_cpus(node.annotations, node.name))
    with contextlib.suppress(QuantityError, *UNDECODABLE):
        text = node.annotations.get(NODE_RESERVATION_ANNOTATION, "{}")
        reservation = None if annotated else msgspec.json.decode(text, type=_ReservationPolicy)
        if reservation is not None and reservation.apply_policy != _RESERVED_CPUS_ONLY:
            annotated = parse_millicores((reservation.resources or {}).get("cpu", 0), node.name)
    return max(kubelet, annotated, 0)


def _sum(groups: Iterable[GroupReading | None]) -> int:
    """Return the CPU usage of all groups, each rounded down to millicores; an unknown usage counts as 0."""
    return sum(max(math.floor(group.cpu.millicores or 0), 0) for group in groups if group is not None)


def online_ahead(
    online_millicores: int, forecast: NodeForecast | None, wall_seconds: float, ahead_seconds: float
) -> int:
    """Return the usage, in millicores, for which best effort must soon leave CPU; at least the present usage."""
    if forecast is None or forecast.step_seconds <= 0 or wall_seconds >= forecast.valid_until_seconds:
        return online_millicores
    first = _slot(forecast, wall_seconds)
    last = _slot(forecast, wall_seconds + ahead_seconds)
    if first < 0 or first >= len(forecast.q95_cpu_millicores):
        return online_millicores
    peak = max(forecast.q95_cpu_millicores[first : last + 1])
    rise = peak - forecast.q95_cpu_millicores[first]
    return max(online_millicores, min(online_millicores + rise, peak))


def _slot(forecast: NodeForecast, at_seconds: float) -> int:
    return int((at_seconds - forecast.start_seconds) // forecast.step_seconds)
