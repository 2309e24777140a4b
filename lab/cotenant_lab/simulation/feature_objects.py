"""The objects by which the demo's cluster shows features: quotas and a gang, an AutopilotPolicy, a descheduler. Pure.

Production namespaces are bound to one quota, so that their pods count; a research team has a guarantee, and jobs that
request more than it may use. Pods have the gates that the webhook adds at creation, because the demo has no webhook.
The policy observes one namespace, until somebody lets it act.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from cotenant.autopilot.model import POLICIES
from cotenant.base.cluster import Inventory
from cotenant.base.kubernetes.protocol import GANG_GATE, OWN_GROUP, QUOTA_GATE, RESERVATION_GATE
from cotenant.base.kubernetes.quota_tree import IS_PARENT_LABEL, NAMESPACES_ANNOTATION, PARENT_LABEL
from cotenant.base.resource import GIB, MILLICORES_PER_CORE, Resource
from cotenant.scheduler_ext.queues.model.gang import POD_GROUP_LABEL
from cotenant_lab.simulation.objects import DEMO_LABELS, PAUSE_IMAGE

Json = dict[str, Any]
GROUP: Final = "/apis/scheduling.sigs.k8s.io/v1alpha1"
QUEUE_NAMESPACE: Final = "research"
GUARANTEED_CORES: Final = 8
MOST_CORES: Final = 16
JOBS: Final = 6
JOB_CORES: Final = 4
GANG: Final = "train"
GANG_SIZE: Final = 4
GANG_PODS: Final = 3
"""One fewer than must start together: the demo shows a gang that waits for its last pod."""
MINIMUM_CONFIDENCE: Final = 0.6
"""Least confidence in the demo's ceiling: its few weeks of history are not enough for the default."""
POLICY_NAME: Final = "nightly"
POLICY_SPEC: Final[Json] = {
    "mode": "Observe",
    "directions": ["Down", "Up", "UpAfterOOMKill"],
    "largestCut": {"cpu": 0.2, "memory": 0.15},
    "windows": ["mon-sun 20:00-06:00 Etc/UTC"],
    "atOnce": 2,
}
DESCHEDULER_CONFIGURATION: Final[Json] = {
    "kind": "LowNodeLoadArgs",
    "nodeMetricExpirationSeconds": 0,
    "evictableNamespaces": {"exclude": ["kube-system"]},
    "lowThresholds": {"cpu": 25, "memory": 60},
    "highThresholds": {"cpu": 50, "memory": 85},
}
"""Arguments of the demo's descheduler. NodeMetrics are written when a pod starts or ends, so that none expires; the
thresholds are below the built-in ones, because the demo's nodes use a quarter of their CPU."""


def queue_objects(inventory: Inventory) -> Iterator[tuple[str, Json]]:
    """Yield (collection path, object): namespace, quotas, jobs, gang; the quotas divide the nodes' allocatable."""
    yield "/api/v1/namespaces", {"metadata": {"name": QUEUE_NAMESPACE, "labels": dict(DEMO_LABELS)}}
    cores = sum(node.allocatable[Resource.CPU] for node in inventory.nodes) // MILLICORES_PER_CORE
    memory_gib = sum(node.allocatable[Resource.MEMORY] for node in inventory.nodes) // GIB
    namespaces = sorted({workload.ref.namespace for workload in inventory.workloads})
    cluster_total, quotas = (cores, memory_gib), f"{GROUP}/namespaces/kube-system/elasticquotas"
    yield quotas, _quota("company", "", cluster_total, cluster_total)
    rest = max(0, cores - GUARANTEED_CORES), max(0, memory_gib - 4 * GUARANTEED_CORES)
    yield quotas, _quota("production", "company", rest, cluster_total, namespaces)
    least, most = (GUARANTEED_CORES, 4 * GUARANTEED_CORES), (MOST_CORES, 4 * MOST_CORES)
    yield quotas, _quota("research", "company", least, most, (QUEUE_NAMESPACE,))
    pods = f"/api/v1/namespaces/{QUEUE_NAMESPACE}/pods"
    for number in range(JOBS):
        yield pods, _pod(f"render-{number}", JOB_CORES, (QUOTA_GATE,))
    head = {"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "PodGroup"}
    gang = {**head, "metadata": {"name": GANG, "labels": dict(DEMO_LABELS)}, "spec": {"minMember": GANG_SIZE}}
    yield f"{GROUP}/namespaces/{QUEUE_NAMESPACE}/podgroups", gang
    gates = (QUOTA_GATE, GANG_GATE, RESERVATION_GATE)
    for number in range(GANG_PODS):
        yield pods, _pod(f"{GANG}-{number}", 1, gates, {POD_GROUP_LABEL: GANG})


def _quota(
    name: str, parent: str, least: tuple[int, int], most: tuple[int, int], namespaces: Sequence[str] = ()
) -> Json:
    labels = {**DEMO_LABELS, IS_PARENT_LABEL: "false" if parent else "true"}
    labels |= {PARENT_LABEL: parent} if parent else {}
    annotations = {NAMESPACES_ANNOTATION: json.dumps(sorted(namespaces))} if namespaces else {}
    amounts = ({"cpu": str(cpu), "memory": f"{memory}Gi"} for cpu, memory in (least, most))
    metadata = {"name": name, "labels": labels, "annotations": annotations}
    spec, version = dict(zip(("min", "max"), amounts, strict=True)), "scheduling.sigs.k8s.io/v1alpha1"
    return {"apiVersion": version, "kind": "ElasticQuota", "metadata": metadata, "spec": spec}


def _pod(name: str, cores: int, gates: Sequence[str], labels: Json | None = None) -> Json:
    requests = {"cpu": str(cores), "memory": f"{cores}Gi"}
    container = {"name": "work", "image": PAUSE_IMAGE, "resources": {"requests": requests, "limits": requests}}
    spec = {"containers": [container], "schedulingGates": [{"name": gate} for gate in gates]}
    return {"metadata": {"name": name, "labels": {**DEMO_LABELS, **(labels or {})}}, "spec": spec}


def policy_objects(inventory: Inventory) -> Iterator[tuple[str, Json]]:
    """Yield (collection path, object) of one policy, in the namespace with most Deployments of several replicas."""
    several = (w for w in inventory.workloads if w.ref.kind == "Deployment" and w.replicas > 1)
    counts = Counter(workload.ref.namespace for workload in several)
    for namespace, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:1]:
        meta = {"name": POLICY_NAME, "namespace": namespace, "labels": dict(DEMO_LABELS)}
        body = {"apiVersion": OWN_GROUP, "kind": "AutopilotPolicy", "metadata": meta, "spec": POLICY_SPEC}
        yield f"/apis/{OWN_GROUP}/namespaces/{namespace}/{POLICIES}", body
