"""Cgroup settings of a best-effort container from its batch resources, and of any pod from its assigned CPUs. Pure.

The reconciling loop (`strategies.be_totals`), the NRI plugin and the CRI proxy all use this decision, so that a
container starts with the values that the loop would set. Koordinator's "batch resource" and "cpuset" hooks:

    cpu.shares  = clamp(request_millicores * 1024 // 1000, 2, 262144)
    cpu.quota   = none if limit <= 0 else max(ceil(limit_millicores * 100 us / r), 1000 us)
                  r = the node's CPU normalization ratio where above 1
    memory      = none if limit <= 0 else limit
    pod         = the same of max(containers + native sidecars, largest init container + sidecars before it) and the
                  overhead of its RuntimeClass, used in the pod's cgroup; no limit if one of them has none

It applies only to pods labelled BE that request batch resources. Amounts are the containers' own batch requests and
limits, as the pod was admitted. A runtime sees only the annotation `extended-resource-spec`; it can be changed while
the pod runs, so if the containers' own amounts are known, the annotation may only reduce them: a smaller request or
limit, or a limit where there was none. An annotation that cannot be read changes nothing and is reported. No quota is
set while policy cfsQuota limits best effort as a whole: on cgroup v1 a pod's quota cannot exceed its parent's, which
changes every second. A pod with CPUs by annotation gets no quota on itself and its containers, because on whole CPUs it
could only throttle.

A pod with another Kubernetes class than BestEffort has limits that the kubelet set, and may have containers without
batch resources: no value of such a pod is removed, and a container without batch amounts is left as it is.

Koordinator counts neither native sidecars nor init containers, so they must fit into what the other containers
requested. Ephemeral containers have no amounts: they get none, and share the pod's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from cotenant.base.allocation.cpu_topology import format_cpus
from cotenant.base.colocation.reclaim_policies import Band
from cotenant.base.errors import QuantityError
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.kubernetes.pod_request import effective_requests
from cotenant.base.kubernetes.protocol import EXTENDED_RESOURCES, EXTENDED_SPEC_ANNOTATION, SKIP_HOOKS_LABEL
from cotenant.base.kubernetes.qos import QosClass
from cotenant.base.kubernetes.quantity import LARGEST, parse_bytes
from cotenant.base.resource import Resource
from cotenant.enforcer.contract import NO_LIMIT, ContainerSpec, KubeQos, PodSpec
from cotenant.enforcer.decide.granted import counted_containers, total
from cotenant.enforcer.decide.knobs import MICROSECONDS_PER_MILLICORE
from cotenant.enforcer.model.node_policy import NodePolicy
from cotenant.enforcer.observe.cpusets import overclaims, pod_assignment

SHARES_MIN: Final = 2
SHARES_MAX: Final = 262_144
QUOTA_MIN_MICROSECONDS: Final = 1_000
"""Smallest quota that the kernel accepts."""
QUOTA_MAX_MICROSECONDS: Final = 2**43
"""About half of the largest quota that the kernel accepts; more CPUs than any machine has."""
BATCH_CPU: Final = EXTENDED_RESOURCES[Band.BATCH, Resource.CPU]
BATCH_MEMORY: Final = EXTENDED_RESOURCES[Band.BATCH, Resource.MEMORY]


@dataclass(frozen=True, slots=True)
class ContainerSettings:
    """The settings for a container or a pod; None = leave unchanged, NO_LIMIT = remove the limit.

    `cpu_quota` is in microseconds per 100 ms, `memory_limit` in bytes, `cpuset_cpus` a list such as "0-2,5". `broken`
    says why the pod's annotation cannot be read (else ""): the containers' own batch requests and limits then take its
    place where they are known.
    """

    cpu_shares: int | None = None
    cpu_quota: int | None = None
    memory_limit: int | None = None
    cpuset_cpus: str | None = None
    broken: str = ""

    @property
    def empty(self) -> bool:
        """True if there is nothing to change."""
        return (self.cpu_shares, self.cpu_quota, self.memory_limit, self.cpuset_cpus) == (None, None, None, None)


LEAVE: Final = ContainerSettings()


@dataclass(frozen=True, slots=True)
class BatchAmounts:
    """The batch resources of one container, in millicores and bytes; 0 = not set."""

    request_millicores: int = 0
    limit_millicores: int = 0
    limit_bytes: int = 0


class _Sides(msgspec.Struct, frozen=True):
    requests: dict[str, int | float | str] | None = None
    limits: dict[str, int | float | str] | None = None


class _Extended(msgspec.Struct, frozen=True):
    containers: dict[str, _Sides] | None = None


@dataclass(frozen=True, slots=True)
class PodDecision:
    """The decided settings of a pod's own cgroup, and of its containers of all kinds by name."""

    pod: ContainerSettings = LEAVE
    containers: Mapping[str, ContainerSettings] = field(default_factory=dict)


