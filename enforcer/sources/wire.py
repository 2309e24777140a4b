"""EDGE: Kubernetes' objects as the agent reads them: decoded from the API's JSON into `enforcer.contract`. No I/O.

    Mirror(client, "/api/v1/pods", NodePodWire, pod_of, fieldSelector="spec.nodeName=n1")

An invalid cpu or memory quantity is a QuantityError that names the object; an invalid NodeSLO is a UsageError that
names the field. The kubelet's configuration and assignments are decoded here too.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC
from typing import Any, Final

import msgspec

from cotenant.base.errors import UsageError
from cotenant.base.json_documents.inherited import inherited_fields
from cotenant.base.kubernetes.models.own_kinds import UsageForecast
from cotenant.base.kubernetes.models.pod import NodePodWire
from cotenant.base.kubernetes.observed import node_of
from cotenant.base.kubernetes.pod_qos import qos_class_of
from cotenant.base.kubernetes.pod_request import container_total
from cotenant.base.kubernetes.pod_resources import (
    ContainerKind,
    ContainerResources,
    PodLevelResources,
    is_resizing,
)
from cotenant.base.kubernetes.pod_wire import pod_resources
from cotenant.base.kubernetes.protocol import MIRROR_ANNOTATION, SUB_PRIORITY_LABEL, own_texts
from cotenant.base.kubernetes.qos import priority_of, qos_of
from cotenant.base.resource import Resource
from cotenant.enforcer.contract import ContainerSpec, KubeQos, NodeForecast, PodSpec
from cotenant.enforcer.observe.layout import checked_container_id, checked_uid

__all__ = ["node_of"]
"""Exported here too, so that pods and Nodes are read through one module."""

OwnAmounts = tuple[Mapping[str, int], Mapping[str, int]]
_EARLY: Final = (ContainerKind.SIDECAR, ContainerKind.INIT)
"""Kinds that the spec has among its init containers."""
STATIC_SOURCE: Final = ("kubernetes.io/config.source", "file")


class SloWire(msgspec.Struct):
    """A NodeSLO as the API returns it."""

    spec: dict[str, Any] = {}


def forecast_of(wire: UsageForecast) -> NodeForecast:
    """Convert a UsageForecast; raise UsageError for a missing timestamp or a stepSeconds below 1."""
    spec = wire.spec
    start, valid_until = spec.start_seconds, spec.valid_until_seconds
    if start is None or valid_until is None:
        raise UsageError("UsageForecast: it has no start or no validUntil")
    if spec.step_seconds < 1:
        raise UsageError(f"UsageForecast: stepSeconds is {spec.step_seconds}, it must be at least 1")
    return NodeForecast(
        start_seconds=start,
        valid_until_seconds=valid_until,
        step_seconds=spec.step_seconds,
        q95_cpu_millicores=tuple(spec.cpu.high) if spec.cpu else (),
        q95_memory_bytes=tuple(spec.memory.high) if spec.memory else (),
    )


def pod_of(pod: NodePodWire) -> PodSpec:
    """Convert a Pod; raise UsageError for an invalid uid or container id, because they become parts of a path."""
    meta, spec, status = pod.metadata, pod.spec, pod.status
    labels, annotations = meta.labels or {}, meta.annotations or {}
    what = f"pod {meta.namespace}/{meta.name}"
    resources = pod_resources(spec, status, what)
    own: OwnAmounts | None = resources.own_requests or {}, resources.own_limits or {}
    if resources.own_requests is None and resources.own_limits is None:
        own = None
    listed = (status.container_statuses, status.init_container_statuses, status.ephemeral_container_statuses)
    status_by_name = {reported.name: reported for statuses in listed for reported in statuses or ()}
    container_specs = []
    for amounts in resources.containers:
        stated = status_by_name.get(amounts.name)
        running = bool(stated and stated.state.running is not None)
        id_ = checked_container_id(stated.id.rpartition("://")[2]) if stated and stated.id else ""
        container_specs.append(ContainerSpec(**inherited_fields(amounts, ContainerResources), id=id_, running=running))
    containers = tuple(container_specs)
    sub_priority, created = labels.get(SUB_PRIORITY_LABEL), meta.creation_timestamp
    rank = None
    with contextlib.suppress(ValueError):
        rank = int(sub_priority) if sub_priority is not None and len(sub_priority) < 12 else None
    # A static pod's cgroup is named by the hash that the kubelet gave it, not by its image's uid.
    text = annotations.get("kubernetes.io/config.hash", "") if MIRROR_ANNOTATION in annotations else ""
    return PodSpec(
        namespace=meta.namespace,
        name=meta.name,
        uid=checked_uid(text or meta.uid),
        kube_qos=kube_qos(status.qos_class, containers, own),
        qos_class=qos_of(labels),
        priority_class=priority_of(labels, spec.priority),
        priority=spec.priority or 0,
        sub_priority=rank,
        phase=status.phase or "Pending",
        deleting=meta.deletion_timestamp is not None,
        static=MIRROR_ANNOTATION in annotations or annotations.get(STATIC_SOURCE[0]) == STATIC_SOURCE[1],
        created_seconds=(created if created.tzinfo else created.replace(tzinfo=UTC)).timestamp() if created else 0.0,
        labels=own_texts(meta.labels),
        annotations=own_texts(meta.annotations),
        containers=tuple(c for c in containers if c.kind is ContainerKind.MAIN),
        init_containers=tuple(c for c in containers if c.kind in _EARLY),
        ephemeral_containers=tuple(c for c in containers if c.kind is ContainerKind.EPHEMERAL),
        **inherited_fields(resources, PodLevelResources),
        resizing=is_resizing(resources, Resource.CPU.value),
        owner=(owner.kind, owner.name) if (owner := meta.controller) else ("", ""),
        addresses=tuple(address.ip for address in status.pod_ips or ()),
        host_network=spec.host_network,
        claims=bool(spec.resource_claims),
    )


def kube_qos(reported: str, containers: Iterable[ContainerSpec], own: OwnAmounts | None = None) -> KubeQos:
    """Return status.qosClass, else the class by Kubernetes' rule over all containers except ephemeral ones.

    `own` (None if the pod sets none) decides instead; if it has limits, the containers' sum completes its requests.
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


