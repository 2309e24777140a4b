"""EDGE: Kubernetes' objects as the agent reads them: decoded from the API's JSON into `enforcer.contract`. No I/O.

    Mirror(client, "/api/v1/pods", PodWire, pod_of, fieldSelector="spec.nodeName=n1")

What is not named here never becomes a Python object. A cpu or memory quantity that cannot be read is a QuantityError
that names the object; a NodeSLO that cannot be read is a UsageError that names the field.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from cotenant.base.errors import UsageError
from cotenant.base.kube.objects import Meta
from cotenant.base.kubernetes.pod_qos import qos_class_of
from cotenant.base.kubernetes.pod_request import container_total, named_amounts
from cotenant.base.kubernetes.pod_resources import ContainerKind, ContainerResources, PodResources, is_resizing
from cotenant.base.kubernetes.pod_wire import ContainerStatusWire, PodSpecWire, PodStatusWire, Quantities, pod_resources
from cotenant.base.kubernetes.protocol import SUB_PRIORITY_LABEL, own_texts
from cotenant.base.kubernetes.qos import priority_of, qos_of
from cotenant.base.resource import Resource
from cotenant.enforcer.contract import ContainerSpec, KubeQos, NodeForecast, PodSpec

Texts = dict[str, str]
OwnAmounts = tuple[Mapping[str, int], Mapping[str, int]]
_EARLY: Final = (ContainerKind.SIDECAR, ContainerKind.INIT)
"""Kinds that the spec has among its init containers."""
MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"
"""On the API server's image of a pod that the kubelet made from a file."""
STATIC_SOURCE: Final = ("kubernetes.io/config.source", "file")
_ID: Final = re.compile(r"[0-9a-fA-F]{1,128}")
_UID: Final = re.compile(r"[A-Za-z0-9-]{1,64}")
ENDED: Final = frozenset({"Succeeded", "Failed"})


class _ObjectMetaWire(Meta, rename="camel"):
    uid: str = ""
    deletion_timestamp: str | None = None


class _SpecWire(PodSpecWire, rename="camel"):
    node_name: str = ""
    priority: int | None = None
    host_network: bool = False
    resource_claims: list[dict[str, Any]] | None = None


class _ContainerStateWire(msgspec.Struct):
    running: dict[str, Any] | None = None


class _ContainerStatus(ContainerStatusWire, rename="camel"):
    id: str = msgspec.field(default="", name="containerID")
    state: _ContainerStateWire = msgspec.field(default_factory=_ContainerStateWire)


class _Ip(msgspec.Struct, gc=False):
    ip: str = ""


class _StatusWire(PodStatusWire, rename="camel"):
    phase: str = ""
    qos_class: str = ""
    pod_ips: list[_Ip] | None = msgspec.field(default=None, name="podIPs")
    container_statuses: list[_ContainerStatus] | None = None
    init_container_statuses: list[_ContainerStatus] | None = None
    ephemeral_container_statuses: list[_ContainerStatus] | None = None


class NodePodWire(msgspec.Struct):
    """A Pod on the wire."""

    metadata: _ObjectMetaWire
    spec: _SpecWire = msgspec.field(default_factory=_SpecWire)
    status: _StatusWire = msgspec.field(default_factory=_StatusWire)


class _NodeStatusWire(msgspec.Struct):
    capacity: Quantities | None = None
    allocatable: Quantities | None = None


class AgentNodeWire(msgspec.Struct):
    """A Node on the wire."""

    metadata: _ObjectMetaWire
    status: _NodeStatusWire = msgspec.field(default_factory=_NodeStatusWire)


@dataclass(frozen=True, slots=True)
class NodeDescription:
    """The kept fields of the Node: amounts by wire name as in ContainerSpec.requests; own annotations, all labels."""

    name: str
    uid: str = ""
    allocatable: Mapping[str, int] = field(default_factory=dict)
    capacity: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


class SloWire(msgspec.Struct):
    """A NodeSLO on the wire."""

    spec: dict[str, Any] = {}


class _Curve(msgspec.Struct, rename="camel"):
    q95_millicores: list[int] = []
    q95_bytes: list[int] = []


class _ForecastSpec(msgspec.Struct, rename="camel"):
    start: datetime
    valid_until: datetime
    step_seconds: int = 1800
    cpu: _Curve = msgspec.field(default_factory=_Curve)
    memory: _Curve = msgspec.field(default_factory=_Curve)


class UsageForecastWire(msgspec.Struct):
    """A UsageForecast on the wire."""

    spec: _ForecastSpec


def node_of(node: AgentNodeWire) -> NodeDescription:
    """Convert a Node to the kept form."""
    meta, what = node.metadata, f"node {node.metadata.name}"
    return NodeDescription(
        name=meta.name,
        uid=meta.uid,
        allocatable=named_amounts(node.status.allocatable, what),
        capacity=named_amounts(node.status.capacity, what),
        labels=dict(meta.labels or {}),
        annotations=own_texts(meta.annotations),
    )


def forecast_of(wire: UsageForecastWire) -> NodeForecast:
    """Convert a UsageForecast to the kept form; raise UsageError if stepSeconds is below 1."""
    spec = wire.spec
    if spec.step_seconds < 1:
        raise UsageError(f"UsageForecast: stepSeconds is {spec.step_seconds}, it must be at least 1")
    return NodeForecast(
        start_seconds=_seconds(spec.start),
        valid_until_seconds=_seconds(spec.valid_until),
        step_seconds=spec.step_seconds,
        q95_cpu_millicores=tuple(spec.cpu.q95_millicores),
        q95_memory_bytes=tuple(spec.memory.q95_bytes),
    )


