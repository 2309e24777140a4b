"""The demo's inventory as objects of a running cluster: controllers with their pods placed, ready and measured. Pure.

Unlike `objects`, whose objects are applied to a cluster with controllers, this is the complete result: names are those
of the inventory, pods are bound and ready, quotas are counted. `initial_objects` yields (collection, object) for the
embedded server's state, which loads thousands of them in a second.
"""

from __future__ import annotations

import hashlib
import json
import uuid
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from cotenant.base.allocation.device_request import NVIDIA_GPU
from cotenant.base.allocation.devices import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, WHOLE
from cotenant.base.cluster import Container, ContainerRole, Inventory, Node, Pod, Workload
from cotenant.base.identity import WorkloadRef
from cotenant.base.kubernetes.moments import moment
from cotenant.base.kubernetes.pod_qos import pod_qos
from cotenant.base.kubernetes.protocol import PLACEHOLDER_NAMESPACE, SYSTEM_NAMESPACE
from cotenant.base.kubernetes.quantity import format_amount
from cotenant.cli.cluster.real_nodes import KWOK_ANNOTATION
from cotenant_lab.simulation.api_server.admission import status_of, used_by, with_default_amounts
from cotenant_lab.simulation.api_server.state import Collection
from cotenant_lab.simulation.api_server.writes import resizable
from cotenant_lab.simulation.batch_load import NAMESPACE as EVENING
from cotenant_lab.simulation.objects import DEMO_LABELS, PAUSE_IMAGE, controller_spec, pod_labels, quantities

Json = dict[str, Any]
Stored = tuple[Collection, Json]

HASH_LABEL: Final = "pod-template-hash"
"""On every pod: digest of the template that it was made from."""
OWN_NAMESPACES: Final = ("default", "kube-system", SYSTEM_NAMESPACE, PLACEHOLDER_NAMESPACE, EVENING)
KINDS: Final[Mapping[str, tuple[str, str]]] = {
    "Deployment": ("apps/v1", "deployments"),
    "StatefulSet": ("apps/v1", "statefulsets"),
    "DaemonSet": ("apps/v1", "daemonsets"),
    "CronJob": ("batch/v1", "cronjobs"),
    "Job": ("batch/v1", "jobs"),
}
START_SECONDS: Final = (30.0, 75.0)
"""From a pod's creation to ready, spread over pods by their names."""
_PODS_PER_NODE: Final = 250
DEVICE_VERSION: Final = "scheduling.koordinator.sh/v1alpha1"
DEVICES: Final = ("scheduling.koordinator.sh", "devices")
GPUS_OF_NODE: Final = 8
"""More than its pods request, so that new pods have one while the old ones run."""


