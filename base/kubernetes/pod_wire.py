"""Decode a Pod's resources from its structs (`models.pod`), or from plain JSON. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

import msgspec

from cotenant.base.errors import UsageError
from cotenant.base.kubernetes.models.pod import (
    ContainerStatusWire,
    ContainerWire,
    PodCondition,
    PodSpecWire,
    PodStatusWire,
    ResourcesWire,
)
from cotenant.base.kubernetes.pod_request import named_amounts, parse_quantities
from cotenant.base.kubernetes.pod_resources import (
    ContainerKind,
    ContainerResources,
    PodResources,
    PresentAmounts,
    ResizeState,
    counted_limits,
    counted_requests,
    present_amounts,
)

Read = Callable[[Mapping[str, Any] | None, str], dict[str, int]]
"""Turns quantities into amounts; its second argument names the object in errors."""
_Wire = TypeVar("_Wire", bound=msgspec.Struct)
RESIZE_PENDING: Final = "PodResizePending"
"""Condition of a Pod whose resize the kubelet has put off (reason Deferred) or refused (Infeasible)."""
RESIZE_IN_PROGRESS: Final = "PodResizeInProgress"


def pod_resources(
    spec: PodSpecWire, status: PodStatusWire | None, what: str, read: Read = named_amounts
) -> PodResources:
    """Return the resources of a Pod; `status` is None for a pod template, which no kubelet has seen.

    `read` parses the quantities; by default an unreadable cpu or memory raises QuantityError, which names `what`, and
    other unreadable resources are left out.
    """
    pod_status = status or PodStatusWire()
    statuses = {s.name: s for s in pod_status.each_status()}
    own, reported = spec.resources, pod_status.resources
    return PodResources(
        tuple(_container(c, kind, statuses.get(c.name), what, read) for c, kind in _containers(spec)),
        own_requests=read(own.requests, what) if own else None,
        own_limits=read(own.limits, what) if own else None,
        own_actual_requests=read(reported.requests, what) if reported else None,
        own_actual_limits=read(reported.limits, what) if reported else None,
        own_allocated=None if pod_status.allocated_resources is None else read(pod_status.allocated_resources, what),
        overhead=read(spec.overhead, what),
        resize=resize_state(pod_status.conditions or ()),
        in_progress=any(condition.type == RESIZE_IN_PROGRESS for condition in pod_status.conditions or ()),
    )


def resize_state(conditions: Iterable[PodCondition]) -> ResizeState:
    """Return the progress of an in-place resize; a pending one counts even if an earlier one is still in progress."""
    by_type = {condition.type: condition for condition in conditions}
    pending = by_type.get(RESIZE_PENDING)
    if pending is not None:
        return ResizeState.INFEASIBLE if pending.reason == "Infeasible" else ResizeState.DEFERRED
    return ResizeState.IN_PROGRESS if RESIZE_IN_PROGRESS in by_type else ResizeState.NONE


def container_statuses(pods: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield the status of every container of Pods as plain JSON: the main ones, then init containers and sidecars."""
    for pod in pods:
        status = pod.get("status") or {}
        for name in ("containerStatuses", "initContainerStatuses"):
            yield from status.get(name) or ()


def requests_of_pod(pod: Mapping[str, Any], what: str = "pod") -> dict[str, int]:
    """Return the requests with which a Pod, as plain JSON, counts on its node (`counted_requests`).

    Raise QuantityError for an unreadable cpu or memory, UsageError for a malformed Pod; both messages name `what`.
    Other unreadable resources are left out.
    """
    return counted_requests(_resources_of_pod(pod, what))


def present_amounts_of_pod(pod: Mapping[str, Any], what: str = "pod") -> dict[str, PresentAmounts]:
    """Return the current requests and limits of each container of a Pod (plain JSON), by the container's name."""
    return present_amounts(_resources_of_pod(pod, what))


def _resources_of_pod(pod: Mapping[str, Any], what: str) -> PodResources:
    spec = _convert_pod_part(pod.get("spec"), PodSpecWire, what)
    return pod_resources(spec, _convert_pod_part(pod.get("status"), PodStatusWire, what), what)


def requests_of(spec: Mapping[str, Any], what: str = "pod") -> dict[str, int]:
    """Return the requests of a pod spec (plain JSON) by resource name; for a Pod with a status use `requests_of_pod`.

    Raise QuantityError for an unreadable quantity, UsageError for a malformed spec; both messages name `what`.
    """
    return counted_requests(pod_resources(_convert_pod_part(spec, PodSpecWire, what), None, what, parse_amounts))


def limits_of(spec: Mapping[str, Any], what: str = "pod") -> dict[str, int]:
    """Return the limits of a pod spec, as JSON, with overhead; raise QuantityError or UsageError that names `what`."""
    return counted_limits(pod_resources(_convert_pod_part(spec, PodSpecWire, what), None, what, parse_amounts))


def parse_amounts(quantities: Mapping[str, Any] | None, what: str) -> dict[str, int]:
    """Parse a map of quantities to amounts; raise QuantityError, which names `what`, if one is unreadable."""
    return parse_quantities(quantities or {}, what)


def _convert_pod_part(part: Any, wire: type[_Wire], what: str) -> _Wire:
    try:
        return msgspec.convert(part if part is not None else {}, wire)
    except msgspec.ValidationError as error:
        raise UsageError(f"{what}: {error}", fix="Replace the pod by a copy from the API server.") from error


def _containers(spec: PodSpecWire) -> Iterator[tuple[ContainerWire, ContainerKind]]:
    yield from ((container, ContainerKind.MAIN) for container in spec.containers or ())
    for container in spec.init_containers or ():
        yield container, ContainerKind.SIDECAR if container.restart_policy == "Always" else ContainerKind.INIT
    yield from ((container, ContainerKind.EPHEMERAL) for container in spec.ephemeral_containers or ())


def _container(
    spec: ContainerWire, kind: ContainerKind, status: ContainerStatusWire | None, what: str, read: Read
) -> ContainerResources:
    resources, name = spec.resources or ResourcesWire(), f"{what}, container {spec.name}"
    reported = status.resources if status else None
    allocated = status.allocated_resources if status else None
    limits = read(resources.limits, name)
    return ContainerResources(
        spec.name,
        kind=kind,
        requests=limits | read(resources.requests, name),
        limits=limits,
        actual_requests=read(reported.requests, name) if reported else None,
        actual_limits=read(reported.limits, name) if reported else None,
        allocated=None if allocated is None else read(allocated, name),
    )
