"""Convert the API's objects to the types of `cotenant.base.cluster`: nodes, pods, containers, bounds. Pure.

QuantityError names the object with an unreadable amount; `live` leaves that object out with a note.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from math import isfinite
from typing import Final

import msgspec

from cotenant.base.allocation.gpu_share import gpus_of
from cotenant.base.cluster import (
    CHECKPOINT_VERSION,
    QUOTA_KEYS,
    Autoscaler,
    Container,
    ContainerRole,
    LimitRange,
    Node,
    OwnAmounts,
    Quota,
    RunningSum,
    SavedHistogram,
    VpaHistory,
    tightest,
)
from cotenant.base.errors import QuantityError
from cotenant.base.identity import ContainerRef, WorkloadRef
from cotenant.base.json_documents.json_decoders import UNDECODABLE, decoder_of
from cotenant.base.kube.objects import AutoscalerObject, LimitItem, LimitRangeObject, QuotaObject
from cotenant.base.kubernetes.models.autoscalers import (
    CheckpointObject,
    CheckpointStatus,
    HistogramStatus,
    VerticalAutoscalerObject,
    utilization_targets,
)
from cotenant.base.kubernetes.models.metadata import ObjectMeta
from cotenant.base.kubernetes.models.node import NodeWire
from cotenant.base.kubernetes.models.pod import PodObject, Quantities, ResizableContainer, ResourcesWire
from cotenant.base.kubernetes.pod_request import parse_readable_quantities
from cotenant.base.kubernetes.pod_resources import PresentAmounts, present_amounts
from cotenant.base.kubernetes.pod_wire import pod_resources
from cotenant.base.kubernetes.protocol import EXTENDED_RESOURCES, RESOURCE_STATUS_ANNOTATION
from cotenant.base.kubernetes.quantity import parse_amount, parse_bytes, parse_millicores
from cotenant.base.resource import Resource
from cotenant.base.usage.histogram import buckets_of

Amounts = dict[Resource, int]
NODE_PREFIX: Final = "node.koordinator.sh/"
ANNOTATION_PREFIX: Final = "cotenant.dev/"
_VERSION: Final = re.compile(r"\d{1,9}\.\d{1,9}(\.\d{1,9})?")


class _Zone(msgspec.Struct):
    node: int = 0


class _ResourceStatus(msgspec.Struct, rename="camel"):
    numa_node_resources: list[_Zone] | None = None


def node_of(node: NodeWire) -> Node:
    """Convert a Node object to the `Node` of an inventory."""
    what = f"node {node.metadata.name}"
    return Node(
        name=node.metadata.name,
        capacity=_amounts(node.status.capacity, what),
        allocatable=_amounts(node.status.allocatable, what),
        labels=node.metadata.labels or {},
        annotations={k: v for k, v in (node.metadata.annotations or {}).items() if k.startswith(NODE_PREFIX)},
        extended_capacity=_reclaimed_amounts(node.status.capacity, what),
        extended_allocatable=_reclaimed_amounts(node.status.allocatable, what),
        gpus=gpus_of(parse_readable_quantities(node.status.allocatable or {})),
    )


def zones_of(annotations: Mapping[str, str]) -> tuple[int, ...]:
    """Return the NUMA zones that the scheduler wrote on a pod; () if the annotation is missing or unreadable."""
    text = annotations.get(RESOURCE_STATUS_ANNOTATION)
    try:
        status = decoder_of(_ResourceStatus).decode(text) if text else None
    except UNDECODABLE:
        return ()
    return tuple(zone.node for zone in status.numa_node_resources or ()) if status else ()


def controller_of(meta: ObjectMeta) -> WorkloadRef | None:
    """Return the direct controller of an object; None if it has none, or is a static pod."""
    owner = meta.controller
    return WorkloadRef(meta.namespace, owner.kind, owner.name) if owner and owner.kind != "Node" else None


def containers_of(pod: PodObject) -> tuple[Container, ...]:
    """Return all containers of a pod, with their roles and their current amounts.

    A resize that the kubelet refuses is in the pod's spec, but not in the containers' current amounts.
    """
    what = f"pod {pod.metadata.namespace}/{pod.metadata.name}"
    main = [(c, ContainerRole.MAIN) for c in pod.spec.containers or []]
    init = [
        (c, ContainerRole.SIDECAR if c.restart_policy == "Always" else ContainerRole.INIT)
        for c in pod.spec.init_containers or []
    ]
    present = present_amounts(pod_resources(pod.spec, pod.status, what))
    return tuple(_container(c, role, present[c.name], what) for c, role in [*main, *init])


def own_amounts_of(pod: PodObject) -> OwnAmounts:
    """Return the pod-level amounts; a missing request is the limit, as the API server sets it by default."""
    what, own = f"pod {pod.metadata.namespace}/{pod.metadata.name}", pod.spec.resources or ResourcesWire()
    limits = _amounts(own.limits, what)
    return OwnAmounts(limits | _amounts(own.requests, what), limits)


def _container(spec: ResizableContainer, role: ContainerRole, present: PresentAmounts, what: str) -> Container:
    restarting = {p.resource_name for p in spec.resize_policy or [] if p.restart_policy == "RestartContainer"}
    resources = spec.resources or ResourcesWire()
    now, limits = present.requests, present.limits
    requests = {r: now[r.value] for r in _amounts(resources.requests, what) if r.value in now}
    return Container(
        spec.name,
        requests,
        {r: limits[r.value] for r in _amounts(resources.limits, what) if r.value in limits},
        role,
        tuple(r for r in Resource if r.value in restarting),
        running={r: RunningSum(1, a, f) for r, a in requests.items() if a != (f := present.in_force.get(r.value, 0))},
    )


def own_annotations(meta: ObjectMeta) -> dict[str, str]:
    """Return the annotations whose key begins with "cotenant.dev/"."""
    return {k: v for k, v in (meta.annotations or {}).items() if k.startswith(ANNOTATION_PREFIX)}


def autoscaler_of(scaler: AutoscalerObject) -> tuple[WorkloadRef, Autoscaler]:
    """Return the scaled workload and its autoscaler, with its utilisation targets of CPU and memory only."""
    spec, meta = scaler.spec, scaler.metadata
    target = WorkloadRef(meta.namespace, spec.scale_target_ref.kind, spec.scale_target_ref.name)
    least = 1 if spec.min_replicas is None else spec.min_replicas
    solvable, unsolvable = utilization_targets(spec.metrics or [])
    return target, Autoscaler(meta.name, least, spec.max_replicas, solvable, unsolvable)


def limit_ranges_of(thing: LimitRangeObject) -> tuple[LimitRange, ...]:
    """Return a LimitRange object's bounds on containers and on pods, one for each resource."""
    what = f"LimitRange {thing.metadata.namespace}/{thing.metadata.name}"
    items = [item for item in thing.spec.limits or [] if item.type in ("Container", "Pod")]
    candidates = [_bounds(item, resource, thing.metadata.namespace, what) for item in items for resource in Resource]
    return tightest([bounds for bounds in candidates if bounds])


