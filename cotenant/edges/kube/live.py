"""EDGE: the cluster as the API server shows it now, in the words of `cotenant.model.cluster`.

The profiler merges it with what history still knows of gone pods. Only the fields below are decoded. What may not be
read is a note, not a failure: a scan without rights on HPAs is still a scan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from cotenant.edges.kube.client import KubeClient
from cotenant.model.cluster import Autoscaler, Container, Node, Pod
from cotenant.model.errors import ClusterForbidden, QuantityError
from cotenant.model.identity import WorkloadRef
from cotenant.model.qos import priority_of, qos_of
from cotenant.model.quantity import parse_amount
from cotenant.model.resource import Resource

ItemT = TypeVar("ItemT")
Amounts = dict[Resource, int]
Quantities = dict[str, str | int | float]


class _Owner(msgspec.Struct):
    kind: str
    name: str
    controller: bool = False


class _Meta(msgspec.Struct, rename="camel"):
    name: str
    namespace: str = ""
    labels: dict[str, str] = {}
    owner_references: list[_Owner] = []
    creation_timestamp: datetime | None = None


class _Resources(msgspec.Struct):
    requests: Quantities = {}
    limits: Quantities = {}


class _Container(msgspec.Struct, rename="camel"):
    name: str
    resources: _Resources = msgspec.field(default_factory=_Resources)
    restart_policy: str = ""


class _PodSpec(msgspec.Struct, rename="camel"):
    containers: list[_Container] = []
    init_containers: list[_Container] = []
    node_name: str = ""
    priority: int | None = None
    overhead: Quantities = {}
    resources: _Resources = msgspec.field(default_factory=_Resources)


class _PodStatus(msgspec.Struct, rename="camel"):
    phase: str = ""
    start_time: datetime | None = None


class PodObject(msgspec.Struct):
    """The fields of a Pod that are read."""

    metadata: _Meta
    spec: _PodSpec
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)


class _NodeStatus(msgspec.Struct):
    capacity: Quantities = {}
    allocatable: Quantities = {}


class NodeObject(msgspec.Struct):
    """The fields of a Node that are read."""

    metadata: _Meta
    status: _NodeStatus = msgspec.field(default_factory=_NodeStatus)


class OwnedObject(msgspec.Struct):
    """A ReplicaSet or Job: only who owns it."""

    metadata: _Meta


class _Target(msgspec.Struct, rename="camel"):
    type: str = ""
    average_utilization: int | None = None


class _MetricResource(msgspec.Struct):
    name: str
    target: _Target
    container: str = ""


class _Metric(msgspec.Struct, rename="camel"):
    type: str
    resource: _MetricResource | None = None
    container_resource: _MetricResource | None = None


class _ScaleTarget(msgspec.Struct):
    kind: str
    name: str


class _AutoscalerSpec(msgspec.Struct, rename="camel"):
    scale_target_ref: _ScaleTarget
    max_replicas: int
    min_replicas: int = 1
    metrics: list[_Metric] = []


class AutoscalerObject(msgspec.Struct):
    """The fields of an autoscaling/v2 HorizontalPodAutoscaler that are read."""

    metadata: _Meta
    spec: _AutoscalerSpec


@dataclass(frozen=True, slots=True)
class LiveCluster:
    """What runs now. `containers` holds each pod's containers by (namespace, pod); `notes` what could not be read."""

    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    containers: Mapping[tuple[str, str], tuple[Container, ...]] = field(default_factory=dict)
    autoscalers: Mapping[WorkloadRef, Autoscaler] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def observe(client: KubeClient) -> LiveCluster:
    """List nodes, pods, their owners and autoscalers; ClusterForbidden only when pods may not be listed."""
    notes: list[str] = []
    pods = client.list("/api/v1/pods", PodObject)
    replica_sets = _listed(client, "/apis/apps/v1/replicasets", OwnedObject, notes)
    jobs = _listed(client, "/apis/batch/v1/jobs", OwnedObject, notes)
    owners = _owners({"ReplicaSet": replica_sets, "Job": jobs})
    scalers = _listed(client, "/apis/autoscaling/v2/horizontalpodautoscalers", AutoscalerObject, notes)
    nodes = _listed(client, "/api/v1/nodes", NodeObject, notes)
    alive = [pod for pod in pods if pod.spec.node_name and pod.status.phase not in ("Succeeded", "Failed")]
    return LiveCluster(
        nodes=tuple(_each(node_of, nodes, notes)),
        pods=tuple(_each(lambda pod: pod_of(pod, owners), alive, notes)),
        containers=dict(_each(lambda pod: (_key(pod), containers_of(pod)), alive, notes)),
        autoscalers=dict(map(autoscaler_of, scalers)),
        notes=tuple(dict.fromkeys(notes)),
    )


def node_of(node: NodeObject) -> Node:
    """A Node with capacity and allocatable; QuantityError names the node."""
    what = f"node {node.metadata.name}"
    capacity, allocatable = _amounts(node.status.capacity, what), _amounts(node.status.allocatable, what)
    return Node(node.metadata.name, capacity, allocatable, node.metadata.labels)