def pod_of(pod: NodePodWire) -> PodSpec:
    """Convert a Pod to the kept form.

    Raises UsageError for an invalid uid, because it becomes a part of a path.
    """
    meta, spec, status = pod.metadata, pod.spec, pod.status
    if not _UID.fullmatch(meta.uid):
        raise UsageError(f"pod {meta.namespace}/{meta.name}: {meta.uid[:80]!r} is no uid")
    labels, annotations = meta.labels or {}, meta.annotations or {}
    owner = next((o for o in meta.owner_references or () if o.controller), None)
    what = f"pod {meta.namespace}/{meta.name}"
    resources = pod_resources(spec, status, what)
    containers = tuple(_containers(resources, status))
    return PodSpec(
        namespace=meta.namespace,
        name=meta.name,
        uid=_static_uid(annotations) or meta.uid,
        kube_qos=kube_qos(status.qos_class, containers, _pod_own_amounts(resources)),
        qos_class=qos_of(labels),
        priority_class=priority_of(labels, spec.priority),
        priority=spec.priority or 0,
        sub_priority=_parse_optional_integer(labels.get(SUB_PRIORITY_LABEL)),
        phase=status.phase or "Pending",
        deleting=meta.deletion_timestamp is not None,
        static=MIRROR_ANNOTATION in annotations or annotations.get(STATIC_SOURCE[0]) == STATIC_SOURCE[1],
        created_seconds=_seconds(meta.creation_timestamp) if meta.creation_timestamp else 0.0,
        labels=own_texts(meta.labels),
        annotations=own_texts(meta.annotations),
        containers=tuple(c for c in containers if c.kind is ContainerKind.MAIN),
        init_containers=tuple(c for c in containers if c.kind in _EARLY),
        ephemeral_containers=tuple(c for c in containers if c.kind is ContainerKind.EPHEMERAL),
        own_requests=resources.own_requests,
        own_limits=resources.own_limits,
        own_actual_requests=resources.own_actual_requests,
        own_actual_limits=resources.own_actual_limits,
        own_allocated=resources.own_allocated,
        overhead=resources.overhead,
        resize=resources.resize,
        resizing=is_resizing(resources, Resource.CPU.value),
        owner=(owner.kind, owner.name) if owner else ("", ""),
        addresses=tuple(address.ip for address in status.pod_ips or ()),
        host_network=spec.host_network,
        claims=bool(spec.resource_claims),
    )


def kube_qos(reported: str, containers: Iterable[ContainerSpec], own: OwnAmounts | None = None) -> KubeQos:
    """status.qosClass, else by Kubernetes' rule over cpu and memory of all containers but ephemeral ones.

    own: requests and limits of the pod itself, which then decide alone; None = it has none.
    """
    if reported in set(KubeQos):
        return KubeQos(reported)
    counted = [c for c in containers if c.kind is not ContainerKind.EPHEMERAL]
    if own is None:
        return KubeQos(qos_class_of([(_core(c.requests), _core(c.limits)) for c in counted]).value)
    requests, limits = _core(own[0]), _core(own[1])
    if limits:  # then the API server completes the pod's own requests by the sum of its containers'
        early = [(_core(c.requests), c.kind is ContainerKind.SIDECAR) for c in counted if c.kind in _EARLY]
        total = container_total((_core(c.requests) for c in counted if c.kind not in _EARLY), early)
        requests = {**total, **requests}
    return KubeQos(qos_class_of((), (requests, limits)).value)


def _core(amounts: Mapping[str, int]) -> dict[Resource, int]:
    return {resource: amounts[resource.value] for resource in Resource if resource.value in amounts}


def container_id(text: str) -> str:
    """Return the id without the runtime's prefix ("containerd://").

    "" for an invalid id, because it becomes a part of a path.
    """
    bare_id = text.rpartition("://")[2]
    return bare_id if _ID.fullmatch(bare_id) else ""


def _containers(resources: PodResources, status: _StatusWire) -> Iterator[ContainerSpec]:
    reported = (
        *(status.container_statuses or ()),
        *(status.init_container_statuses or ()),
        *(status.ephemeral_container_statuses or ()),
    )
    status_by_name = {container.name: container for container in reported}
    return (_container(amounts, status_by_name.get(amounts.name)) for amounts in resources.containers)


def _container(amounts: ContainerResources, status: _ContainerStatus | None) -> ContainerSpec:
    return ContainerSpec(
        name=amounts.name,
        id=container_id(status.id) if status else "",
        requests=amounts.requests,
        limits=amounts.limits,
        running=bool(status and status.state.running is not None),
        kind=amounts.kind,
        actual_requests=amounts.actual_requests,
        actual_limits=amounts.actual_limits,
        allocated=amounts.allocated,
    )


def _pod_own_amounts(resources: PodResources) -> OwnAmounts | None:
    if resources.own_requests is None and resources.own_limits is None:
        return None
    return resources.own_requests or {}, resources.own_limits or {}


def _static_uid(annotations: Texts) -> str:
    """A static pod's cgroup is named by the hash that the kubelet gave it, not by its image's uid."""
    text = annotations.get("kubernetes.io/config.hash", "") if MIRROR_ANNOTATION in annotations else ""
    return text if _UID.fullmatch(text) else ""


def _parse_optional_integer(text: str | None) -> int | None:
    try:
        return int(text) if text is not None and len(text) < 12 else None
    except ValueError:
        return None


def _seconds(moment: datetime) -> float:
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
