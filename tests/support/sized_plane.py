"""A seeded cluster on a real control plane: workloads by their controllers, pods by the stock kube-scheduler.

build_cluster(plane, cluster)
take_out(plane, cluster, names)      # nodes and their pods are gone, controllers create the pods again
take_out_in_turn(plane, cluster, names)    # the same node by node, each once the pods of the one before have a node
waiting_pods(plane, cluster)         # once the scheduler has tried all
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from cotenant.scheduler_ext.cluster_size.model import SizedCluster
from cotenant.scheduler_ext.cluster_size.reading import read_cluster
from tests.cluster.api import Api, ApiError, Json
from tests.cluster.control_plane import ControlPlane
from tests.cluster.fake_nodes import NodeShape, create_nodes, delete_nodes, each
from tests.cluster.namespaces import create_namespace
from tests.cluster.waiting import wait_for
from tests.support.sized_clusters import SeededCluster

LONG_SECONDS = 900.0
PATIENCE_SECONDS = 60.0
"""For a pod that was refused while an event (a claim, a node that goes) was under way and that is tried again."""
READS = {
    "": ["nodes", "pods", "namespaces", "persistentvolumes", "persistentvolumeclaims"],
    "policy": ["poddisruptionbudgets"],
    "storage.k8s.io": ["csinodes"],
}
"""What the question reads, by API group."""


def planner(plane: ControlPlane, without: Collection[str] = ()) -> Path:
    """Kubeconfig of somebody who may list what the question reads, and nothing else; without: but for these."""
    name = "-".join(["planner", *sorted(without)])
    rules = [
        {"apiGroups": [group], "resources": [r for r in resources if r not in without], "verbs": ["list"]}
        for group, resources in READS.items()
    ]
    role = {"metadata": {"name": name}, "rules": [rule for rule in rules if rule["resources"]]}
    subject = {"kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io"}
    reference = {"kind": "ClusterRole", "name": name, "apiGroup": "rbac.authorization.k8s.io"}
    path = "/apis/rbac.authorization.k8s.io/v1"
    if not plane.api().exists(f"{path}/clusterroles/{name}"):
        plane.api().create(f"{path}/clusterroles", role)
        binding = {"metadata": {"name": name}, "subjects": [subject], "roleRef": reference}
        plane.api().create(f"{path}/clusterrolebindings", binding)
    return plane.user(name)


def read_as_planner(plane: ControlPlane) -> SizedCluster:
    """Return the cluster as that somebody reads it."""
    client = plane.client(planner(plane))
    try:
        return read_cluster(client)
    finally:
        client.close()


def build_cluster(plane: ControlPlane, cluster: SeededCluster) -> None:
    """Nodes, volumes, budgets, DaemonSets and Deployments; returns when every pod runs."""
    api, space = plane.api(), cluster.namespace
    create_namespace(api, space)

    def customise(number: int, node: Json) -> None:
        own = cluster.node(number)
        node["metadata"] |= {"name": own["name"], "labels": {**node["metadata"]["labels"], **own["labels"]}}
        node["status"] |= {"allocatable": own["allocatable"], "capacity": own["allocatable"]}

    create_nodes(plane, cluster.nodes, NodeShape(prefix=f"size-{cluster.seed}"), customise)
    for volume in cluster.volumes:
        api.create("/api/v1/persistentvolumes", volume)
        claim = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "",
            "volumeName": volume["metadata"]["name"],
            "resources": {"requests": {"storage": "1Gi"}},
        }
        meta = {"name": volume["spec"]["claimRef"]["name"]}
        api.create(f"/api/v1/namespaces/{space}/persistentvolumeclaims", {"metadata": meta, "spec": claim})
    wait_for("bound claims", lambda: _all_bound(api, space), LONG_SECONDS)
    for daemon in cluster.daemons:
        api.create(f"/apis/apps/v1/namespaces/{space}/daemonsets", daemon)
    _wait_for_pods(plane, cluster, cluster.nodes * len(cluster.daemons))
    path = f"/apis/apps/v1/namespaces/{space}/deployments"
    each(plane.api, cluster.workloads, lambda own_api, body: own_api.create(path, body))
    for budget in cluster.budgets:
        api.create(f"/apis/policy/v1/namespaces/{space}/poddisruptionbudgets", budget)
    wait_settled(plane, cluster)
    wait_for("a place for every pod", lambda: not waiting_pods(plane, cluster), PATIENCE_SECONDS, 0.5)
    _wait_for_pods(plane, cluster, cluster.nodes * len(cluster.daemons) + replicas_of(cluster))
    wait_for("budgets that let a pod leave", lambda: _budgets_allow(api, space), LONG_SECONDS)


def replicas_of(cluster: SeededCluster) -> int:
    """Pods of all workloads, without DaemonSets."""
    return sum(int(workload["spec"]["replicas"]) for workload in cluster.workloads)


def take_out(plane: ControlPlane, cluster: SeededCluster, names: Iterable[str]) -> None:
    """Delete nodes and the pods on them, and wait until the scheduler has tried every pod that is created again."""
    removed = set(names)
    delete_nodes(plane, removed)
    path = f"/api/v1/namespaces/{cluster.namespace}/pods"
    pods = [pod["metadata"]["name"] for pod in plane.api().items(path) if pod["spec"].get("nodeName") in removed]

    def delete(api: Api, name: str) -> None:
        try:
            api.delete(f"{path}/{name}", gracePeriodSeconds="0")
        except ApiError as error:
            if error.status != 404:
                raise

    each(plane.api, pods, delete)
    wait_settled(plane, cluster)


def take_out_in_turn(plane: ControlPlane, cluster: SeededCluster, names: Sequence[str]) -> list[str]:
    """Cordon nodes, then delete one after the other with its pods, each when every pod has a node.

    Names of the pods that found none after a while, with the scheduler's words: the nodes after that stay.
    """
    api, path = plane.api(), f"/api/v1/namespaces/{cluster.namespace}/pods"
    for name in names:
        api.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": True}})
    for removed_count, name in enumerate(names, 1):
        pods = api.items(path, fieldSelector=f"spec.nodeName={name}")
        api.delete(f"/api/v1/nodes/{name}")
        for pod in pods:
            with suppress(ApiError):  # the collector of pods without a node may have been faster
                api.delete(f"{path}/{pod['metadata']['name']}", gracePeriodSeconds="0")
        count = replicas_of(cluster) + (cluster.nodes - removed_count) * len(cluster.daemons)
        with suppress(AssertionError):
            wait_for("a node for every pod", lambda count=count: _all_placed(api, path, count), PATIENCE_SECONDS)
            continue
        return waiting_pods(plane, cluster)
    return []


def _all_placed(api: Api, path: str, count: int) -> bool:
    """Whether there are as many pods, and none of them without a node."""
    page = api.get(path, limit="1")
    placed = len(page["items"]) + page["metadata"].get("remainingItemCount", 0)
    return bool(placed == count and not api.items(path, fieldSelector="spec.nodeName="))


def wait_settled(plane: ControlPlane, cluster: SeededCluster) -> None:
    """Until every pod of the workloads exists, and each has a node or the scheduler's word that it finds none."""
    api, count = plane.api(), replicas_of(cluster)

    def settled() -> bool:
        pods = [pod for pod in _pods(api, cluster) if pod["metadata"]["labels"]["app"] != "agent"]
        decided = [pod for pod in pods if pod["spec"].get("nodeName") or _is_unschedulable(pod)]
        return len(pods) == len(decided) == count

    wait_for("a scheduler that has tried every pod", settled, LONG_SECONDS, 0.5)


