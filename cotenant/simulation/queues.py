"""A small tree of quotas and a gang for the demo's cluster, with jobs that wait for them. Pure.

Production namespaces are bound to one quota, so that their pods count; a research team has a guarantee, and jobs that
ask for more than it may use. Pods carry the gates that the webhook adds at creation, because the demo has no webhook.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from cotenant.base.cluster import Inventory
from cotenant.base.kubernetes.protocol import GANG_GATE, QUOTA_GATE, RESERVATION_GATE
from cotenant.base.resource import GIB, MILLICORES_PER_CORE, Resource
from cotenant.scheduler_ext.queues.model.gang import POD_GROUP_LABEL
from cotenant.scheduler_ext.queues.model.quota_tree import IS_PARENT_LABEL, NAMESPACES_ANNOTATION, PARENT_LABEL
from cotenant.simulation.objects import DEMO_LABELS, PAUSE_IMAGE

Json = dict[str, Any]
GROUP: Final = "/apis/scheduling.sigs.k8s.io/v1alpha1"
NAMESPACE: Final = "research"
GUARANTEED_CORES: Final = 8
MOST_CORES: Final = 16
JOBS: Final = 6
JOB_CORES: Final = 4
GANG: Final = "train"
GANG_SIZE: Final = 4
GANG_PODS: Final = 3
"""One fewer than must start together: the demo shows a gang that waits for its last pod."""


def queue_objects(inventory: Inventory) -> Iterator[tuple[str, Json]]:
    """(collection path, object): namespace, quotas, jobs, the gang. The tree shares what all nodes offer."""
    yield "/api/v1/namespaces", {"metadata": {"name": NAMESPACE, "labels": dict(DEMO_LABELS)}}
    cores = sum(node.allocatable[Resource.CPU] for node in inventory.nodes) // MILLICORES_PER_CORE
    memory_gib = sum(node.allocatable[Resource.MEMORY] for node in inventory.nodes) // GIB
    namespaces = sorted({workload.ref.namespace for workload in inventory.workloads})
    cluster_total, quotas = (cores, memory_gib), f"{GROUP}/namespaces/kube-system/elasticquotas"
    yield quotas, _quota("company", "", cluster_total, cluster_total)
    rest = max(0, cores - GUARANTEED_CORES), max(0, memory_gib - 4 * GUARANTEED_CORES)
    yield quotas, _quota("production", "company", rest, cluster_total, namespaces)
    least, most = (GUARANTEED_CORES, 4 * GUARANTEED_CORES), (MOST_CORES, 4 * MOST_CORES)
    yield quotas, _quota("research", "company", least, most, (NAMESPACE,))
    pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
    for number in range(JOBS):
        yield pods, _pod(f"render-{number}", JOB_CORES, (QUOTA_GATE,))
    yield f"{GROUP}/namespaces/{NAMESPACE}/podgroups", _pod_group()
    gates = (QUOTA_GATE, GANG_GATE, RESERVATION_GATE)
    for number in range(GANG_PODS):
        yield pods, _pod(f"{GANG}-{number}", 1, gates, {POD_GROUP_LABEL: GANG})


def _quota(
    name: str, parent: str, least: tuple[int, int], most: tuple[int, int], namespaces: Sequence[str] = ()
) -> Json:
    labels = {
        **DEMO_LABELS,
        IS_PARENT_LABEL: "false" if parent else "true",
        **({PARENT_LABEL: parent} if parent else {}),
    }
    annotations = {NAMESPACES_ANNOTATION: json.dumps(sorted(namespaces))} if namespaces else {}
    amounts = ({"cpu": str(cpu), "memory": f"{memory}Gi"} for cpu, memory in (least, most))
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": dict(zip(("min", "max"), amounts, strict=True)),
    }


def _pod(name: str, cores: int, gates: Sequence[str], labels: Json | None = None) -> Json:
    requests = {"cpu": str(cores), "memory": f"{cores}Gi"}
    container = {"name": "work", "image": PAUSE_IMAGE, "resources": {"requests": requests, "limits": requests}}
    spec = {"containers": [container], "schedulingGates": [{"name": gate} for gate in gates]}
    return {"metadata": {"name": name, "labels": {**DEMO_LABELS, **(labels or {})}}, "spec": spec}


def _pod_group() -> Json:
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": GANG, "labels": dict(DEMO_LABELS)},
        "spec": {"minMember": GANG_SIZE},
    }
