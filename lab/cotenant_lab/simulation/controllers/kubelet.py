"""A simulated kubelet: starts pods after a delay, applies resizes, and writes both into the pod's status. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from cotenant.base.kubernetes.moments import moment, moment_of
from cotenant.base.kubernetes.pod_request import fits, parse_quantities
from cotenant.base.kubernetes.pod_wire import RESIZE_IN_PROGRESS, RESIZE_PENDING, requests_of
from cotenant.base.kubernetes.protocol import PLACEHOLDER_NAMESPACE
from cotenant_lab.simulation.api_server.writes import resizable
from cotenant_lab.simulation.population import container_status, running_status, start_seconds

Json = dict[str, Any]

_STATUSES: Final = {"containers": "containerStatuses", "initContainers": "initContainerStatuses"}
PLACEHOLDER_SECONDS: Final = 2.0
"""A pause container has nothing to load."""


def delay_seconds(pod: Mapping[str, Any]) -> float:
    """Return the time from binding to ready, in seconds."""
    meta = pod["metadata"]
    return PLACEHOLDER_SECONDS if meta.get("namespace") == PLACEHOLDER_NAMESPACE else start_seconds(meta["name"])


def bound_status(pod: Json, now_seconds: float) -> Json:
    """Return the status of a pod that the scheduler has just bound."""
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": moment(now_seconds)}
    return {**(pod.get("status") or {}), "phase": "Pending", "conditions": [scheduled]}


def unschedulable_status(pod: Json, nodes: int, now_seconds: float) -> Json:
    """Return the status of a pod that fits on no node; unchanged if it already says so."""
    status = pod.get("status") or {}
    conditions = [c for c in status.get("conditions") or () if c["type"] == "PodScheduled"]
    if conditions and conditions[0].get("reason") == "Unschedulable":
        return status
    message = f"0/{nodes} nodes are available: insufficient capacity."
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    conditions = [{**condition, "lastTransitionTime": moment(now_seconds)}]
    return {**status, "phase": "Pending", "conditions": conditions}


def started_status(pod: Json, now_seconds: float) -> Json | None:
    """Return the status of a pod that becomes ready now; None before that, and if it runs already."""
    status = pod.get("status") or {}
    if status.get("phase") != "Pending":
        return None
    moments = (c["lastTransitionTime"] for c in status.get("conditions") or () if c["type"] == "PodScheduled")
    since = moment_of(next(moments, None), "PodScheduled")
    if since is None or now_seconds < since + delay_seconds(pod):
        return None
    return {**status, **running_status(pod, moment(now_seconds))}


def resized_status(
    pod: Json, allocatable: Mapping[str, Any], others: Mapping[str, int], now_seconds: float
) -> Json | None:
    """Return the status after a change of a running pod's resources; None if nothing is to be done.

    `allocatable` is the node's, as quantities; `others` are the requests of the node's other pods. More than the node
    has is Infeasible, more than is free is Deferred; in both cases the applied amounts stay.
    """
    status = pod.get("status") or {}
    differs = (
        (container.get("resources") or {}) != (reported_status.get("resources") or {})
        for group, key in _STATUSES.items()
        for container, reported_status in _containers_with_status(pod, group, key)
        if reported_status and resizable(container, group)
    )
    if status.get("phase") != "Running" or not any(differs):
        return None
    of_node = parse_quantities(allocatable)
    requests = {n: a for n, a in requests_of(pod["spec"]).items() if n in ("cpu", "memory")}
    free = {name: of_node.get(name, 0) - others.get(name, 0) for name in requests}
    why = "Infeasible" if not fits(requests, of_node) else "Deferred" if not fits(requests, free) else ""
    conditions = [c for c in status.get("conditions") or () if c["type"] not in (RESIZE_PENDING, RESIZE_IN_PROGRESS)]
    generation = pod["metadata"].get("generation", 1)
    if why:
        message = "Node didn't have enough capacity" if why == "Infeasible" else "Node didn't have enough resource"
        told_before = [c for c in status.get("conditions") or () if c["type"] == RESIZE_PENDING]
        times = (str(c["lastTransitionTime"]) for c in told_before if c.get("reason") == why)
        condition = {"type": RESIZE_PENDING, "status": "True", "reason": why, "message": message}
        condition["lastTransitionTime"] = next(times, moment(now_seconds))
        changed = {**status, "conditions": [*conditions, condition]}
        return changed if changed != status else None
    changed = {**status, "conditions": conditions, "observedGeneration": generation}
    for group, key in _STATUSES.items():
        every = []
        for container, reported_status in _containers_with_status(pod, group, key):
            if resizable(container, group) and (reported_status or group == "containers"):
                fresh = container_status(container, moment(now_seconds))  # with the amounts that its spec asks for
                in_force = {name: fresh[name] for name in ("resources", "allocatedResources")}
                every.append({**fresh, **reported_status, **in_force})
            elif reported_status:
                every.append(reported_status)
        if every:
            changed[key] = every
    return changed


def _containers_with_status(pod: Json, group: str, key: str) -> Iterator[tuple[Json, Json]]:
    """A group's containers with their statuses; {} for one without."""
    statuses = {status["name"]: status for status in pod["status"].get(key) or ()}
    return ((container, statuses.get(container["name"], {})) for container in pod["spec"].get(group) or ())
