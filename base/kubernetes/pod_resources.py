"""The resources of a pod: requested by its spec, allocated by its kubelet, applied to its containers. Pure.

During a resize in place three amounts differ: the spec requests, the kubelet allocates, the runtime applies. Until they
agree, the pod counts on its node with the largest of them; if the kubelet called the resize infeasible, the spec is
ignored. This is kube-scheduler's rule; all code that counts pods on nodes uses `counted_requests`, so that no capacity
is promised twice and no pod is counted with amounts that it never got.

`pod_wire.pod_resources` decodes a Pod of the API into `PodResources`. Amounts are integers by resource name: cpu in
millicores, every other resource in its own unit. Source: `PodRequests` and `PodLimits` of Kubernetes 1.35
(component-helpers/resource), with `UseStatusResources`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from cotenant.base.kubernetes.pod_request import container_total, larger, pod_total, sum_amounts

NamedAmounts = Mapping[str, int]
_NONE: Final[NamedAmounts] = MappingProxyType({})
_HUGE_PAGES: Final = "hugepages-"


class ContainerKind(StrEnum):
    """The role of a container in the pod's life."""

    MAIN = "main"
    SIDECAR = "sidecar"
    """An init container that stays (restartPolicy Always)."""
    INIT = "init"
    EPHEMERAL = "ephemeral"


class ResizeState(StrEnum):
    """The progress of an in-place resize, according to the pod's conditions."""

    NONE = "none"
    DEFERRED = "deferred"
    """The node has no capacity for it now; the kubelet tries again."""
    INFEASIBLE = "infeasible"
    """The kubelet will not carry it out."""
    IN_PROGRESS = "in progress"


@dataclass(frozen=True, slots=True)
class ContainerResources:
    """The requests and limits of one container: by its spec, and as its kubelet reports them.

    `requests` and `limits` are the spec's, where a missing request is the limit, as the API server sets it by default.
    `actual_requests` and `actual_limits` are applied (status.containerStatuses[].resources). `allocated` are the
    requests that the kubelet has admitted. None means that the kubelet has not reported it, not that it is zero.
    """

    name: str
    _: KW_ONLY
    kind: ContainerKind = ContainerKind.MAIN
    requests: NamedAmounts = field(default_factory=dict)
    limits: NamedAmounts = field(default_factory=dict)
    actual_requests: NamedAmounts | None = None
    actual_limits: NamedAmounts | None = None
    allocated: NamedAmounts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLevelResources:
    """The pod-level amounts of a pod (spec.resources, status.resources), its `overhead` and its resize.

    The own_* amounts replace the containers' total of the resources that they name; None means that the pod has none,
    or that its kubelet reports none. `overhead` is that of its RuntimeClass.
    """

    own_requests: NamedAmounts | None = None
    own_limits: NamedAmounts | None = None
    own_actual_requests: NamedAmounts | None = None
    own_actual_limits: NamedAmounts | None = None
    own_allocated: NamedAmounts | None = None
    overhead: NamedAmounts = field(default_factory=dict)
    resize: ResizeState = ResizeState.NONE


@dataclass(frozen=True, slots=True)
class PodResources(PodLevelResources):
    """The amounts of one pod: of its containers, and those at pod level.

    `in_progress` is true while the kubelet applies a resize, even if a later resize is pending.
    """

    containers: tuple[ContainerResources, ...] = ()
    in_progress: bool = False

    def of_kind(self, *kinds: ContainerKind) -> Iterator[ContainerResources]:
        """Yield the containers of these kinds, in the spec's order."""
        return (container for container in self.containers if container.kind in kinds)


def counted_requests(pod: PodResources) -> dict[str, int]:
    """Return the requests with which the pod counts on its node, by resource name.

    A main container or sidecar counts with the largest of its spec, allocated and actual requests (without the spec if
    the resize is infeasible), an init container with its spec. `container_total` and `pod_total` add them up.
    """
    infeasible = pod.resize is ResizeState.INFEASIBLE
    below = container_total(
        (_effective_requests(c, infeasible) for c in pod.of_kind(ContainerKind.MAIN)),
        (
            (_effective_requests(c, infeasible), c.kind is ContainerKind.SIDECAR)
            for c in pod.of_kind(ContainerKind.SIDECAR, ContainerKind.INIT)
        ),
    )
    # The pod's own requests; one that only its limits name is the containers' total, or else the limit
    limits = {n: a for n, a in (pod.own_limits or _NONE).items() if n not in below}
    own: NamedAmounts = {**limits, **(pod.own_requests or _NONE)}
    if pod.own_actual_requests is not None:
        own = _restrict_to_spec(own, _largest(infeasible, own, pod.own_actual_requests, pod.own_allocated or _NONE))
    return pod_total(below, _pod_level_amounts(own), pod.overhead)


