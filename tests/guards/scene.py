"""Objects of every guarded kind on a real API server, and how a thief of one account's token asks for changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.cluster.accounts import install_rights
from tests.cluster.api import Api, ApiError
from tests.cluster.control_plane import ControlPlane
from tests.cluster.namespaces import create_namespace

Json = dict[str, Any]
IMAGE = "example.invalid/a:1"
SHOP = "guarded-shop"
"""Namespace of the workloads that a thief tries to change; the role cotenant-applier is bound to the manager in it."""
LABELS = {"app": "web"}
APPS = f"/apis/apps/v1/namespaces/{SHOP}"
CORE = f"/api/v1/namespaces/{SHOP}"


@dataclass(frozen=True)
class Act:
    """One request: what it is, and what is sent."""

    title: str
    method: str
    path: str
    body: Any = None
    kind: str = "application/merge-patch+json"
    """Of a patch."""


@dataclass(frozen=True)
class Answer:
    """HTTP status, the refusal's message, and the object as it would be."""

    status: int
    message: str = ""
    body: Any = None

    @property
    def by_policy(self) -> bool:
        """Whether an admission policy refused it."""
        return "ValidatingAdmissionPolicy" in self.message


def outcome(api: Api, act: Act) -> Answer:
    """The act as a dry run, which passes every admission and changes nothing."""
    try:
        kind = act.kind if act.method == "PATCH" else "application/json"
        return Answer(200, "", api.ask(act.method, act.path, act.body, kind, {"dryRun": "All"}))
    except ApiError as error:
        return Answer(error.status, str(error.body.get("message", "")))


def content(live: Json) -> Json:
    """An object without what the server counts and notes at every write."""
    metadata = {
        k: v for k, v in live["metadata"].items() if k not in ("managedFields", "resourceVersion", "generation")
    }
    return {**live, "metadata": metadata}


def is_done(api: Api, admin: Api, act: Act) -> bool:
    """Whether a patch would change the object; what the server drops (a status, a field that is off) is no change.

    A dry run answers with the version that it was made from: where a controller wrote in between, it is asked again.
    """
    while True:
        live = admin.get(act.path.removesuffix("/status"))
        response = outcome(api, act)
        if response.status >= 300:
            return False
        if response.body["metadata"]["resourceVersion"] == live["metadata"]["resourceVersion"]:
            return content(response.body) != content(live)


def thief(plane: ControlPlane, name: str) -> Api:
    """A client that the API server takes for one of our accounts, with the rights and policies of deploy/ in force."""
    install_rights(plane)
    return plane.api(plane.user(f"system:serviceaccount:cotenant:{name}", ["system:serviceaccounts"]))


def pod_spec(**more: Any) -> Json:
    """Of a workload: a container with flags of a heap, and a native sidecar."""
    return {
        "containers": [
            {
                "name": "app",
                "image": IMAGE,
                "command": ["java", "-Xms256m", "-Xmx512m", "-jar", "app.jar"],
                "env": [{"name": "JAVA_OPTS", "value": "-Xmx512m -Dx=1"}, {"name": "MODE", "value": "prod"}],
                "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
            }
        ],
        "initContainers": [
            {"name": "side", "image": IMAGE, "restartPolicy": "Always", "resources": {"requests": {"cpu": "10m"}}}
        ],
        **more,
    }


def _workloads() -> dict[str, Json]:
    """Path of each collection -> the object that stands in it."""
    template = {"metadata": {"labels": LABELS}, "spec": pod_spec()}
    gates = [{"name": "example.invalid/other"}, {"name": "cotenant.dev/quota"}]
    selected = {"selector": {"matchLabels": LABELS}, "template": template}
    once = {"metadata": {"labels": LABELS}, "spec": pod_spec(restartPolicy="Never")}
    return {
        f"{APPS}/deployments": {"replicas": 0, **selected},
        f"{APPS}/statefulsets": {"replicas": 0, "serviceName": "web", **selected},
        f"{APPS}/daemonsets": {**selected, "template": {**template, "spec": pod_spec(nodeSelector={"no": "where"})}},
        f"{APPS}/replicasets": {"replicas": 0, **selected},
        f"{CORE}/replicationcontrollers": {"replicas": 0, "selector": LABELS, "template": template},
        f"{CORE}/pods": pod_spec(schedulingGates=gates),
        f"/apis/batch/v1/namespaces/{SHOP}/cronjobs": {
            "schedule": "0 3 1 1 *",
            "suspend": True,
            "jobTemplate": {"spec": {"template": once}},
        },
        f"/apis/autoscaling/v2/namespaces/{SHOP}/horizontalpodautoscalers": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 2,
            "maxReplicas": 5,
            "metrics": [
                {
                    "type": "Resource",
                    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}},
                }
            ],
        },
    }


def furnished(plane: ControlPlane) -> None:
    """The namespace with one object of each workload kind, and the manager bound to cotenant-applier in it; once."""
    install_rights(plane)
    api = plane.api()
    if api.exists(f"/api/v1/namespaces/{SHOP}"):
        return
    create_namespace(api, SHOP)
    subject = {"kind": "ServiceAccount", "name": "cotenant-manager", "namespace": "cotenant"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cotenant-applier"}
    api.create(
        f"/apis/rbac.authorization.k8s.io/v1/namespaces/{SHOP}/rolebindings",
        {"metadata": {"name": "cotenant-autopilot"}, "roleRef": role, "subjects": [subject]},
    )
    for path, spec in _workloads().items():
        api.create(path, {"metadata": {"name": "web", "annotations": {"team": "shop"}}, "spec": spec})


def running(api: Api, node: str) -> str:
    """The name of a pod that has this node."""
    name = f"runs-{node}"
    api.create(f"{CORE}/pods", {"metadata": {"name": name}, "spec": pod_spec(nodeName=node)})
    return name