def decision(pod: PodSpec, policy: NodePolicy, cpu_ratio: float = 1.0) -> PodDecision:
    """Return the settings for a pod and its containers; `cpu_ratio` is the node's CPU normalization ratio."""
    if has_skip_hooks_label(pod):
        return PodDecision()
    inside = pod.every_container
    broken = ""
    try:
        amounts = batch_amounts(pod) if pod.qos_class is QosClass.BE else None
    except (QuantityError, *UNDECODABLE) as bad:
        broken = f"{pod.key}: annotation {EXTENDED_SPEC_ANNOTATION} cannot be read: {bad}"
        if not pod.resources_known:
            nothing = ContainerSettings(broken=broken)
            return PodDecision(nothing, {c.name: nothing for c in inside})
        amounts = _container_batch_amounts(pod)
    pod_resources = _without_kubelet_resets(_pod_total_resources(pod, amounts, policy, cpu_ratio), pod)
    # A runtime's message has no requests: only where they are known can a pod claim more CPUs than it requests.
    has_requests = bool(pod.own_requests) or any("cpu" in (*c.requests, *c.limits) for c in counted_containers(pod))
    cpus = "" if has_requests and overclaims(pod) else format_cpus(pod_assignment(pod).cpus)
    containers = {}
    for c in inside:
        own = _container_resources(c, amounts, pod_resources, policy, cpu_ratio)
        containers[c.name] = _with_cpus(_without_kubelet_resets(own, pod), cpus)
    return PodDecision(replace(_with_cpus(pod_resources, cpus, of_pod=True), broken=broken), containers)


def container_resources(
    pod: PodSpec, container: ContainerSpec, policy: NodePolicy, cpu_ratio: float = 1.0
) -> ContainerSettings:
    """Return the settings for a container; one that the pod does not list is treated as an ephemeral container."""
    listed = any(c.name == container.name for c in pod.every_container)
    complete_pod = pod if listed else replace(pod, ephemeral_containers=(*pod.ephemeral_containers, container))
    return decision(complete_pod, policy, cpu_ratio).containers.get(container.name, LEAVE)


def pod_resources(pod: PodSpec, policy: NodePolicy, cpu_ratio: float = 1.0) -> ContainerSettings:
    """Return the settings for the pod's own cgroup: what its containers need at the same time; never a cpuset."""
    return decision(pod, policy, cpu_ratio).pod


def has_skip_hooks_label(pod: PodSpec) -> bool:
    """Return whether the pod has the label by which hooks leave it unchanged."""
    return pod.labels.get(SKIP_HOOKS_LABEL) == "true"


