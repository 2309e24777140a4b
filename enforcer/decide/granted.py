"""The limits and requests that the kubelet has granted and that apply now, by its own report. Pure.

A resize in place may be refused, deferred or in progress: then the spec asks for amounts that the kubelet has not
granted, and a value computed from it would carry out the resize against the kubelet's decision. So the report counts
(status.containerStatuses[].resources). The spec counts only if the kubelet reports nothing, no resize is pending or in
progress, and no other amounts were allocated. None = not known: the strategy leaves the present value. 0 = no amount.

A pod's amounts are the kubelet's (`ResourceConfigForPod`, `getCPULimit` of Kubernetes 1.35): its own if it names the
resource, else max(containers + native sidecars, largest init container + sidecars before it); a container without a
limit has the pod's own limit. Ephemeral containers have no amounts and do not count. Overhead is added to a limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from cotenant.base.kubernetes.pod_request import container_total
from cotenant.base.kubernetes.pod_resources import ContainerKind, ResizeState
from cotenant.enforcer.contract import ContainerSpec, PodSpec

CPU: Final = "cpu"
MEMORY: Final = "memory"


def container_limit(pod: PodSpec, container: ContainerSpec, name: str) -> int | None:
    """Return a container's limit in millicores or bytes, else the pod's own; 0 = no limit, None = not known."""
    limits = _granted_limits(pod, container)
    if limits is None:
        return None
    own = limits.get(name, 0)
    return own if own > 0 else own_limit(pod, name)


def container_request(pod: PodSpec, container: ContainerSpec, name: str) -> int | None:
    """Return a container's request in millicores or bytes; None = not known."""
    requests_asked = container.amounts.requests
    requests = _granted_amounts(pod, container, requests_asked, container.actual_requests)
    return None if requests is None else max(requests.get(name, 0), 0)


def pod_limit(pod: PodSpec, name: str) -> int | None:
    """Return the limit of the pod's cgroup, overhead included; 0 = no limit, None = not known."""
    own = own_limit(pod, name)
    if own is None or own > 0:
        return None if own is None else own + pod.overhead.get(name, 0)
    limits = {c.name: _granted_limits(pod, c) for c in counted_containers(pod)}
    amounts = {key: limit.get(name, 0) for key, limit in limits.items() if limit is not None}
    if len(amounts) < len(limits):
        return None
    # The kubelet limits the total if each has a limit; init containers count with the sidecars before them.
    sidecars = 0
    for container in pod.init_containers:
        beside = sidecars + amounts[container.name]
        if beside <= 0:
            return 0
        if container.kind is not ContainerKind.INIT:
            sidecars = beside
    if any(amounts[container.name] <= 0 for container in pod.containers):
        return 0
    return total(pod, lambda container: amounts[container.name]) + pod.overhead.get(name, 0)


def pod_request(pod: PodSpec, name: str) -> int | None:
    """Return the pod's request without overhead: spec.resources, else the total of its containers; None = not known."""
    own = (pod.own_requests or {}).get(name, 0)
    if own > 0:
        return own if pod.resize is ResizeState.NONE else None
    amounts = {c.name: container_request(pod, c, name) for c in counted_containers(pod)}
    if None in amounts.values():
        return None
    return total(pod, lambda container: amounts[container.name] or 0)


def own_limit(pod: PodSpec, name: str) -> int | None:
    """Return the limit that the pod itself declares (spec.resources), 0 if none; None if not known during a resize."""
    limit = (pod.own_limits or {}).get(name, 0)
    return limit if limit <= 0 or pod.resize is ResizeState.NONE else None


def counted_containers(pod: PodSpec) -> Iterable[ContainerSpec]:
    """Return the containers from which a pod's amounts are computed: all but the ephemeral ones."""
    return (*pod.containers, *pod.init_containers)


def total(pod: PodSpec, amount: Callable[[ContainerSpec], int]) -> int:
    """Return the most that the pod needs at one time: init containers run before the others, sidecars beside them."""
    if not pod.init_containers:
        return sum(map(amount, pod.containers))
    inits = (({"": amount(c)}, c.kind is not ContainerKind.INIT) for c in pod.init_containers)
    return container_total(({"": amount(c)} for c in pod.containers), inits).get("", 0)


def _granted_limits(pod: PodSpec, container: ContainerSpec) -> Mapping[str, int] | None:
    return _granted_amounts(pod, container, container.limits, container.actual_limits)


def _granted_amounts(
    pod: PodSpec, container: ContainerSpec, requests_asked: Mapping[str, int], actual: Mapping[str, int] | None
) -> Mapping[str, int] | None:
    """Return the amounts in force, or those of the spec if nothing shows that the kubelet has admitted others."""
    if actual is not None:
        asks = {CPU, MEMORY} & {*container.limits, *container.amounts.requests}
        is_empty = not container.actual_limits and not container.actual_requests
        # An empty report of a container that asks is none at all, or one from before it asked.
        return None if asks and is_empty else actual
    admitted, requests = container.allocated or {}, container.amounts.requests
    same = all(requests.get(name, amount) == amount for name, amount in admitted.items())
    return requests_asked if same and pod.resize is ResizeState.NONE else None
