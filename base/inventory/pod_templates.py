"""The containers of a workload's pods, whether one template creates all pods or several do. Pure.

A Deployment has one template, and its youngest pod shows it. An operator's object has a head and workers, a driver and
executors: its containers are those of all its pods, each with its number of pods. If containers of several templates
have one name (in a master and in its workers), they are not mixed: the container gets the gap SEVERAL_TEMPLATES.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from cotenant.base.cluster import Container, ContainerRole, Pod, RunningSum
from cotenant.base.identity import WorkloadRef
from cotenant.base.reasons import Reason

Key = tuple[str, str]
ONE_TEMPLATE: Final = frozenset(
    {
        *("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "CronJob", "ReplicationController"),
        *("DeploymentConfig", "Rollout", "CloneSet"),
    }
)
"""Kinds whose object has one template for its pods; during a rollout the youngest pod has the new one."""
ROLE_LABELS: Final = (
    *("ray.io/node-type", "ray.io/group", "spark-role", "volcano.sh/task-spec", "replica-type"),
    *("training.kubeflow.org/replica-type", "training.kubeflow.org/job-role", "mpi-job-role"),
    *("jobset.sigs.k8s.io/replicatedjob-name", "strimzi.io/pool-name", "strimzi.io/component-type"),
    *("app.kubernetes.io/component", "component"),
)
"""Labels by which operators distinguish the pods of one object."""
_MADE: Final = re.compile(r"[0-9]+|[bcdfghjklmnpqrstvwxz2456789]{5}|[bcdfghjklmnpqrstvwxz2456789]{8,10}")
"""An ordinal, a random ending or a hash, of which Kubernetes puts several with dashes at the end of a name."""


def role_of(workload: WorkloadRef, pod: str, labels: Mapping[str, str], direct: WorkloadRef | None) -> str:
    """Return the role of a pod within its workload, by ROLE_LABELS or the pod's name; "" if the pods are all alike.

    `labels` are the pod's, by their names in Kubernetes. If `direct`, its owner, is a Deployment, the role is "direct".
    """
    if workload.kind in ONE_TEMPLATE:
        # Flink's task managers belong to the Deployment of their job manager, with no ReplicaSet between.
        return "direct" if workload.kind == "Deployment" and direct == workload else ""
    role_values = [labels[label] for label in ROLE_LABELS if labels.get(label)]
    if role_values:
        return "/".join(role_values)
    stem = without_endings(pod.rpartition("-")[0], _MADE.fullmatch)
    return stem if len(stem) > len(workload.name) else ""


def without_endings(name: str, is_made: Callable[[str], object]) -> str:
    """Return a name without the generated parts at its end (`is_made` is true for them); its first part is kept."""
    parts = name.split("-")
    while len(parts) > 1 and is_made(parts[-1]):
        parts.pop()
    return "-".join(parts)


def template(pods: Sequence[Pod], containers: Mapping[Key, Sequence[Container]]) -> tuple[Container, ...]:
    """Return the containers of the workload that has these pods; `containers` maps each pod to its known containers."""
    described = sorted(
        (pod for pod in pods if containers.get((pod.namespace, pod.name))),
        key=lambda pod: (pod.running, pod.start_seconds, pod.name),
        reverse=True,
    )
    if not described:
        return ()
    alive = [pod for pod in described if pod.running]
    youngest = containers[described[0].namespace, described[0].name]
    serving = [containers[pod.namespace, pod.name] for pod in alive if pod.serving]
    # One template makes pods of one role if their kind has one, or if they look alike; the youngest pod then shows it.
    is_told = all(pod.workload.kind in ONE_TEMPLATE and pod.start_seconds for pod in alive)
    if len({pod.role for pod in alive}) > 1 or not (
        is_told or len({_shape(containers[pod.namespace, pod.name]) for pod in alive}) == 1
    ):
        return tuple(_with_running_sums(container, serving) for container in _merge_containers(alive, containers))
    return tuple(_with_running_sums(container, serving) for container in youngest)


def _with_running_sums(container: Container, serving: Iterable[Sequence[Container]]) -> Container:
    """Return the container with the highest request of any pod, at most its limit, and the sums of all pods."""
    copies = [copy for pod in serving for copy in pod if copy.name == container.name]
    requests, running = dict(container.requests), {}
    for resource, own in container.effective_requests.items():
        amounts = [copy.effective_requests.get(resource, 0) for copy in copies]
        limit = container.limits.get(resource)
        highest = max((a for a in amounts if limit is None or a <= limit), default=own)
        if resource in requests and Reason.SEVERAL_TEMPLATES not in container.gaps:
            requests[resource] = highest
        sums = [copy.running.get(resource, RunningSum(1, a, a)) for copy, a in zip(copies, amounts, strict=True)]
        total = RunningSum.of(sums)
        if copies and total.differs_from(requests.get(resource, own)):
            running[resource] = total
    return replace(container, requests=requests, running=running)


def _merge_containers(pods: Sequence[Pod], containers: Mapping[Key, Sequence[Container]]) -> Iterable[Container]:
    """Yield every container of the pods, the youngest pod's first, with the number of pods that have it."""
    holders: dict[str, list[tuple[Pod, Container]]] = {}
    for pod in pods:
        for container in containers[pod.namespace, pod.name]:
            holders.setdefault(container.name, []).append((pod, container))
    for pairs in sorted(
        holders.values(), key=lambda holder: holder[0][1].role in (ContainerRole.INIT, ContainerRole.SIDECAR)
    ):
        container = pairs[0][1]
        mixed = len({pod.role for pod, _ in pairs}) > 1 or len({_shape([other]) for _, other in pairs}) > 1
        count = None if len(pairs) == len(pods) else sum(pod.serving for pod, _ in pairs)
        yield replace(container, pods=count, gaps=(Reason.SEVERAL_TEMPLATES,) if mixed else ())


def _shape(containers: Iterable[Container]) -> frozenset[tuple[object, ...]]:
    return frozenset(
        (c.name, c.role, tuple(sorted(c.requests.items())), tuple(sorted(c.limits.items()))) for c in containers
    )
