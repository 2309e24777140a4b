"""EDGE: reads the inputs of one node's reclaimable capacity: Node, NodeMetric, ConfigMap and pods.

A right that is missing is an error here: half of the inputs would explain another number than the published one.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from cotenant.base.cluster import Node, Pod
from cotenant.base.colocation.nodemetric import NodeMetric
from cotenant.base.errors import NoData, QuantityError
from cotenant.base.kube import projection
from cotenant.base.kube.client import KubeClient
from cotenant.base.kube.seen_pods import Workloads, pod_of, seen_pod
from cotenant.base.kubernetes.models.metadata import ConfigMapObject
from cotenant.base.kubernetes.models.node import NodeWire
from cotenant.base.kubernetes.models.pod import PodObject
from cotenant.base.kubernetes.protocol import ENDED_PHASES, SLO_CONFIG_MAP, SLO_GROUP


@dataclass(frozen=True, slots=True)
class NodeInputs:
    """The inputs from which a node's reclaimable capacity is computed.

    metric: the node's report, None = none was made; pods: those that have not ended; config_map: data of
    slo-controller-config, None = there is no such ConfigMap; notes: sentences about what could not be read.
    """

    node: Node
    metric: NodeMetric | None
    pods: tuple[Pod, ...]
    config_map: dict[str, str] | None
    notes: tuple[str, ...] = ()


def node_inputs(client: KubeClient, name: str, namespace: str) -> NodeInputs:
    """Read the inputs of the node of that name; raise NoData if there is no such node.

    namespace: the namespace of slo-controller-config.
    """
    node = client.get(f"/api/v1/nodes/{quote(name, safe='')}", NodeWire)
    if node is None:
        raise NoData(f"no node is named {name}", fix="kubectl get nodes lists all of them.")
    report = client.get(f"/apis/{SLO_GROUP}/nodemetrics/{quote(name, safe='')}")
    config_map = client.get(
        f"/api/v1/namespaces/{quote(namespace, safe='')}/configmaps/{SLO_CONFIG_MAP}", ConfigMapObject
    )
    pods, notes = _pods(client.list("/api/v1/pods", PodObject, fieldSelector=f"spec.nodeName={name}"))
    return NodeInputs(
        node=projection.node_of(node),
        metric=None if report is None else NodeMetric.parse(report),
        pods=pods,
        config_map=None if config_map is None else config_map.data or {},
        notes=notes,
    )


def _pods(listed: list[PodObject]) -> tuple[tuple[Pod, ...], tuple[str, ...]]:
    """Pods that have not ended, and a sentence about each that is left out because a quantity cannot be read."""
    pods, notes = [], []
    for pod in listed:
        if pod.status.phase not in ENDED_PHASES:
            try:
                pods.append(pod_of(seen_pod(pod), Workloads({})))
            except QuantityError as error:
                notes.append(f"{error.message}; the pod is left out")
    return tuple(pods), tuple(notes)
