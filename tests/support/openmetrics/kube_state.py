"""kube-state-metrics' side: owners, amounts, labels, restarts, nodes, autoscalers, bounds, annotations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import numpy as np

from cotenant.base.cluster import Container, ContainerRole, EventKind, Pod
from cotenant.base.identity import PodContainerRef, WorkloadRef
from cotenant.base.kubernetes.qos import PriorityClass, QosClass
from cotenant.base.resource import Resource
from cotenant.base.usage.usage import HOUR_SECONDS, Signal
from tests.support.openmetrics.dress import Labels, uid_of
from tests.support.openmetrics.writer import Writer

_UNITS: Final = {Resource.CPU: ("core", 1e-3), Resource.MEMORY: ("byte", 1.0)}
_AMOUNTS: Final = (
    (
        "kube_pod_container_resource_requests",
        {Resource.CPU: Signal.CPU_REQUEST, Resource.MEMORY: Signal.MEMORY_REQUEST},
    ),
    ("kube_pod_container_resource_limits", {Resource.CPU: Signal.CPU_LIMIT, Resource.MEMORY: Signal.MEMORY_LIMIT}),
)


def samples(writer: Writer) -> Iterator[int]:
    """All families of kube-state-metrics; yields samples written."""
    for name, make in _STATE.items():
        if writer.dress.wants(name):
            writer.family(name, "counter" if name.endswith("_total") else "gauge")
            yield from make(writer, name)
    for name, signals in _AMOUNTS:
        if writer.dress.wants(name):
            writer.family(name, "gauge")
            yield from _amounts(writer, name, signals)
    for name, make in _BESIDE.items():
        if writer.dress.wants(name):
            writer.family(name, "counter" if name.endswith("_total") else "gauge")
            yield from make(writer, name)


def _amounts(writer: Writer, name: str, signals: Mapping[Resource, Signal]) -> Iterator[int]:
    """Requests or limits of every container that has them, at each hour's value."""
    cluster = writer.cluster
    slots = HOUR_SECONDS // cluster.grid.step_seconds
    for resource, signal in signals.items():
        unit, scale = _UNITS[resource]
        for ref, values in zip(cluster.usage[signal].refs, cluster.usage[signal].values, strict=True):
            pod = cluster.pods[ref.namespace, ref.pod]
            if cluster.role(ref) is ContainerRole.SIDECAR:
                continue
            measured = np.flatnonzero(~np.isnan(values))
            changed = measured[np.flatnonzero(np.diff(values[measured], prepend=np.float32(-1)))]
            steps = [(int(hour) * slots, float(values[hour]) * scale) for hour in changed]
            labels = _of_pod(pod) | {
                "container": ref.container,
                "node": pod.node,
                "resource": resource.value,
                "unit": unit,
            }
            yield writer.stepped(name, labels, cluster.life(pod), steps)


def _of_pod(pod: Pod) -> Labels:
    return {"namespace": pod.namespace, "pod": pod.name, "uid": uid_of(pod.namespace, pod.name)}


def owner_of(pod: Pod) -> tuple[str, str]:
    """Kind and name of the object that owns the pod directly; empty for a bare pod."""
    match pod.workload.kind:
        case "Deployment":
            return "ReplicaSet", pod.name.rpartition("-")[0]
        case "CronJob":
            return "Job", pod.name.rpartition("-")[0]
        case "Pod":
            return "", ""
        case kind:
            return kind, pod.workload.name


def _owned_pods(writer: Writer, name: str) -> Iterator[int]:
    for pod in writer.cluster.inventory.pods:
        kind, owner = owner_of(pod)
        labels = {"owner_kind": kind, "owner_name": owner, "owner_is_controller": "true" if kind else ""}
        yield writer.constant(name, _of_pod(pod) | labels, writer.cluster.life(pod))


def _pod_info(writer: Writer, name: str) -> Iterator[int]:
    for pod in writer.cluster.inventory.pods:
        kind, owner = owner_of(pod)
        # The class of a node agent has a name that is no band of Koordinator's.
        class_name = pod.priority.value or ("system-node-critical" if pod.qos is QosClass.SYSTEM else "")
        labels = {"node": pod.node, "created_by_kind": kind, "created_by_name": owner, "priority_class": class_name}
        yield writer.constant(name, _of_pod(pod) | labels, writer.cluster.life(pod))