# The kubelet's configuration: top-level scalars, read without a YAML parser, which would cost the agent as much memory
# as everything else here. The file is a wish: options of the kubelet, and files beside it, go before it.
_SCALAR: Final = re.compile(r"""^(\w+):[ \t]*(?:"([^"\n]*)"|'([^'\n]*)'|([^\s#"'{\[][^#\n]*?))?[ \t]*(?:#.*)?$""", re.M)
SIZE_CAP_BYTES: Final = 1 << 20
NOT_ASKED: Final = "the service was not queried yet"
"""The podresources client's `problem` before its first query."""


@dataclass(frozen=True, slots=True)
class KubeletConfig:
    """The fields of the kubelet's configuration file that the agent needs; empty = not set."""

    cgroup_driver: str = ""
    cgroup_root: str = ""
    static_cpus: bool = False
    """True if the file names the CPU manager's policy static; otherwise the policy is not known."""
    reserved_cpus: str = ""
    """reservedSystemCPUs, a list such as "0-1"."""
    quotas_off: bool = False
    """True if cpuCFSQuota is false, so that the kubelet sets no CPU quotas."""

    @property
    def base(self) -> tuple[str, ...]:
        """The cgroupRoot as path parts."""
        return tuple(part for part in self.cgroup_root.split("/") if part)


@dataclass(frozen=True, slots=True)
class Assignments:
    """An answer of the kubelet's podresources service: its pods ("namespace/name"), exclusive and allocatable CPUs."""

    pods: frozenset[str] = frozenset()
    """All pods that the kubelet runs."""
    exclusive: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """CPUs that the static policy assigned to the containers of a pod, without pods that have none."""
    allocatable: frozenset[int] = frozenset()
    """CPUs that the kubelet can assign exclusively; none unless its CPU manager's policy is static."""
    static_cpus: bool | None = None
    """Whether the kubelet's CPU manager assigns CPUs; None = not known. A kubelet that has just started and names no
    pod yet offers no CPUs either, whatever its policy."""


def kubelet_config(text: str) -> KubeletConfig:
    """Decode a KubeletConfiguration; an unknown driver counts as not set."""
    scalars = {m[1]: (m[2] or m[3] or m[4] or "").strip() for m in _SCALAR.finditer(text[:SIZE_CAP_BYTES])}
    driver = scalars.get("cgroupDriver", "")
    return KubeletConfig(
        cgroup_driver=driver if driver in ("cgroupfs", "systemd") else "",
        cgroup_root=scalars.get("cgroupRoot", ""),
        static_cpus=scalars.get("cpuManagerPolicy", "") == "static",
        reserved_cpus=scalars.get("reservedSystemCPUs", ""),
        quotas_off=scalars.get("cpuCFSQuota", "") == "false",
    )
