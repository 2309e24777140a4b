"""The smallest cluster that has a question: two nodes, of which one could leave unless a rule binds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from cotenant.base.kubernetes.models.pod import SizedPodWire
from cotenant.base.kubernetes.pod_request import parse_readable_quantities
from cotenant.scheduler_ext.cluster_size.model import ATTACHED, HOST_PORT, UNLIMITED, SizedCluster, SizedNode
from cotenant.scheduler_ext.cluster_size.pod_rules import ClusterObjects, sized_pod
from cotenant.scheduler_ext.extender.metric import ExtenderNode

Json = dict[str, Any]
AMOUNTS = {"cpu": "4", "memory": "8Gi", "pods": "10"}


def node(name: str, amounts: Mapping[str, str] = AMOUNTS, **facts: Any) -> SizedNode:
    """A node in the zone of its name."""
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": name, **facts.pop("labels", {})}
    parsed = parse_readable_quantities(amounts)
    return SizedNode(ExtenderNode(name, allocatable=parsed, labels=labels, **facts), parsed)


def pod(name: str, where: str, spec: Json | None = None, **meta: Any) -> Json:
    """A Pod of a ReplicaSet that requests one core and 1 GiB."""
    requests = {"requests": {"cpu": "1", "memory": "1Gi"}}
    own = {"nodeName": where, "containers": [{"name": "main", "resources": requests}], **(spec or {})}
    owners = meta.pop("owners", [{"kind": "ReplicaSet", "name": "web", "controller": True}])
    body = {"name": name, "namespace": "shop", "labels": {"app": "web"}, "ownerReferences": owners, **meta}
    return {"metadata": body, "spec": own}


def state(
    nodes: list[SizedNode],
    pods: list[Json],
    objects: ClusterObjects | None = None,
    limits: Mapping[str, int] | None = None,
) -> SizedCluster:
    """The state; limits: of CSI drivers, alike on all nodes."""
    sized = tuple(sized_pod(msgspec.convert(wire_pod, SizedPodWire), objects or ClusterObjects()) for wire_pod in pods)
    names = {name for placed_pod in sized for name in placed_pod.requests}
    more = {name: 1 for name in names if name.startswith(HOST_PORT)}
    for name in names:
        if name.startswith(ATTACHED):
            more[name] = (limits or {}).get(name.removeprefix(ATTACHED), UNLIMITED)
    return SizedCluster(tuple(replace(n, allocatable={**n.allocatable, **more}) for n in nodes), sized)