def _bounds(item: LimitItem, resource: Resource, namespace: str, what: str) -> LimitRange | None:
    least = _amounts(item.min, what).get(resource)
    most = _amounts(item.max, what).get(resource)
    ratio = (item.max_limit_request_ratio or {}).get(resource.value)
    if least is None and most is None and ratio is None:
        return None
    # A ratio is written as a quantity; thousandths are as fine as Kubernetes keeps it.
    max_ratio = None if ratio is None else parse_millicores(ratio, what) / 1000
    return LimitRange(namespace, resource, least, most, max_ratio, item.type == "Pod")


def quotas_of(thing: QuotaObject) -> tuple[Quota, ...]:
    """Return a ResourceQuota's bounds on CPU and memory, from `hard` of its status (enforced), else of its spec."""
    meta, used = thing.metadata, thing.status.used or {}
    quotas: list[Quota] = []
    # One Quota for each bound on requests or limits of CPU and memory; other keys are ignored.
    hard = thing.status.hard or thing.spec.hard or {}
    what = f"ResourceQuota {meta.namespace}/{meta.name}"
    yielded: set[tuple[Resource, bool]] = set()
    # `cpu` and `requests.cpu` are the same bound: keys with a dot sort first and win.
    for key in sorted(hard, key=lambda k: "." not in k):
        if key in QUOTA_KEYS and QUOTA_KEYS[key] not in yielded:
            yielded.add(QUOTA_KEYS[key])
            resource, of_limits = QUOTA_KEYS[key]
            amounts = (parse_amount(resource, text, what) for text in (hard[key], used.get(key, 0)))
            quotas.append(Quota(meta.namespace, meta.name, resource, of_limits, *amounts))
    return tuple(quotas)