def _pod_labels(writer: Writer, name: str) -> Iterator[int]:
    for pod in writer.cluster.inventory.pods:
        labels = {"label_koordinator_sh_qos_class": pod.qos.value}
        if pod.priority is not PriorityClass.NONE:
            labels["label_koordinator_sh_priority_class"] = pod.priority.value
        yield writer.constant(name, _of_pod(pod) | labels, writer.cluster.life(pod))


def _pod_phase(writer: Writer, name: str) -> Iterator[int]:
    """Only the phase that holds (kube-state-metrics also writes the others, as 0)."""
    for pod in writer.cluster.inventory.pods:
        yield writer.constant(name, _of_pod(pod) | {"phase": "Running"}, writer.cluster.life(pod))


def _pod_created(writer: Writer, name: str) -> Iterator[int]:
    for pod in writer.cluster.inventory.pods:
        yield writer.constant(name, _of_pod(pod), writer.cluster.life(pod), float(pod.start_seconds))


def _replicaset_owners(writer: Writer, name: str) -> Iterator[int]:
    for (namespace, replicaset), (owner, span) in _between(writer, "ReplicaSet").items():
        labels = {"namespace": namespace, "replicaset": replicaset, "owner_kind": owner.kind, "owner_name": owner.name}
        yield writer.constant(name, labels | {"owner_is_controller": "true"}, span)


def _job_owners(writer: Writer, name: str) -> Iterator[int]:
    for (namespace, job), (owner, span) in _between(writer, "Job").items():
        by_cron = {"owner_kind": "CronJob", "owner_name": owner.name, "owner_is_controller": "true"}
        yield writer.constant(
            name, {"namespace": namespace, "job_name": job} | (by_cron if owner.kind == "CronJob" else {}), span
        )


def _between(writer: Writer, kind: str) -> dict[tuple[str, str], tuple[WorkloadRef, tuple[int, int]]]:
    """Direct owners of a kind: their workload, and the span from the first pod's start to the last one's end."""
    spans: dict[tuple[str, str], tuple[WorkloadRef, tuple[int, int]]] = {}
    for pod in writer.cluster.inventory.pods:
        own, name = owner_of(pod)
        if own == kind:
            start, end = writer.cluster.life(pod)
            _, (first, last) = spans.get((pod.namespace, name), (pod.workload, (start, end)))
            spans[pod.namespace, name] = pod.workload, (min(first, start), max(last, end))
    return spans


def _main(writer: Writer) -> Iterator[tuple[Pod, PodContainerRef]]:
    """Containers of which kube_pod_container_* speaks: sidecars have metrics of init containers."""
    pairs = writer.cluster.containers()
    return ((pod, ref) for pod, ref in pairs if writer.cluster.role(ref) is not ContainerRole.SIDECAR)


def _restarts(writer: Writer, name: str) -> Iterator[int]:
    for pod, ref in _main(writer):
        span = writer.cluster.life(pod)
        slots = sorted(writer.cluster.events.get((EventKind.RESTART, ref), []))
        steps = [(span[0], 0.0), *((slot, float(count)) for count, slot in enumerate(slots, start=1))]
        yield writer.stepped(name, _of_pod(pod) | {"container": ref.container}, span, steps)


def _reasons(writer: Writer, name: str) -> Iterator[int]:
    """The reason of the last end, from the first restart on."""
    for pod, ref in _main(writer):
        slots = sorted(set(writer.cluster.events.get((EventKind.RESTART, ref), [])))
        kills = set(writer.cluster.events.get((EventKind.OOM_KILL, ref), []))
        ends = [*slots[1:], writer.cluster.life(pod)[1]][: len(slots)]
        for reason in ("OOMKilled", "Error"):
            for slot, end in zip(slots, ends, strict=True):
                if (slot in kills) == (reason == "OOMKilled"):
                    labels = _of_pod(pod) | {"container": ref.container, "reason": reason}
                    yield writer.constant(name, labels, (slot, end))