def pod_of(pod: PodObject, owners: Mapping[WorkloadRef, WorkloadRef]) -> Pod:
    """A running Pod with its workload, QoS, priority and effective request; `owners` leads ReplicaSets and Jobs on."""
    meta, spec = pod.metadata, pod.spec
    begun = pod.status.start_time or meta.creation_timestamp
    return Pod(
        namespace=meta.namespace,
        name=meta.name,
        workload=workload_of(pod, owners),
        node=spec.node_name,
        start_seconds=int(begun.timestamp()) if begun else 0,
        qos=qos_of(meta.labels),
        priority=priority_of(meta.labels, spec.priority),
        requests=effective_request(pod),
    )


def workload_of(pod: PodObject, owners: Mapping[WorkloadRef, WorkloadRef]) -> WorkloadRef:
    """The topmost known controller, the pod itself when it has none.

    A ReplicaSet that could not be listed is led on by the pod-template-hash that its Deployment put into its name.
    """
    meta = pod.metadata
    owner = _controller(meta) or WorkloadRef(meta.namespace, "Pod", meta.name)
    suffix = "-" + meta.labels.get("pod-template-hash", "")
    if owner not in owners and owner.kind == "ReplicaSet" and suffix != "-" and owner.name.endswith(suffix):
        return WorkloadRef(owner.namespace, "Deployment", owner.name.removesuffix(suffix))
    return owners.get(owner, owner)


def effective_request(pod: PodObject) -> Amounts:
    """What the scheduler counts for the pod, millicores and bytes.

    Per resource: max(containers + sidecars, the largest init container + sidecars started before it) + overhead, or the
    pod's own spec.resources where it names the resource. Source: Kubernetes, "Sharing resources among containers".
    """
    what, spec = f"pod {pod.metadata.namespace}/{pod.metadata.name}", pod.spec
    running = _sum([_amounts(c.resources.requests, what) for c in spec.containers])
    sidecars: Amounts = {}
    highest: Amounts = {}
    for init in spec.init_containers:
        request = _amounts(init.resources.requests, what)
        if init.restart_policy == "Always":
            sidecars = _sum([sidecars, request])
            highest = _max(highest, sidecars)
        else:
            highest = _max(highest, _sum([sidecars, request]))
    total = _max(_sum([running, sidecars]), highest)
    return _sum([total | _amounts(spec.resources.requests, what), _amounts(spec.overhead, what)])


def containers_of(pod: PodObject) -> tuple[Container, ...]:
    """The pod's containers and sidecars with what they request and may use."""
    what = f"pod {pod.metadata.namespace}/{pod.metadata.name}"
    sidecars = [c for c in pod.spec.init_containers if c.restart_policy == "Always"]
    return tuple(
        Container(c.name, _amounts(c.resources.requests, what), _amounts(c.resources.limits, what))
        for c in [*pod.spec.containers, *sidecars]
    )


def autoscaler_of(scaler: AutoscalerObject) -> tuple[WorkloadRef, Autoscaler]:
    """The scaled workload and its autoscaler; only utilisation targets of CPU and memory are kept."""
    spec, meta = scaler.spec, scaler.metadata
    metrics = [metric.resource or metric.container_resource for metric in spec.metrics]
    targets = {
        Resource(metric.name): metric.target.average_utilization
        for metric in metrics
        if metric and metric.name in set(Resource) and metric.target.average_utilization is not None
    }
    target = WorkloadRef(meta.namespace, spec.scale_target_ref.kind, spec.scale_target_ref.name)
    return target, Autoscaler(meta.name, spec.min_replicas, spec.max_replicas, targets)


def _listed(client: KubeClient, path: str, kind: type[ItemT], notes: list[str]) -> list[ItemT]:
    """A list that a scan can do without."""
    try:
        return client.list(path, kind)
    except ClusterForbidden as error:
        notes.append(f"{error.message} {error.fix}".strip())
        return []


def _each(project: Callable[[Any], ItemT], objects: Sequence[Any], notes: list[str]) -> list[ItemT]:
    """Every object that can be projected; one with an absurd quantity is left out and noted."""
    found = []
    for thing in objects:
        try:
            found.append(project(thing))
        except QuantityError as error:
            notes.append(error.message)
    return found


def _owners(by_kind: Mapping[str, Sequence[OwnedObject]]) -> dict[WorkloadRef, WorkloadRef]:
    """ReplicaSet -> Deployment and Job -> CronJob, for those that have a controller."""
    pairs = ((kind, o.metadata, _controller(o.metadata)) for kind, objects in by_kind.items() for o in objects)
    return {WorkloadRef(meta.namespace, kind, meta.name): owner for kind, meta, owner in pairs if owner}


def _controller(meta: _Meta) -> WorkloadRef | None:
    owner = next((o for o in meta.owner_references if o.controller), None)
    return WorkloadRef(meta.namespace, owner.kind, owner.name) if owner else None


def _key(pod: PodObject) -> tuple[str, str]:
    return (pod.metadata.namespace, pod.metadata.name)


def _amounts(quantities: Quantities, what: str) -> Amounts:
    """CPU and memory of a resource list; other resources are ignored."""
    return {r: parse_amount(r, quantities[r.value], what) for r in Resource if r.value in quantities}


def _sum(parts: Sequence[Amounts]) -> Amounts:
    return {r: sum(p.get(r, 0) for p in parts) for r in Resource if any(r in p for p in parts)}


def _max(a: Amounts, b: Amounts) -> Amounts:
    return {r: max(a.get(r, 0), b.get(r, 0)) for r in Resource if r in a or r in b}