def version_of(text: str) -> str:
    """Return the plain version in a gitVersion: "v1.35.4-gke.100" is "1.35.4"; "" if there is none."""
    match = _VERSION.search(text)
    return match[0] if match else ""


def _reclaimed_amounts(quantities: Quantities | None, what: str) -> dict[str, int]:
    """Return the reclaimed capacity in a resource list, by resource name."""
    texts = quantities or {}
    return {n: parse_bytes(texts[n], f"{what}, {n}") for n in EXTENDED_RESOURCES.values() if n in texts}


def _amounts(quantities: Quantities | None, what: str) -> Amounts:
    """Return the CPU and memory of a resource list; other resources are ignored."""
    texts = quantities or {}
    return {r: parse_amount(r, texts[r.value], what) for r in Resource if r.value in texts}


def vpa_targets(autoscalers: Iterable[VerticalAutoscalerObject]) -> dict[tuple[str, str], WorkloadRef]:
    """Return the target workload of each VerticalPodAutoscaler, by the autoscaler's namespace and name."""
    return {
        (vpa.metadata.namespace, vpa.metadata.name): WorkloadRef(vpa.metadata.namespace, target.kind, target.name)
        for vpa in autoscalers
        if (target := vpa.spec.target_ref) is not None
    }


def vpa_writers(autoscalers: Iterable[VerticalAutoscalerObject]) -> dict[WorkloadRef, str]:
    """Return, by workload, a sentence that names the VerticalPodAutoscaler which sets its pods' requests."""
    listed = list(autoscalers)
    targets = vpa_targets(listed)
    keyed = (((vpa.metadata.namespace, vpa.metadata.name), vpa.writes) for vpa in listed)
    return {targets[key]: why for key, why in keyed if key in targets and why}


def vpa_history_of(checkpoint: CheckpointObject, targets: Mapping[tuple[str, str], WorkloadRef]) -> VpaHistory | None:
    """Return the usage history in a checkpoint; None if it is empty, of an unknown version or of no VPA in `targets`.

    Raise QuantityError if it is inconsistent: a weight that is not a number, a bucket that does not exist, no times.
    """
    meta, spec = checkpoint.metadata, checkpoint.spec
    workload = targets.get((meta.namespace, spec.vpa_object_name))
    try:
        status = msgspec.json.decode(checkpoint.status, type=CheckpointStatus)
    except UNDECODABLE as error:
        raise _unreadable_checkpoint(meta, str(error)) from None
    if workload is None or status.version != CHECKPOINT_VERSION or status.total_samples_count < 1:
        return None
    saved = {Resource.CPU: status.cpu_histogram, Resource.MEMORY: status.memory_histogram}
    return VpaHistory(
        ContainerRef(workload, spec.container_name),
        spec.vpa_object_name,
        _required_seconds(status.first_sample_start, meta, "firstSampleStart"),
        _required_seconds(status.last_sample_start, meta, "lastSampleStart"),
        status.total_samples_count,
        {
            resource: _saved_histogram(histogram, resource, meta)
            for resource, histogram in saved.items()
            if histogram.bucket_weights
        },
    )


def _saved_histogram(histogram: HistogramStatus, resource: Resource, meta: ObjectMeta) -> SavedHistogram:
    weights, total = histogram.bucket_weights, histogram.total_weight
    if not all(0 <= bucket < buckets_of(resource).count for bucket in weights):
        raise _unreadable_checkpoint(meta, f"a bucket number of {resource.value} is below 0 or above the last bucket's")
    if not all(isfinite(weight) and weight >= 0 for weight in (total, *weights.values())) or not sum(weights.values()):
        raise _unreadable_checkpoint(meta, f"weights of {resource.value} are negative, infinite or all zero")
    return SavedHistogram(weights, total, _required_seconds(histogram.reference_timestamp, meta, "referenceTimestamp"))


def _required_seconds(time: datetime | None, meta: ObjectMeta, name: str) -> int:
    if time is None:
        raise _unreadable_checkpoint(meta, f"no {name}")
    return int(time.timestamp())


def _unreadable_checkpoint(meta: ObjectMeta, why: str) -> QuantityError:
    return QuantityError(f"VerticalPodAutoscalerCheckpoint {meta.namespace}/{meta.name} is left out: {why}")
