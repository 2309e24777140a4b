"""EDGE: Kubernetes' objects as the agent reads them: decoded from the API's JSON into `enforcer.contract`. No I/O.

    Mirror(client, "/api/v1/pods", PodWire, pod_of, fieldSelector="spec.nodeName=n1")

What is not named here never becomes a Python object. A cpu or memory quantity that cannot be read is a QuantityError
that names the object; a NodeSLO that cannot be read is a UsageError that names the field.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from cotenant.core.adapters.kube.objects import Meta, Quantities, Resources
from cotenant.core.model.errors import UsageError
from cotenant.core.model.kubernetes.pod_request import named_amounts
from cotenant.core.model.kubernetes.protocol import SUB_PRIORITY_LABEL, own_texts
from cotenant.core.model.kubernetes.qos import priority_of, qos_of
from enforcer.contract import ContainerSpec, KubeQos, NodeForecast, PodSpec

Texts = dict[str, str]
MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"
"""On the API server's image of a pod that the kubelet made from a file."""
STATIC_SOURCE: Final = ("kubernetes.io/config.source", "file")
_ID: Final = re.compile(r"[0-9a-fA-F]{1,128}")
_UID: Final = re.compile(r"[A-Za-z0-9-]{1,64}")
ENDED: Final = frozenset({"Succeeded", "Failed"})


class _ObjectMetaWire(Meta, rename="camel"):
    uid: str = ""
    deletion_timestamp: str | None = None


class _ContainerWire(msgspec.Struct):
    name: str
    resources: Resources = msgspec.field(default_factory=Resources)


class _PodSpecWire(msgspec.Struct, rename="camel"):
    containers: list[_ContainerWire] = []
    init_containers: list[_ContainerWire] | None = None
    node_name: str = ""
    priority: int | None = None
    host_network: bool = False
    resource_claims: list[dict[str, Any]] | None = None


class _ContainerStateWire(msgspec.Struct):
    running: dict[str, Any] | None = None


class _ContainerStatus(msgspec.Struct, rename={"id": "containerID"}):
    name: str
    id: str = ""
    state: _ContainerStateWire = msgspec.field(default_factory=_ContainerStateWire)


class _Ip(msgspec.Struct, gc=False):
    ip: str = ""


class _PodStatusWire(msgspec.Struct, rename="camel"):
    phase: str = ""
    qos_class: str = ""
    pod_ips: list[_Ip] | None = msgspec.field(default=None, name="podIPs")
    container_statuses: list[_ContainerStatus] | None = None
    init_container_statuses: list[_ContainerStatus] | None = None


class NodePodWire(msgspec.Struct):
    """A Pod on the wire."""

    metadata: _ObjectMetaWire
    spec: _PodSpecWire = msgspec.field(default_factory=_PodSpecWire)
    status: _PodStatusWire = msgspec.field(default_factory=_PodStatusWire)


class _NodeStatusWire(msgspec.Struct):
    capacity: Quantities | None = None
    allocatable: Quantities | None = None


class AgentNodeWire(msgspec.Struct):
    """A Node on the wire."""

    metadata: _ObjectMetaWire
    status: _NodeStatusWire = msgspec.field(default_factory=_NodeStatusWire)


@dataclass(frozen=True, slots=True)
class NodeDescription:
    """What is kept of the Node: amounts by wire name as of ContainerSpec.requests; own annotations, all labels."""

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
    """What is kept of a Node."""
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
    """What is kept of a UsageForecast."""
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
    """What is kept of a Pod; UsageError for a uid that is none, because it becomes a part of a path."""
    meta, spec, status = pod.metadata, pod.spec, pod.status
    if not _UID.fullmatch(meta.uid):
        raise UsageError(f"pod {meta.namespace}/{meta.name}: {meta.uid[:80]!r} is no uid")
    labels, annotations = meta.labels or {}, meta.annotations or {}
    owner = next((o for o in meta.owner_references or () if o.controller), None)
    what = f"pod {meta.namespace}/{meta.name}"
    containers = tuple(_containers(spec.containers, status.container_statuses, what))
    inits = tuple(_containers(spec.init_containers or (), status.init_container_statuses, what))
    return PodSpec(
        namespace=meta.namespace,
        name=meta.name,
        uid=_static_uid(annotations) or meta.uid,
        kube_qos=kube_qos(status.qos_class, (*containers, *inits)),
        qos_class=qos_of(labels),
        priority_class=priority_of(labels, spec.priority),
        priority=spec.priority or 0,
        sub_priority=_whole(labels.get(SUB_PRIORITY_LABEL)),
        phase=status.phase or "Pending",
        deleting=meta.deletion_timestamp is not None,
        static=MIRROR_ANNOTATION in annotations or annotations.get(STATIC_SOURCE[0]) == STATIC_SOURCE[1],
        created_seconds=_seconds(meta.creation_timestamp) if meta.creation_timestamp else 0.0,
        labels=own_texts(meta.labels),
        annotations=own_texts(meta.annotations),
        containers=containers,
        init_containers=inits,
        owner=(owner.kind, owner.name) if owner else ("", ""),
        addresses=tuple(one.ip for one in status.pod_ips or ()),
        host_network=spec.host_network,
        claims=bool(spec.resource_claims),
    )


def kube_qos(reported: str, containers: Iterable[ContainerSpec]) -> KubeQos:
    """status.qosClass, else by Kubernetes' rule over cpu and memory of all containers."""
    if reported in set(KubeQos):
        return KubeQos(reported)
    has_resources, guaranteed = False, True
    for one in containers:
        for name in ("cpu", "memory"):
            request, limit = one.requests.get(name, 0), one.limits.get(name, 0)
            has_resources |= bool(request or limit)
            guaranteed &= bool(limit) and request in (0, limit)
    if not has_resources:
        return KubeQos.BEST_EFFORT
    return KubeQos.GUARANTEED if guaranteed else KubeQos.BURSTABLE


def container_id(text: str) -> str:
    """Without the runtime's prefix ("containerd://"); empty for what is no id, because it becomes a part of a path."""
    bare_id = text.rpartition("://")[2]
    return bare_id if _ID.fullmatch(bare_id) else ""


def _containers(
    specs: Iterable[_ContainerWire], statuses: Iterable[_ContainerStatus] | None, what: str
) -> Iterable[ContainerSpec]:
    status_by_name = {status.name: status for status in statuses or ()}
    for spec in specs:
        status = status_by_name.get(spec.name)
        yield ContainerSpec(
            name=spec.name,
            id=container_id(status.id) if status else "",
            requests=named_amounts(spec.resources.requests, f"{what}, container {spec.name}"),
            limits=named_amounts(spec.resources.limits, f"{what}, container {spec.name}"),
            running=bool(status and status.state.running is not None),
        )


def _static_uid(annotations: Texts) -> str:
    """A static pod's cgroup is named by the hash that the kubelet gave it, not by its image's uid."""
    text = annotations.get("kubernetes.io/config.hash", "") if MIRROR_ANNOTATION in annotations else ""
    return text if _UID.fullmatch(text) else ""


def _whole(text: str | None) -> int | None:
    try:
        return int(text) if text is not None and len(text) < 12 else None
    except ValueError:
        return None


def _seconds(moment: datetime) -> float:
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
