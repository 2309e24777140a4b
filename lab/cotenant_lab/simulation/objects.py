"""The demo's inventory as Kubernetes objects to apply to a cluster. Pure.

All objects have the label `cotenant.dev/demo=true` and are in separate namespaces (`cotenant-demo-shop` for the demo's
`shop`), so that they can be recognised and removed. Containers run a pause image: they hold their requests and use
nothing. On a real cluster controllers and scheduler make and place the pods; `pods` is for servers without them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from cotenant.base.cluster import Container, ContainerRole, Inventory, Node, Workload
from cotenant.base.identity import WorkloadRef
from cotenant.base.kubernetes.intent import Address, Apply
from cotenant.base.kubernetes.qos import PRIORITY_CLASS_LABEL, QOS_LABEL
from cotenant.base.kubernetes.quantity import format_amount
from cotenant.base.resource import Resource
from cotenant.cli.cluster.real_nodes import DEMO_LABEL, KWOK_ANNOTATION
from cotenant_lab.simulation.cluster_population import PREFIX

DEMO_LABELS: Final = {DEMO_LABEL: "true"}
WORKLOAD_LABEL: Final = "cotenant.dev/workload"
_WHY: Final = "cotenant demo"
PAUSE_IMAGE: Final = "registry.k8s.io/pause:3.10"
_PODS_PER_NODE: Final = "250"
_API_VERSIONS: Final = {"CronJob": "batch/v1", "Job": "batch/v1", "Pod": "v1"}
_PLURALS: Final = {
    "Deployment": "deployments",
    "StatefulSet": "statefulsets",
    "DaemonSet": "daemonsets",
    "CronJob": "cronjobs",
    "Job": "jobs",
    "Pod": "pods",
}

Json = dict[str, Any]


def namespaces(inventory: Inventory) -> Iterator[Apply]:
    """Yield a namespace for each one of the demo."""
    for name in sorted({workload.ref.namespace for workload in inventory.workloads}):
        yield _apply(Address("v1", "namespaces", f"{PREFIX}{name}"), "Namespace", {}, {})


def nodes(cluster_nodes: Iterable[Node], *, fake: bool) -> Iterator[Apply]:
    """Yield nodes, each followed by its status; `fake` marks them for kwok, which then simulates their kubelets."""
    for node in cluster_nodes:
        address = Address("v1", "nodes", node.name)
        standard = {"kubernetes.io/hostname": node.name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
        body = {"metadata": {"annotations": dict([KWOK_ANNOTATION])}} if fake else {}
        yield _apply(address, "Node", body, {**standard, **node.labels})
        both = {"capacity": node.capacity, "allocatable": node.allocatable}
        amounts = {key: {**quantities(resources), "pods": _PODS_PER_NODE} for key, resources in both.items()}
        ready = {"type": "Ready", "status": "True", "reason": "Demo", "message": "a node of cotenant demo"}
        yield _status(address, "Node", {**amounts, "conditions": [ready]})


def workloads(inventory: Inventory) -> Iterator[Apply]:
    """Yield the controllers with their templates, and bare pods."""
    for workload in inventory.workloads:
        kind = workload.ref.kind
        if kind in _PLURALS:
            namespace, version = f"{PREFIX}{workload.ref.namespace}", _API_VERSIONS.get(kind, "apps/v1")
            address = Address(version, _PLURALS[kind], workload.ref.name, namespace)
            spec = _pod_spec(workload)
            if kind != "Pod":
                restart = {"restartPolicy": "Never"} if kind in ("Job", "CronJob") else {}
                template = {"metadata": {"labels": pod_labels(workload)}, "spec": {**spec, **restart}}
                spec = controller_spec(workload, template, workload.replicas)
            yield _apply(address, kind, {"spec": spec}, {**workload.labels, **pod_labels(workload)})


def pods(inventory: Inventory) -> Iterator[Apply]:
    """Yield the running pods of controllers, bound to their nodes, each followed by its status."""
    workloads = {workload.ref: workload for workload in inventory.workloads}
    for pod in inventory.pods:
        workload = workloads.get(pod.workload)
        if pod.running and workload and workload.ref.kind != "Pod":
            spec = {**_pod_spec(workload), "nodeName": pod.node}
            address = Address("v1", "pods", pod.name, f"{PREFIX}{pod.namespace}")
            yield _apply(address, "Pod", {"spec": spec}, pod_labels(workload))
            yield _status(address, "Pod", {"phase": "Running"})


def _apply(address: Address, kind: str, body: Mapping[str, Any], labels: Mapping[str, str]) -> Apply:
    """An Apply of a labelled object."""
    metadata: Json = {"name": address.name, **body.get("metadata", {}), "labels": {**labels, **DEMO_LABELS}}
    if address.namespace:
        metadata["namespace"] = address.namespace
    head = {"apiVersion": address.api_version, "kind": kind, "metadata": metadata}
    return Apply(address, {**body, **head}, why=_WHY)


def _status(address: Address, kind: str, status: Mapping[str, Any]) -> Apply:
    """An Apply of an object's status."""
    metadata = {"name": address.name, **({"namespace": address.namespace} if address.namespace else {})}
    head = {"apiVersion": address.api_version, "kind": kind, "metadata": metadata}
    return Apply(address, {**head, "status": status}, "status", why=_WHY)


