"""EDGE: reads the nodes, pods and rules that the computation of the size needs, once. Nothing is written.

Nodes and pods are required. Anything else that cannot be read is a gap, and the affected pods count as immovable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, TypeVar

import msgspec

from cotenant.base.errors import ClusterAbsent, ClusterForbidden, CotenantError, NoData
from cotenant.base.json_documents.json_decoders import UNDECODABLE, decoder_of
from cotenant.base.kube import KubeClient
from cotenant.base.kube.watch import LONGEST_WHY, read_each
from cotenant.base.kubernetes.models.node import SchedulableNode
from cotenant.base.kubernetes.models.pod import PodPlace, SizedPodWire
from cotenant.base.kubernetes.protocol import NOT_ENDED
from cotenant.base.reasons import Reason
from cotenant.scheduler_ext.cluster_size.autoscalers.obstacles import KEPT_NODE
from cotenant.scheduler_ext.cluster_size.demand import Proposals
from cotenant.scheduler_ext.cluster_size.model import (
    ATTACHED,
    HOST_PORT,
    UNLIMITED,
    PodRules,
    SizedCluster,
    SizedNode,
    SizedPod,
    Stay,
)
from cotenant.scheduler_ext.cluster_size.pod_rules import ClusterObjects, sized_pod
from cotenant.scheduler_ext.extender.metric import node_of
from cotenant.scheduler_ext.rebalance.cluster_reading import BUDGETS, BudgetWire, budget_of
from cotenant.scheduler_ext.volumes.reading import read_volumes

Json = dict[str, Any]
_T = TypeVar("_T")
NODES: Final = "/api/v1/nodes"
PODS: Final = "/api/v1/pods"
NAMESPACES: Final = "/api/v1/namespaces"
CSI_NODES: Final = "/apis/storage.k8s.io/v1/csinodes"
CONTROL_PLANE: Final = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")


def read_cluster(client: KubeClient, proposals: Proposals = MappingProxyType({})) -> SizedCluster:
    """Read the cluster; raise ClusterError if nodes or pods cannot be listed, NoData if there are no nodes.

    `proposals` are the recommended requests of containers, by level.
    """
    wires = client.list(NODES, SchedulableNode)
    if not wires:
        raise NoData("the cluster has no nodes", fix="Check that --context names the right cluster.")
    gaps: list[str] = []
    budgets = _try(lambda: client.list(BUDGETS, BudgetWire), "disruption budgets", gaps)
    namespaces = _try(lambda: client.list(NAMESPACES, Json), "namespaces", gaps)
    own_budgets = None if budgets is None else [budget_of(wire) for wire in budgets]
    volumes = read_volumes(client, gaps)
    csi_nodes = _try(lambda: client.list(CSI_NODES, Json), "CSINodes", gaps)
    limits = None  # volumes that each CSI driver attaches at most, by node; a driver without a limit is left out
    if csi_nodes is not None:
        limits = {
            node["metadata"]["name"]: {
                driver["name"]: count
                for driver in node.get("spec", {}).get("drivers") or ()
                if (count := (driver.get("allocatable") or {}).get("count")) is not None
            }
            for node in csi_nodes
        }
    labels = None
    if namespaces is not None:
        labels = {n["metadata"]["name"]: (n["metadata"].get("labels") or {}) for n in namespaces}
    objects = ClusterObjects(own_budgets, volumes, limits, labels, client.clock().now_seconds())
    rooms = {wire.metadata.name: node_of(wire).allocatable for wire in wires}
    pods = _read_pods(client, objects, proposals, rooms)
    taken = {name for pod in pods for name in pod.requests if name.startswith((HOST_PORT, ATTACHED))}
    nodes = tuple(_sized_node(wire, limits or {}, taken) for wire in wires)
    return SizedCluster(tuple(sorted(nodes, key=lambda node: node.name)), tuple(pods), (*gaps, *client.gaps()))


def _read_pods(
    client: KubeClient, objects: ClusterObjects, proposals: Proposals, rooms: Mapping[str, Mapping[str, int]]
) -> list[SizedPod]:
    """Return the pods that have not ended; equal rules share an object. An unreadable pod takes all of its node."""
    rules_seen: dict[PodRules, PodRules] = {}

    def read_pod(raw: msgspec.Raw) -> SizedPod:
        try:
            pod = sized_pod(decoder_of(SizedPodWire).decode(raw), objects, proposals)
        except (CotenantError, *UNDECODABLE) as error:
            placed = decoder_of(PodPlace).decode(raw)
            name = f"{placed.metadata.namespace}/{placed.metadata.name}"
            stays = Stay(Reason.RULE_NOT_MODELLED, f"{name} cannot be read: {error}"[:LONGEST_WHY], name)
            at, taken = placed.spec.node_name, rooms.get(placed.spec.node_name, {})
            return SizedPod(placed.metadata.namespace, placed.metadata.name, at, taken, stays=stays)
        return replace(pod, rules=rules_seen.setdefault(pod.rules, pod.rules))

    return list(read_each(client, PODS, msgspec.Raw, read_pod, fieldSelector=NOT_ENDED)[0].values())


def _sized_node(wire: SchedulableNode, limits: Mapping[str, Mapping[str, int]], taken: set[str]) -> SizedNode:
    facts = node_of(wire)
    own = limits.get(facts.name, {})
    more = {
        name: 1 if name.startswith(HOST_PORT) else own.get(name.removeprefix(ATTACHED), UNLIMITED) for name in taken
    }
    labels = wire.metadata.labels or {}
    kept_annotations = {key: text for key, text in (wire.metadata.annotations or {}).items() if key in KEPT_NODE}
    stays = [Stay(Reason.CONTROL_PLANE_NODE, f"label {label}") for label in CONTROL_PLANE if label in labels]
    for key, value in KEPT_NODE.items():
        if kept_annotations.get(key) == value:
            stays.append(Stay(Reason.EVICTION_FORBIDDEN, f"the node has the annotation {key}={value}"))
    return SizedNode(facts, {**facts.allocatable, **more}, stays[0] if stays else None, kept_annotations)


def _try(act: Callable[[], _T], what: str, gaps: list[str]) -> _T | None:
    try:
        return act()
    except (ClusterForbidden, ClusterAbsent) as error:
        gaps.append(f"{what} could not be read: {error.message}")
        return None