def shares_of(millicores: int) -> int:
    """Return the cgroup v1 CPU shares of a request; the smallest shares for a request of 0 or less."""
    return min(max(millicores * 1024 // 1000, SHARES_MIN), SHARES_MAX)


def quota_of(millicores: int, cpu_ratio: float = 1.0) -> int:
    """Return the CPU quota of a limit in microseconds per 100 ms; NO_LIMIT for a limit of 0 or less."""
    quota = millicores * MICROSECONDS_PER_MILLICORE
    if quota <= 0:
        return NO_LIMIT
    real = math.ceil(quota / cpu_ratio) if cpu_ratio > 1 else quota
    return min(max(real, QUOTA_MIN_MICROSECONDS), QUOTA_MAX_MICROSECONDS)


def quota_suspended(policy: NodePolicy) -> bool:
    """Return whether a quota limits best effort as a whole, so that its pods must not have quotas."""
    return policy.thresholds.enable and policy.thresholds.cpu_suppress_policy == "cfsQuota"


def batch_amounts(pod: PodSpec) -> Mapping[str, BatchAmounts] | None:
    """Return batch resources by container, None if there are none; raise DecodeError or QuantityError if invalid."""
    text = pod.annotations.get(EXTENDED_SPEC_ANNOTATION)
    if text is None:
        return _container_batch_amounts(pod)
    sides = msgspec.json.decode(text, type=_Extended).containers or {}
    names = [c.name for c in counted_containers(pod) if c.name in sides or c in pod.containers]
    annotated = {name: _parse_batch_amounts(pod, name, sides.get(name, _Sides())) for name in names}
    if not pod.resources_known:
        return annotated
    admitted = {c.name: _amounts(c.requests, c.limits) for c in counted_containers(pod)}
    for name, amounts in annotated.items():
        own = admitted[name]
        admitted[name] = BatchAmounts(
            min(own.request_millicores, amounts.request_millicores),
            _tighter(own.limit_millicores, amounts.limit_millicores),
            _tighter(own.limit_bytes, amounts.limit_bytes),
        )
    return admitted


def _container_batch_amounts(pod: PodSpec) -> Mapping[str, BatchAmounts] | None:
    """Return the batch amounts of the containers themselves; None if there are none."""
    amounts = {c.name: _amounts(c.requests, c.limits) for c in counted_containers(pod)}
    return amounts if any(a != BatchAmounts() for a in amounts.values()) else None


def _tighter(first: int, second: int) -> int:
    """Return the smaller limit; 0 or less means no limit."""
    return min(first, second) if first > 0 and second > 0 else max(first, second)


def _parse_batch_amounts(pod: PodSpec, name: str, sides: _Sides) -> BatchAmounts:
    """Return the amounts of an annotation; whole numbers, as the webhook writes them, need no quantity parser."""
    requests, limits = (
        {
            key: value
            if isinstance(value, int) and 0 <= value <= LARGEST
            else parse_bytes(value, f"{pod.key}/{name} {key}")
            for key, value in (side or {}).items()
        }
        for side in (sides.requests, sides.limits)
    )
    return _amounts(requests, limits)


def _amounts(requests: Mapping[str, int], limits: Mapping[str, int]) -> BatchAmounts:
    """Return the amounts, with the limit in place of a missing request, as Kubernetes fills it in."""
    counted = effective_requests(requests, limits)
    return BatchAmounts(counted.get(BATCH_CPU, 0), limits.get(BATCH_CPU, 0), limits.get(BATCH_MEMORY, 0))


def _container_resources(
    container: ContainerSpec,
    amounts: Mapping[str, BatchAmounts] | None,
    pod_resources: ContainerSettings,
    policy: NodePolicy,
    cpu_ratio: float,
) -> ContainerSettings:
    """Return a container's settings: by the annotation's amounts, else by its own batch requests and limits.

    A container without either is left unchanged. The quota of one that the pod's total does not include is at most the
    pod's, as cgroup v1 demands.
    """
    if amounts is None:
        return LEAVE
    if container.name in amounts:
        return _set(amounts[container.name], policy, cpu_ratio)
    own = _amounts(container.requests, container.limits)
    if own == BatchAmounts():
        return LEAVE
    mine = _set(own, policy, cpu_ratio)
    quotas = [quota for quota in (mine.cpu_quota, pod_resources.cpu_quota) if quota is not None]
    quota = min(quotas) if len(quotas) == 2 and min(quotas) > 0 else mine.cpu_quota
    return ContainerSettings(mine.cpu_shares, quota, mine.memory_limit)


def _pod_total_resources(
    pod: PodSpec, amounts: Mapping[str, BatchAmounts] | None, policy: NodePolicy, cpu_ratio: float
) -> ContainerSettings:
    if not amounts:
        return LEAVE
    unlimited_cpu = any(a.limit_millicores <= 0 for a in amounts.values())
    unlimited_memory = any(a.limit_bytes <= 0 for a in amounts.values())
    nothing = BatchAmounts()
    cpu, memory = (  # the pod's overhead, whether or not admission has translated it
        sum(pod.overhead.get(name, 0) for name in (resource.value, EXTENDED_RESOURCES[Band.BATCH, resource]))
        for resource in (Resource.CPU, Resource.MEMORY)
    )
    pod_total = BatchAmounts(
        total(pod, lambda c: max(amounts.get(c.name, nothing).request_millicores, 0)) + cpu,
        0 if unlimited_cpu else total(pod, lambda c: amounts.get(c.name, nothing).limit_millicores) + cpu,
        0 if unlimited_memory else total(pod, lambda c: amounts.get(c.name, nothing).limit_bytes) + memory,
    )
    return _set(pod_total, policy, cpu_ratio)


def _without_kubelet_resets(own: ContainerSettings, pod: PodSpec) -> ContainerSettings:
    """Return the settings without those that would remove a value that the kubelet may have set."""
    if pod.kube_qos is KubeQos.BEST_EFFORT:
        return own
    return replace(
        own,
        cpu_shares=None if own.cpu_shares == SHARES_MIN else own.cpu_shares,
        cpu_quota=None if own.cpu_quota == NO_LIMIT else own.cpu_quota,
        memory_limit=None if own.memory_limit == NO_LIMIT else own.memory_limit,
    )


def _set(amounts: BatchAmounts, policy: NodePolicy, cpu_ratio: float) -> ContainerSettings:
    return ContainerSettings(
        cpu_shares=shares_of(amounts.request_millicores),
        cpu_quota=NO_LIMIT if quota_suspended(policy) else quota_of(amounts.limit_millicores, cpu_ratio),
        memory_limit=amounts.limit_bytes if amounts.limit_bytes > 0 else NO_LIMIT,
    )


def _with_cpus(own: ContainerSettings, cpus: str, of_pod: bool = False) -> ContainerSettings:
    """Return the settings with the CPUs assigned to the pod; unchanged if `cpus` is ""."""
    if not cpus:
        return own
    return ContainerSettings(own.cpu_shares, NO_LIMIT, own.memory_limit, None if of_pod else cpus, own.broken)
