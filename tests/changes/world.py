"""Workloads, recommendations and a kubelet of the test's own, for tests of actions on a real API server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cotenant.base.cluster import ContainerRole
from cotenant.base.identity import ContainerRef, WorkloadRef
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.recommender.model.recommendation import Action, Field, Recommendation, Value
from tests.cluster.api import Api, ApiError
from tests.cluster.control_plane import ControlPlane
from tests.cluster.waiting import wait_for

PENDING = {
    "type": "PodResizePending",
    "status": "True",
    "message": "Node didn't have enough capacity: cpu, requested: 3000, capacity: 2000",
}
RESOURCES = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}}


def deployed(plane: ControlPlane, namespace: str, name: str = "web", replicas: int = 2, **spec: Any) -> WorkloadRef:
    """A Deployment, once all of its pods run on the nodes that there are."""
    workload = created(plane, namespace, name, replicas, **spec)
    ready(plane, workload)
    return workload


def created(plane: ControlPlane, namespace: str, name: str, replicas: int, **spec: Any) -> WorkloadRef:
    """A Deployment that nobody has waited for."""
    labels = {"app": name}
    container = {"name": "app", "image": "example.invalid/a:1", "resources": RESOURCES, **spec.pop("container", {})}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container], **spec}}
    body = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    plane.api().create(f"/apis/apps/v1/namespaces/{namespace}/deployments", {"metadata": {"name": name}, "spec": body})
    return WorkloadRef(namespace, "Deployment", name)


def ready(plane: ControlPlane, workload: WorkloadRef) -> None:
    """Wait until all of its pods run, and its status is of the generation that it has."""
    api, path = plane.api(), _path(workload)
    wait_for(f"{workload} is ready", lambda: _ready(api.get(path)))
    wait_for(f"{workload} is seen", lambda: _seen(api.get(path)))


def _ready(body: dict[str, Any]) -> bool:
    return bool(body["status"].get("readyReplicas", 0) == body["spec"]["replicas"])


def _seen(body: dict[str, Any]) -> bool:
    return bool(body["status"].get("observedGeneration") == body["metadata"]["generation"])


def live(plane: ControlPlane, workload: WorkloadRef) -> dict[str, Any]:
    workload_body: dict[str, Any] = plane.api().get(_path(workload))
    return workload_body


def _path(workload: WorkloadRef) -> str:
    return f"/apis/apps/v1/namespaces/{workload.namespace}/deployments/{workload.name}"


def template(plane: ControlPlane, workload: WorkloadRef) -> dict[str, Any]:
    """Resources of the template's first container."""
    resources: dict[str, Any] = live(plane, workload)["spec"]["template"]["spec"]["containers"][0]["resources"]
    return resources


def pods(plane: ControlPlane, workload: WorkloadRef) -> list[dict[str, Any]]:
    """The workload's pods, by name; those that are being deleted are left out."""
    path = f"/api/v1/namespaces/{workload.namespace}/pods"
    items = plane.api().items(path, labelSelector=f"app={workload.name}")
    return sorted((p for p in items if not p["metadata"].get("deletionTimestamp")), key=lambda p: p["metadata"]["name"])


def cpus(plane: ControlPlane, workload: WorkloadRef) -> list[str]:
    """CPU request of each pod, sorted."""
    return sorted(p["spec"]["containers"][0]["resources"]["requests"]["cpu"] for p in pods(plane, workload))


def recommended(workload: WorkloadRef, amount: int = 800, now: int = 1000, **more: Any) -> Recommendation:
    """A CPU request with good evidence."""
    value = Value(
        Resource.CPU, Field.REQUEST, now, amount, Action.SET, Reason.OK, inputs={"days": 14.0, "coverage": 1.0}
    )
    ref = ContainerRef(workload, "app")
    return Recommendation(ref, "cotenant", 2, (value,), 14 * 86_400, "digest", 0, role=ContainerRole.MAIN, **more)


class Kubelet:
    """Plays the kubelet of one node: pods run there at once, and a resize is answered as `says` has it."""

    def __init__(self, api: Api, node: str) -> None:
        self.api = api
        self.node = node
        self.says = "done"
        """done, Infeasible, Deferred, or nothing."""
        self.only = ""
        """End of the name of the one pod that is answered otherwise than done; "" is all."""
        self.starting = False
        """Pods run, and are not ready yet."""
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._end.set()
        self._thread.join(30)

    def _run(self) -> None:
        while not self._end.wait(0.1):
            for pod in self.api.items("/api/v1/pods", fieldSelector=f"spec.nodeName={self.node}"):
                try:
                    self._look(pod)
                except ApiError:
                    continue  # gone, or changed meanwhile: again in a moment

    def _look(self, pod: dict[str, Any]) -> None:
        status, path = (
            pod.get("status") or {},
            f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}",
        )
        if pod["metadata"].get("deletionTimestamp"):
            self.api.delete(path, gracePeriodSeconds="0")
            return
        have = [container.get("resources") for container in status.get("containerStatuses") or ()]
        want = [container.get("resources") for container in pod["spec"]["containers"]]
        says = self.says if not self.only or pod["metadata"]["name"].endswith(self.only) else "done"
        conditions = {c["type"] for c in status.get("conditions") or () if c["type"] == "PodResizePending"}
        first = status.get("phase") != "Running" or str(not self.starting) not in _ready_statuses(status)
        if first or (have != want and says == "done") or (have == want and conditions):
            self._write(path, pod, [])
        elif have != want and says in ("Infeasible", "Deferred") and not conditions:
            self._write(path, pod, [{**PENDING, "reason": says}], have)

    def _write(self, path: str, pod: dict[str, Any], more: list[Any], have: Any = None) -> None:
        is_ready = str(not self.starting)
        conditions = [{"type": "Initialized", "status": "True"}]
        conditions += [{"type": kind, "status": is_ready} for kind in ("ContainersReady", "Ready")]
        amounts = have or [container.get("resources") for container in pod["spec"]["containers"]]
        statuses = [
            {"name": container["name"], "image": container["image"], "imageID": "", "ready": not self.starting,
             "started": True, "restartCount": 0, "state": {"running": {}}, "resources": resources}
            for container, resources in zip(pod["spec"]["containers"], amounts, strict=True)
        ]  # fmt: skip
        status = {"phase": "Running", "conditions": conditions + more, "containerStatuses": statuses}
        version = {"resourceVersion": pod["metadata"]["resourceVersion"]}
        self.api.patch(f"{path}/status", {"metadata": version, "status": status}, kind="merge")


def _ready_statuses(status: dict[str, Any]) -> list[str]:
    return [c["status"] for c in status.get("conditions") or () if c["type"] == "Ready"]


@contextmanager
def own_node(plane: ControlPlane, name: str) -> Iterator[Kubelet]:
    """A node that nobody plays but the test; pods choose it by the label `test/own`: NAME."""
    offers = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    node = {
        "metadata": {"name": name, "labels": {"test/own": name}},
        "status": {"capacity": offers, "allocatable": offers, "conditions": [{"type": "Ready", "status": "True"}]},
    }
    api = plane.api()
    api.create("/api/v1/nodes", node)
    # The admission plug-in taints a new node; the controller takes that away when it reads that it is ready.
    wait_for("the node takes pods", lambda: not api.get(f"/api/v1/nodes/{name}")["spec"].get("taints"))
    kubelet = Kubelet(plane.api(), name)
    kubelet.start()
    try:
        yield kubelet
    finally:
        kubelet.stop()
        # a connection of its own: the server closes one that was idle for minutes
        plane.api().delete(f"/api/v1/nodes/{name}")
