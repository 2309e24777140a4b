"""What every rendered object must keep: the restricted profile of pods, budgets, network policies, narrow rights.

violations(objects) -> ["Deployment/cotenant-manager: ..."], empty when all is well
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

Json = dict[str, Any]

WATCHDOG = "watchdog"
"""A container that answers nobody, so that no probe can ask it: it waits for the agent's end."""
ROOT_ON_THE_NODE = "cotenant-enforcer"
"""The one pod that runs as root and mounts folders of the node: cgroup files belong to root. It has no capability."""
RUNNING = ("Deployment", "DaemonSet", "CronJob", "Job", "Pod")


def violations(objects: Sequence[Json]) -> list[str]:
    """Each rule that an object breaks, with the object's kind and name."""
    return [
        f"{body['kind']}/{body['metadata']['name']}: {problem}"
        for body in objects
        for problem in (*_rights(body), *_pod_problems(body, objects))
    ]


def pod_template(body: Json) -> Json | None:
    """The pod's metadata and spec of an object that runs pods."""
    if body["kind"] == "Pod":
        return body
    if body["kind"] not in RUNNING:
        return None
    spec = body["spec"]
    template: Json = spec["jobTemplate"]["spec"]["template"] if body["kind"] == "CronJob" else spec["template"]
    return template


def _rights(body: Json) -> Iterator[str]:
    for rule in body.get("rules", ()) if body["kind"] in ("Role", "ClusterRole") else ():
        if any("*" in member for members in rule.values() for member in members):
            yield f"a wildcard in the rights {rule}"


def _pod_problems(body: Json, objects: Sequence[Json]) -> Iterator[str]:
    template = pod_template(body)
    if template is None:
        return
    pod, labels = template["spec"], template["metadata"]["labels"]
    exempt = body["metadata"]["name"] == ROOT_ON_THE_NODE
    if pod.get("serviceAccountName", "default") == "default":
        yield "no ServiceAccount of its own"
    if (pod.get("nodeSelector") or {}).get("kubernetes.io/os") != "linux":
        yield "a node of Windows may be chosen, for which there is no image"
    yield from (f"{key} is on" for key in ("hostNetwork", "hostPID", "hostIPC") if pod.get(key))
    if not exempt:
        yield from (f"volume {v['name']} is a folder of the node" for v in pod.get("volumes", ()) if "hostPath" in v)
    for container in (*pod.get("initContainers", ()), *pod["containers"]):
        for problem in _container_problems(
            container, exempt=exempt, serves=body["kind"] in ("Deployment", "DaemonSet")
        ):
            yield f"container {container['name']}: {problem}"
    if body["kind"] == "Deployment":
        if not any(_selects(o, "PodDisruptionBudget", "selector", labels) for o in objects):
            yield "no PodDisruptionBudget"
        if not pod.get("topologySpreadConstraints"):
            yield "no topology spread"
    critical = pod.get("priorityClassName", "")
    if critical.startswith("system-") and not any(_allows(o, critical) for o in objects):
        yield f"no ResourceQuota for pods of class {critical}"
    policies = [o for o in objects if o["kind"] == "NetworkPolicy"]
    if policies and not any(_selects(o, "NetworkPolicy", "podSelector", labels) for o in policies):
        yield "no NetworkPolicy"


def _container_problems(container: Json, *, exempt: bool, serves: bool) -> Iterator[str]:
    context = container.get("securityContext", {})
    if not exempt and not (context.get("runAsNonRoot") is True and context.get("runAsUser", 0) > 0):
        yield "may run as root"
    expected = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True}
    yield from (f"{key} is not {value}" for key, value in expected.items() if context.get(key) is not value)
    if context.get("privileged"):
        yield "is privileged"
    if context.get("capabilities", {}) != {"drop": ["ALL"]}:
        yield "keeps capabilities"
    if context.get("seccompProfile", {}).get("type") != "RuntimeDefault":
        yield "no seccomp profile"
    resources = container.get("resources", {})
    if not {"cpu", "memory"} <= set(resources.get("requests", {})) or "memory" not in resources.get("limits", {}):
        yield "no requests, or no limit of memory"
    if serves and container["name"] != WATCHDOG and not {"livenessProbe", "readinessProbe"} <= set(container):
        yield "no probes"
    tag = container["image"].rpartition("/")[2].partition(":")[2]
    if tag in ("", "latest"):
        yield f"the image {container['image']} has no version"


def _allows(body: Json, priority_class: str) -> bool:
    """Whether an object is a quota by which our namespace may have pods of a class, as GKE demands it."""
    if body["kind"] != "ResourceQuota" or body["metadata"]["namespace"] != "cotenant":
        return False
    scopes = body["spec"]["scopeSelector"]["matchExpressions"]
    return any(s["scopeName"] == "PriorityClass" and priority_class in s["values"] for s in scopes)


def _selects(body: Json, kind: str, field: str, labels: Json) -> bool:
    """Whether an object of the kind selects pods with these labels; of expressions only Exists and In are known."""
    if body["kind"] != kind:
        return False
    selector = body["spec"].get(field, {})
    exact = selector.get("matchLabels", {}).items() <= labels.items()
    return exact and all(
        e["key"] in labels and (e["operator"] == "Exists" or labels[e["key"]] in e.get("values", ()))
        for e in selector.get("matchExpressions", ())
    )
