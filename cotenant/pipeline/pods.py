"""The table of running pods: node, requests and present usage, from inventory and newest usage. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from cotenant.base.cluster import Inventory, Pod
from cotenant.base.resource import Resource
from cotenant.base.table import Table
from cotenant.recommender.model.views import PODS


def pods(inventory: Inventory, present: Mapping[Resource, Mapping[tuple[str, str], float]]) -> Table:
    """One row per pod that runs (or waits for a node), by node and name; present: usage by (namespace, pod)."""
    running = sorted((p for p in inventory.pods if p.running), key=lambda p: (p.node, p.namespace, p.name))
    return Table.from_rows(
        PODS,
        [
            {**_pod_identity(pod), **_amounts(pod, {r: u.get((pod.namespace, pod.name)) for r, u in present.items()})}
            for pod in running
        ],
    )


def _pod_identity(pod: Pod) -> dict[str, Any]:
    return {
        "namespace": pod.namespace,
        "pod": pod.name,
        "node": pod.node,
        "kind": pod.workload.kind,
        "workload": pod.workload.name,
        "qos": pod.qos.value,
        "priority": pod.priority.value,
        "start": pod.start_seconds,
    }


def _amounts(pod: Pod, used: dict[Resource, float | None]) -> dict[str, Any]:
    """Request, present usage and their ratio of each resource; what is not known is None, and the ratio then NaN."""
    cells: dict[str, Any] = {}
    for resource, usage in used.items():
        request = None if resource in pod.in_doubt else pod.requests.get(resource)
        cells[f"{resource}_request"] = request
        cells[f"{resource}_usage"] = None if usage is None else round(usage)
        cells[f"{resource}_used_ratio"] = math.nan if usage is None or not request else usage / request
    return cells