def waiting_pods(plane: ControlPlane, cluster: SeededCluster) -> list[str]:
    """Names of the pods without a node, with the scheduler's words."""
    return [
        f"{pod['metadata']['name']}: {_message(pod)}"
        for pod in _pods(plane.api(), cluster)
        if not pod["spec"].get("nodeName") and pod["metadata"]["labels"]["app"] != "agent"
    ]


def pods_left_waiting(plane: ControlPlane, cluster: SeededCluster, seconds: float = PATIENCE_SECONDS) -> list[str]:
    """Names of the pods that have no node after this time; returns at once when every pod has one."""
    with suppress(AssertionError):
        wait_for("a place for every pod", lambda: not waiting_pods(plane, cluster), seconds, 0.5)
    return waiting_pods(plane, cluster)


def _all_bound(api: Api, space: str) -> bool:
    claims = api.items(f"/api/v1/namespaces/{space}/persistentvolumeclaims")
    return all(claim["status"].get("phase") == "Bound" for claim in claims)


def _pods(api: Api, cluster: SeededCluster) -> list[Json]:
    pods = api.items(f"/api/v1/namespaces/{cluster.namespace}/pods")
    return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]


def _is_unschedulable(pod: Json) -> bool:
    return any(c["type"] == "PodScheduled" and c.get("reason") == "Unschedulable" for c in _conditions(pod))


def _conditions(pod: Json) -> list[Json]:
    return pod["status"].get("conditions") or []


def _message(pod: Json) -> str:
    return next((c.get("message", "") for c in _conditions(pod) if c["type"] == "PodScheduled"), "")


def _wait_for_pods(plane: ControlPlane, cluster: SeededCluster, count: int) -> None:
    api = plane.api()

    def running() -> bool:
        return sum(pod["status"].get("phase") == "Running" for pod in _pods(api, cluster)) == count

    wait_for(f"{count} running pods", running, LONG_SECONDS, 0.5)


def _budgets_allow(api: Api, space: str) -> bool:
    budgets = api.items(f"/apis/policy/v1/namespaces/{space}/poddisruptionbudgets")
    return all(budget.get("status", {}).get("disruptionsAllowed") == 1 for budget in budgets)