def initial_objects(
    inventory: Inventory, now_seconds: float, gpus: Mapping[WorkloadRef, str] | None = None
) -> Iterator[Stored]:
    """Yield every object, namespaces first; objects are dated at the start of the inventory, pods at their own start.

    `gpus` has by workload the container that requests a whole GPU; the nodes of such pods have GPUs.
    """
    created_at = moment(min((p.start_seconds for p in inventory.pods), default=int(now_seconds)))
    names = sorted({w.ref.namespace for w in inventory.workloads} - set(OWN_NAMESPACES))
    for name in (*OWN_NAMESPACES, *names):
        labels = {**DEMO_LABELS, "kubernetes.io/metadata.name": name}
        head = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": _meta(name, "", "Namespace", created_at, labels=labels),
        }
        yield ("", "namespaces"), {**head, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}
    owners = gpus or {}
    with_gpus = {pod.node for pod in inventory.pods if pod.running and pod.workload in owners}
    gpu_amounts = {GPU_CORE: WHOLE, GPU_MEMORY: "80Gi", GPU_MEMORY_RATIO: WHOLE}
    for node in inventory.nodes:
        yield ("", "nodes"), _node(node, created_at, GPUS_OF_NODE if node.name in with_gpus else 0)
        if node.name in with_gpus:
            # The GPUs of the node, as its agent would report them.
            ids = {minor: f"GPU-{uid_of('GPU', node.name, str(minor))}" for minor in range(GPUS_OF_NODE)}
            health = {"health": True, "resources": gpu_amounts}
            devices = [{"type": "gpu", "minor": minor, "id": name, **health} for minor, name in ids.items()]
            meta = _meta(node.name, "", "Device", created_at, labels=dict(DEMO_LABELS))
            body = {"apiVersion": DEVICE_VERSION, "kind": "Device", "metadata": meta, "spec": {"devices": devices}}
            yield DEVICES, body
    templates = {w.ref: template_of(w, owners.get(w.ref, "")) for w in inventory.workloads}
    workloads = {workload.ref: workload for workload in inventory.workloads}
    hashes = {ref: template_hash(template) for ref, template in templates.items()}
    pods = [
        _pod(pod, workloads[pod.workload], templates[pod.workload], hashes[pod.workload])
        for pod in inventory.pods
        if pod.running and pod.workload in workloads
    ]
    ready = Counter(pod.workload for pod in inventory.pods if pod.running)
    for workload in inventory.workloads:
        if workload.ref.kind in KINDS:
            controller = _controller(workload, templates[workload.ref], ready[workload.ref], created_at)
            yield controller
            if workload.ref.kind == "Deployment":
                digest = template_hash(controller[1]["spec"]["template"])
                current_set = replica_set(controller[1], digest, ready[workload.ref])
                uid = uid_of("ReplicaSet", workload.ref.namespace, current_set["metadata"]["name"])
                meta = {**current_set["metadata"], "uid": uid, "creationTimestamp": created_at}
                yield ("apps", "replicasets"), {**current_set, "metadata": meta}
        if scaler := workload.autoscaler:
            ref, metrics = workload.ref, []
            for resource, percent in scaler.targets.items():
                target = {"type": "Utilization", "averageUtilization": percent}
                metrics.append({"type": "Resource", "resource": {"name": resource.value, "target": target}})
            spec = {
                "scaleTargetRef": {"apiVersion": KINDS[ref.kind][0], "kind": ref.kind, "name": ref.name},
                "minReplicas": scaler.min_replicas,
                "maxReplicas": scaler.max_replicas,
                "metrics": metrics,
                "behavior": {"scaleUp": {"tolerance": "0"}},
            }
            meta = _meta(scaler.name, ref.namespace, "HorizontalPodAutoscaler", created_at, labels=dict(DEMO_LABELS))
            head = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": meta}
            yield ("autoscaling", "horizontalpodautoscalers"), {**head, "spec": spec}
    for pod in pods:
        yield ("", "pods"), pod
    yield from _bounds(inventory, pods, created_at)


def template_of(workload: Workload, with_gpu: str = "") -> Json:
    """Return a workload's pod template as its controller has it; `with_gpu` names the container that requests a GPU."""
    plain, ended = workload.ref.kind in ("Job", "CronJob"), {"restartPolicy": "Never"}
    early = [_container(c) for c in workload.containers if c.role in (ContainerRole.INIT, ContainerRole.SIDECAR)]
    main = [_container(c) for c in workload.containers if c.role is ContainerRole.MAIN]
    tolerations = [{"key": KWOK_ANNOTATION[0], "operator": "Exists"}]
    spec: Json = {"initContainers": early} if early else {}
    spec |= {"containers": main, "tolerations": tolerations, "terminationGracePeriodSeconds": 0}
    spec |= ended if plain else {}
    for container in spec["containers"]:
        if container["name"] == with_gpu:
            sides = container.get("resources") or {}
            container["resources"] = {s: {**sides.get(s, {}), NVIDIA_GPU: "1"} for s in ("requests", "limits")}
    return {"metadata": {"labels": pod_labels(workload)}, "spec": spec}


def template_hash(template: Json) -> str:
    """Return ten characters that identify a template's spec, labels and annotations, as for a Deployment."""
    text = json.dumps(template, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def running_status(pod: Json, since: str) -> Json:
    """Return the status of a pod whose containers are ready since that time, each with the amounts of its spec."""
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": since}
        for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    ]
    early = []
    for container in pod["spec"].get("initContainers") or ():
        early.append(container_status(container, since))
        if not resizable(container, "initContainers"):
            done = {"exitCode": 0, "reason": "Completed", "startedAt": since, "finishedAt": since}
            early[-1] |= {"started": False, "state": {"terminated": done}}
    return {
        "phase": "Running",
        "qosClass": pod_qos(pod["spec"]).value,
        "startTime": since,
        "observedGeneration": pod["metadata"].get("generation", 1),
        "conditions": conditions,
        **({"initContainerStatuses": early} if early else {}),
        "containerStatuses": [container_status(container, since) for container in pod["spec"]["containers"]],
    }