def _node_amounts(writer: Writer, name: str) -> Iterator[int]:
    for node in writer.cluster.inventory.nodes:
        amounts = node.capacity if name.endswith("capacity") else node.allocatable
        for resource, (unit, scale) in _UNITS.items():
            labels = {"node": node.name, "resource": resource.value, "unit": unit}
            yield writer.constant(name, labels, (0, writer.cluster.grid.size), amounts[resource] * scale)


def _autoscalers(writer: Writer, name: str) -> Iterator[int]:
    """Everything that kube-state-metrics says of an autoscaler, by the family's name."""
    span = (0, writer.cluster.grid.size)
    for workload in writer.cluster.inventory.workloads:
        if (scaler := workload.autoscaler) is None:
            continue
        own = {"namespace": workload.ref.namespace, "horizontalpodautoscaler": scaler.name}
        if name.endswith("_info"):
            target = {"scaletargetref_kind": workload.ref.kind, "scaletargetref_name": workload.ref.name}
            yield writer.constant(name, own | target, span)
        elif name.endswith("_target_metric"):
            for resource, percent in scaler.targets.items():
                metric = {"metric_name": resource.value, "metric_target_type": "utilization"}
                yield writer.constant(name, own | metric, span, float(percent))
        else:
            bound = scaler.min_replicas if name.endswith("min_replicas") else scaler.max_replicas
            yield writer.constant(name, own, span, float(bound))


def _init(writer: Writer) -> Iterator[tuple[Pod, Container]]:
    """Init containers and sidecars of every pod."""
    for pod in writer.cluster.inventory.pods:
        for container in writer.cluster.workloads[pod.workload].containers:
            if container.role in (ContainerRole.INIT, ContainerRole.SIDECAR):
                yield pod, container


def _init_info(writer: Writer, name: str) -> Iterator[int]:
    for pod, container in _init(writer):
        policy = "Always" if container.role is ContainerRole.SIDECAR else ""
        labels = _of_pod(pod) | {"container": container.name, "restart_policy": policy}
        yield writer.constant(name, labels, writer.cluster.life(pod))


def _init_restarts(writer: Writer, name: str) -> Iterator[int]:
    """Nothing of the kind ever restarts in the synthetic cluster."""
    for pod, container in _init(writer):
        yield writer.constant(name, _of_pod(pod) | {"container": container.name}, writer.cluster.life(pod), 0.0)


def _init_amounts(writer: Writer, name: str) -> Iterator[int]:
    for pod, container in _init(writer):
        for resource, amount in (container.requests if name.endswith("requests") else container.limits).items():
            unit, scale = _UNITS[resource]
            labels = {"container": container.name, "node": pod.node, "resource": resource.value, "unit": unit}
            yield writer.constant(name, _of_pod(pod) | labels, writer.cluster.life(pod), amount * scale)


def _node_labels(writer: Writer, name: str) -> Iterator[int]:
    for node in writer.cluster.inventory.nodes:
        labels = {f"label_{_mangled(key)}": value for key, value in node.labels.items()}
        yield writer.constant(name, {"node": node.name} | labels, _whole(writer))


def _node_info(writer: Writer, name: str) -> Iterator[int]:
    version = f"v{writer.cluster.inventory.server_version}"
    for node in writer.cluster.inventory.nodes:
        yield writer.constant(name, {"node": node.name, "kubelet_version": version}, _whole(writer))


def _build(writer: Writer, name: str) -> Iterator[int]:
    labels = {"job": "apiserver", "git_version": f"v{writer.cluster.inventory.server_version}-gke.12"}
    yield writer.constant(name, labels, _whole(writer))


def _created(writer: Writer, name: str) -> Iterator[int]:
    """The controllers of one kind that are there at the end: those with a running pod."""
    kind = name.split("_")[1]
    for workload in writer.cluster.inventory.workloads:
        if workload.ref.kind.lower() == kind and workload.replicas:
            labels = {"namespace": workload.ref.namespace, kind: workload.ref.name}
            yield writer.constant(name, labels, _whole(writer), float(writer.cluster.grid.start_seconds))


def _births(writer: Writer, name: str) -> Iterator[int]:
    """kube-system is as old as the cluster, and each of the others an hour younger than the one before."""
    others = sorted({pod.namespace for pod in writer.cluster.inventory.pods} - {"kube-system"})
    for hour, namespace in enumerate(("kube-system", *others)):
        born = float(writer.dress.born_seconds + hour * HOUR_SECONDS)
        yield writer.constant(name, {"namespace": namespace}, _whole(writer), born)