class PresentAmounts(NamedTuple):
    """A container's requests and limits as its node counts them; `in_force`: the requests without a deferred resize."""

    requests: NamedAmounts
    limits: NamedAmounts
    in_force: NamedAmounts


def present_amounts(pod: PodResources) -> dict[str, PresentAmounts]:
    """Return the current requests and limits of each container by its name, as its node counts them.

    They are counted as by `counted_requests` and `counted_limits`. A resource is left out if the spec does not name it,
    or if only the spec names it although a resize of the pod is infeasible (for `in_force`, also if it is deferred).
    """
    infeasible = pod.resize is ResizeState.INFEASIBLE
    is_pending = infeasible or pod.resize is ResizeState.DEFERRED
    return {
        c.name: PresentAmounts(
            _restrict(_effective_requests(c, infeasible), c.requests),
            _restrict(_effective_limits(c, infeasible), c.limits),
            _restrict(_effective_requests(c, is_pending), c.requests),
        )
        for c in pod.containers
    }


def _restrict(amounts: NamedAmounts, names: NamedAmounts) -> NamedAmounts:
    return {name: amount for name, amount in amounts.items() if name in names}


def is_resizing(pod: PodResources, name: str) -> bool:
    """Return whether the kubelet is resizing the pod's amount of a resource.

    True while the kubelet applies a resize, while its admitted amounts are not applied yet, and from a change of the
    spec until the kubelet's response. A resize that the kubelet has deferred or refused does not count.
    """
    if pod.in_progress or pod.resize is ResizeState.IN_PROGRESS:
        return True
    parts = [(c.requests, c.limits, c.allocated, c.actual_requests, c.actual_limits) for c in pod.containers]
    own = (pod.own_requests, pod.own_limits, pod.own_allocated, pod.own_actual_requests, pod.own_actual_limits)
    return any(
        _differ(name, allocated, actual_requests)
        or (pod.resize is ResizeState.NONE and (_differ(name, requests, allocated) or _differ(name, limits, actual)))
        for requests, limits, allocated, actual_requests, actual in (*parts, own)
    )


def _differ(name: str, *amounts: NamedAmounts | None) -> bool:
    """Return whether the known amounts of a resource differ; None is ignored."""
    return len({resources[name] for resources in amounts if resources is not None and name in resources}) > 1


def counted_limits(pod: PodResources) -> dict[str, int]:
    """Return the pod's limits by resource name, plus overhead; no upper bound if a container has no limit.

    A main container or sidecar counts with the larger of spec and actual, without the spec if a resize is infeasible.
    """
    infeasible = pod.resize is ResizeState.INFEASIBLE
    below = container_total(
        (_effective_limits(c, infeasible) for c in pod.of_kind(ContainerKind.MAIN)),
        (
            (_effective_limits(c, infeasible), c.kind is ContainerKind.SIDECAR)
            for c in pod.of_kind(ContainerKind.SIDECAR, ContainerKind.INIT)
        ),
    )
    own: NamedAmounts = pod.own_limits or _NONE
    if pod.own_actual_limits is not None:
        own = _restrict_to_spec(own, _largest(infeasible, own, pod.own_actual_limits))
    total = pod_total(below, _pod_level_amounts(own))
    return sum_amounts((total, {name: amount for name, amount in pod.overhead.items() if total.get(name)}))


def _effective_requests(container: ContainerResources, infeasible: bool) -> NamedAmounts:
    """Return the requests that count: the spec's for an init container, and while no actual amounts are reported."""
    if container.kind is ContainerKind.INIT or container.actual_requests is None:
        return container.requests
    return _largest(infeasible, container.requests, container.actual_requests, container.allocated or _NONE)


def _effective_limits(container: ContainerResources, infeasible: bool) -> NamedAmounts:
    if container.kind is ContainerKind.INIT or container.actual_limits is None:
        return container.limits
    return _largest(infeasible, container.limits, container.actual_limits)


def _largest(infeasible: bool, spec: NamedAmounts, *reported: NamedAmounts) -> NamedAmounts:
    total: NamedAmounts = _NONE if infeasible else spec
    for amounts in reported:
        total = larger(total, amounts)
    return total


def _restrict_to_spec(spec: NamedAmounts, amounts: NamedAmounts) -> NamedAmounts:
    return {name: amounts.get(name, 0) for name in spec}


def _pod_level_amounts(own: NamedAmounts) -> NamedAmounts:
    return {n: a for n, a in own.items() if n in ("cpu", "memory") or n.startswith(_HUGE_PAGES)}