def container_status(container: Json, since: str) -> Json:
    """Return the status of a running container, whose spec's resources are applied."""
    image, resources = container.get("image", ""), container.get("resources") or {}
    head = {"name": container["name"], "image": image, "imageID": image, "ready": True, "started": True}
    head |= {"restartCount": 0, "state": {"running": {"startedAt": since}}}
    return {**head, "resources": resources, "allocatedResources": resources.get("requests") or {}}


def controller_status(kind: str, desired: int, updated: int, ready: int, generation: int) -> Json:
    """Return the status of a controller by its numbers of pods: wanted, of the present template, and ready."""
    if kind == "DaemonSet":
        scheduled = {"desiredNumberScheduled": desired, "currentNumberScheduled": desired}
        scheduled |= {"updatedNumberScheduled": updated, "numberReady": ready, "numberAvailable": ready}
        return {"observedGeneration": generation, **scheduled, "numberMisscheduled": 0}
    if kind == "Job":
        return {"active": ready, "ready": ready}
    if kind == "CronJob":
        return {}
    counts = {"replicas": max(desired, ready), "updatedReplicas": updated, "readyReplicas": ready}
    return {"observedGeneration": generation, **counts, "availableReplicas": ready}


def _meta(name: str, namespace: str, kind: str, created_at: str, **more: Any) -> Json:
    """Return metadata of an object of the demo; its uid follows from its name, so that demos of a seed are alike."""
    inside = {"namespace": namespace} if namespace else {}
    fields = {key: value for key, value in more.items() if value}
    return {"name": name, **inside, "uid": uid_of(kind, namespace, name), "creationTimestamp": created_at, **fields}


def uid_of(kind: str, namespace: str, name: str) -> str:
    """Return the uid of an object of the demo, which is always the same for the same name."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"cotenant-demo/{kind}/{namespace}/{name}"))


def replica_set(deployment: Json, digest: str, replicas: int) -> Json:
    """Return the ReplicaSet between a Deployment and the pods of one of its templates, without server fields."""
    meta, template = deployment["metadata"], deployment["spec"]["template"]
    labels = {**(template["metadata"].get("labels") or {}), HASH_LABEL: digest}
    owner = owner_reference("apps/v1", "Deployment", meta["name"], meta["uid"])
    match = {**deployment["spec"]["selector"]["matchLabels"], HASH_LABEL: digest}
    metadata = {"name": set_name(meta["name"], digest), "namespace": meta["namespace"], "labels": labels}
    metadata |= {"generation": 1, "ownerReferences": [owner]}
    spec = {"replicas": replicas, "selector": {"matchLabels": match}, "template": template}
    status = {"replicas": replicas, "readyReplicas": replicas, "availableReplicas": replicas}
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata, "spec": spec, "status": status}


def set_name(deployment: str, digest: str) -> str:
    """Return the name of a Deployment's ReplicaSet for a template with this hash (`digest`)."""
    return f"{deployment}-{digest}"