def pod_labels(workload: Workload) -> dict[str, str]:
    """Return the labels of a workload's pods: its selector, and its QoS and priority classes."""
    classes = {QOS_LABEL: workload.qos.value, PRIORITY_CLASS_LABEL: workload.priority.value}
    return {**DEMO_LABELS, **selector(workload), **{key: value for key, value in classes.items() if value}}


def selector(workload: Workload) -> dict[str, str]:
    """Return the labels that select a workload's pods."""
    return {WORKLOAD_LABEL: workload_label(workload.ref)}


def workload_label(ref: WorkloadRef) -> str:
    """Return the value of `WORKLOAD_LABEL` on the workload's pods."""
    return f"{ref.kind}-{ref.name}"[:63].rstrip("-.").lower()


def _pod_spec(workload: Workload) -> Json:
    tolerations = [{"key": KWOK_ANNOTATION[0], "operator": "Exists"}]
    sidecars = [_container(c) for c in workload.containers if c.role is ContainerRole.SIDECAR]
    main = [_container(c) for c in workload.staying if c.role is not ContainerRole.SIDECAR]
    first = {"initContainers": sidecars} if sidecars else {}
    return {**first, "containers": main, "tolerations": tolerations, "terminationGracePeriodSeconds": 0}


def _container(container: Container) -> Json:
    sides = {"requests": quantities(container.requests), "limits": quantities(container.limits)}
    resources = {key: amounts for key, amounts in sides.items() if amounts}
    stays = {"restartPolicy": "Always"} if container.role is ContainerRole.SIDECAR else {}
    return {"name": container.name, "image": PAUSE_IMAGE, **stays, **({"resources": resources} if resources else {})}


def quantities(amounts: Mapping[Resource, int]) -> dict[str, str]:
    """Return the amounts of resources as Kubernetes writes them."""
    return {str(resource): format_amount(resource, amount) for resource, amount in amounts.items()}


def controller_spec(workload: Workload, template: Json, replicas: int) -> Json:
    """Return the spec of a workload's controller, with this template and number of pods."""
    kind, count = workload.ref.kind, max(replicas, 1)
    if kind == "Job":
        return {"parallelism": count, "completions": count, "template": template}
    if kind == "CronJob":
        return {"schedule": "0 3 * * *", "concurrencyPolicy": "Forbid", "jobTemplate": {"spec": {"template": template}}}
    own = {} if kind == "DaemonSet" else {"replicas": replicas}
    last = {"serviceName": workload.ref.name, "podManagementPolicy": "Parallel"} if kind == "StatefulSet" else {}
    return {**own, "selector": {"matchLabels": selector(workload)}, "template": template, **last}


def count_objects_by_kind(intents: Iterable[Apply]) -> dict[str, int]:
    """Return the number of objects of each kind that would be applied; a status is no object."""
    counts: dict[str, int] = {}
    for intent in intents:
        if not intent.subresource:
            counts[intent.address.resource] = counts.get(intent.address.resource, 0) + 1
    return counts