def _limit_ranges(writer: Writer, name: str) -> Iterator[int]:
    """Each bound of a container or of a pod; beside a container's a LimitRange of volumes, which bounds neither."""
    for bounds in writer.cluster.inventory.limit_ranges:
        scale = _UNITS[bounds.resource][1]
        kind = "Pod" if bounds.of_pod else "Container"
        own = {"namespace": bounds.namespace, "limitrange": f"{kind.lower()}s", "resource": bounds.resource.value}
        bounds_given = (("min", bounds.minimum, scale), ("max", bounds.maximum, scale))
        for constraint, value, unit in (*bounds_given, ("maxLimitRequestRatio", bounds.max_ratio, 1.0)):
            if value is not None:
                labels = own | {"type": kind, "constraint": constraint}
                yield writer.constant(name, labels, _whole(writer), value * unit)
        volumes = own | {"limitrange": f"volumes-{kind}", "type": "PersistentVolumeClaim", "constraint": "max"}
        yield writer.constant(name, volumes, _whole(writer), 1.0)


def _quotas(writer: Writer, name: str) -> Iterator[int]:
    for quota in writer.cluster.inventory.quotas:
        side = "limits" if quota.of_limits else "requests"
        own = {"namespace": quota.namespace, "resourcequota": quota.name, "resource": f"{side}.{quota.resource.value}"}
        for kind, value in (("hard", quota.hard), ("used", quota.used)):
            yield writer.constant(name, own | {"type": kind}, _whole(writer), value * _UNITS[quota.resource][1])


def _annotations(writer: Writer, name: str) -> Iterator[int]:
    """The allow-listed annotations of one kind of workload."""
    kind = name.split("_")[1]
    label = "job_name" if kind == "job" else kind
    for workload in writer.cluster.inventory.workloads:
        if workload.ref.kind.lower() == kind and workload.annotations:
            ours = {f"annotation_{_mangled(key)}": value for key, value in workload.annotations.items()}
            own = {"namespace": workload.ref.namespace, label: workload.ref.name}
            yield writer.constant(name, own | ours, _whole(writer))


def _mangled(key: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_]", "_", key)


def _whole(writer: Writer) -> tuple[int, int]:
    return 0, writer.cluster.grid.size


_BESIDE: Final[dict[str, Callable[[Writer, str], Iterator[int]]]] = {
    "kube_pod_init_container_info": _init_info,
    "kube_pod_init_container_resource_requests": _init_amounts,
    "kube_pod_init_container_resource_limits": _init_amounts,
    "kube_pod_init_container_status_restarts_total": _init_restarts,
    "kube_node_labels": _node_labels,
    "kube_node_info": _node_info,
    "kubernetes_build_info": _build,
    "kube_namespace_created": _births,
    **{f"kube_{kind}_created": _created for kind in ("deployment", "statefulset", "daemonset")},
    "kube_limitrange": _limit_ranges,
    "kube_resourcequota": _quotas,
    **{
        f"kube_{kind}_annotations": _annotations
        for kind in ("deployment", "statefulset", "daemonset", "cronjob", "job")
    },
}
"""Everything beside the pods' own series."""

_STATE: Final[dict[str, Callable[[Writer, str], Iterator[int]]]] = {
    "kube_pod_owner": _owned_pods,
    "kube_replicaset_owner": _replicaset_owners,
    "kube_job_owner": _job_owners,
    "kube_pod_info": _pod_info,
    "kube_pod_labels": _pod_labels,
    "kube_pod_status_phase": _pod_phase,
    "kube_pod_created": _pod_created,
    "kube_pod_container_status_restarts_total": _restarts,
    "kube_pod_container_status_last_terminated_reason": _reasons,
    "kube_node_status_capacity": _node_amounts,
    "kube_node_status_allocatable": _node_amounts,
    "kube_horizontalpodautoscaler_info": _autoscalers,
    "kube_horizontalpodautoscaler_spec_min_replicas": _autoscalers,
    "kube_horizontalpodautoscaler_spec_max_replicas": _autoscalers,
    "kube_horizontalpodautoscaler_spec_target_metric": _autoscalers,
}