def _node(node: Node, created_at: str, gpus: int) -> Json:
    standard = {"kubernetes.io/hostname": node.name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    labels, marks = {**standard, **node.labels, **DEMO_LABELS}, dict([KWOK_ANNOTATION])
    devices = {NVIDIA_GPU: str(gpus), GPU_CORE: str(gpus * WHOLE), GPU_MEMORY_RATIO: str(gpus * WHOLE)} if gpus else {}
    amounts = {
        key: {**quantities(resources), **devices, "pods": str(_PODS_PER_NODE)}
        for key, resources in (("capacity", node.capacity), ("allocatable", node.allocatable))
    }
    ready = {"type": "Ready", "status": "True", "reason": "Demo", "lastTransitionTime": created_at}
    meta = _meta(node.name, "", "Node", created_at, labels=labels, annotations=marks)
    status = {**amounts, "conditions": [ready]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": {}, "status": status}


def _controller(workload: Workload, template: Json, ready: int, created_at: str) -> Stored:
    ref = workload.ref
    version, plural = KINDS[ref.kind]
    more = {"labels": {**workload.labels, **pod_labels(workload)}, "annotations": dict(workload.annotations)}
    meta = _meta(ref.name, ref.namespace, ref.kind, created_at, generation=1, **more)
    spec, status = controller_spec(workload, template, ready), controller_status(ref.kind, ready, ready, ready, 1)
    body = {"apiVersion": version, "kind": ref.kind, "metadata": meta, "spec": spec, "status": status}
    return (version.partition("/")[0], plural), body


def _pod(pod: Pod, workload: Workload, template: Json, digest: str) -> Json:
    since, ref = moment(pod.start_seconds), workload.ref
    owners = []
    if ref.kind in KINDS:
        of_set = "apps/v1", "ReplicaSet", set_name(ref.name, digest)
        version, kind, name = of_set if ref.kind == "Deployment" else (KINDS[ref.kind][0], ref.kind, ref.name)
        owners = [owner_reference(version, kind, name, uid_of(kind, ref.namespace, name))]
    labels = {**template["metadata"]["labels"], HASH_LABEL: digest}
    meta = _meta(pod.name, pod.namespace, "Pod", since, generation=1, labels=labels, ownerReferences=owners)
    injected = [_container(c) for c in workload.containers if c.role is ContainerRole.INJECTED]
    spec = {**template["spec"], "nodeName": pod.node}
    spec["containers"] = [*spec["containers"], *injected]
    made_pod = with_default_amounts({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}, ())
    ready = moment(pod.start_seconds + start_seconds(pod.name))
    return {**made_pod, "status": running_status(made_pod, ready)}


def start_seconds(name: str) -> float:
    """Return the seconds from a pod's creation until it is ready; the same for the same name."""
    shortest, longest = START_SECONDS
    return shortest + (longest - shortest) * (zlib.crc32(name.encode()) % 1000) / 999


def owner_reference(version: str, kind: str, name: str, uid: str) -> Json:
    """Return the owner reference of a pod to its controller."""
    return {"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": True}


def _bounds(inventory: Inventory, pods: Iterable[Json], created_at: str) -> Iterator[Stored]:
    for namespace in sorted({limit_range.namespace for limit_range in inventory.limit_ranges}):
        item: Json = {"type": "Container"}
        for limit_range in inventory.limit_ranges:
            name = limit_range.resource.value
            if limit_range.namespace != namespace:
                continue
            for key, amount in (("min", limit_range.minimum), ("max", limit_range.maximum)):
                if amount is not None:
                    item.setdefault(key, {})[name] = format_amount(limit_range.resource, amount)
            if limit_range.max_ratio is not None:
                item.setdefault("maxLimitRequestRatio", {})[name] = f"{limit_range.max_ratio:g}"
        meta = _meta("team", namespace, "LimitRange", created_at, labels=dict(DEMO_LABELS))
        body = {"apiVersion": "v1", "kind": "LimitRange", "metadata": meta, "spec": {"limits": [item]}}
        yield ("", "limitranges"), body
    listed = list(pods)
    for namespace, name in sorted({(quota.namespace, quota.name) for quota in inventory.quotas}):
        hard = {
            f"{'limits' if q.of_limits else 'requests'}.{q.resource}": format_amount(q.resource, q.hard)
            for q in inventory.quotas
            if (q.namespace, q.name) == (namespace, name)
        }
        meta = _meta(name, namespace, "ResourceQuota", created_at, labels=dict(DEMO_LABELS))
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": hard}}
        used = used_by(p for p in listed if p["metadata"]["namespace"] == namespace)
        yield ("", "resourcequotas"), status_of(quota, used)


def _container(container: Container) -> Json:
    sides = {"requests": quantities(container.requests), "limits": quantities(container.limits)}
    body: Json = {"name": container.name, "image": PAUSE_IMAGE}
    body["resources"] = {key: amounts for key, amounts in sides.items() if amounts}
    if container.role is ContainerRole.SIDECAR:
        body["restartPolicy"] = "Always"
    if container.restarts_on:
        policy = [{"resourceName": r.value, "restartPolicy": "RestartContainer"} for r in container.restarts_on]
        body["resizePolicy"] = policy
    return body if body["resources"] else {k: v for k, v in body.items() if k != "resources"}
