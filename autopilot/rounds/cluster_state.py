"""EDGE: reads the inputs of a round from the cluster: policies, workloads and their writers, health, pause switch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from cotenant.autopilot.decide.candidates import LiveNamespace
from cotenant.autopilot.decide.halt import ClusterHealth
from cotenant.autopilot.decide.policy import NamespacedPolicy, read_policy
from cotenant.autopilot.model import POLICIES
from cotenant.base.errors import ClusterAbsent, ClusterUnreachable, CotenantError
from cotenant.base.identity import WorkloadRef
from cotenant.base.kube import KubeClient
from cotenant.base.kube.live import VPA_GROUP
from cotenant.base.kubernetes.intent import Address, Apply
from cotenant.base.kubernetes.models.autoscalers import VerticalAutoscalerObject
from cotenant.base.kubernetes.models.node import QueueNodeWire
from cotenant.base.kubernetes.models.pod import KilledPodWire
from cotenant.base.kubernetes.observed import pod_of
from cotenant.base.kubernetes.owners import deployment_of
from cotenant.base.kubernetes.pod_resources import present_amounts
from cotenant.base.kubernetes.pod_wire import pod_resources
from cotenant.base.kubernetes.protocol import NOT_ENDED, OWN_GROUP
from cotenant.base.kubernetes.qos import QosClass, qos_of
from cotenant.changes.decide.checks.capacity import PodAmounts, running_requests
from cotenant.changes.decide.field_changes import RESOURCES
from cotenant.changes.soak.stop_switch import PAUSED_KEY, read_switch, switch_address

KINDS: Final = ("Deployment", "StatefulSet", "DaemonSet")
FIELD_MANAGER: Final = "cotenant-autopilot"


def read_policies(client: KubeClient, namespaces: Sequence[str] = ()) -> list[NamespacedPolicy]:
    """Return the policies of these namespaces, or of all if empty; raise ClusterAbsent if the CRD is not installed."""
    paths = [
        policy_address(NamespacedPolicy(namespace, "")).collection for namespace in dict.fromkeys(namespaces) or ("",)
    ]
    return sorted((read_policy(body) for path in paths for body in client.list(path)), key=str)


def read_namespace(client: KubeClient, namespace: str) -> LiveNamespace:
    """Return the workloads of a namespace, with their autoscalers, VPAs, nodes, QoS classes, OOM kills and requests."""
    workloads: dict[WorkloadRef, dict[str, Any]] = {}
    for kind in KINDS:
        version, plural = RESOURCES[kind]
        for body in client.list(f"/apis/{version}/namespaces/{namespace}/{plural}"):
            workloads[WorkloadRef(namespace, kind, str(body["metadata"]["name"]))] = body
    scalers = tuple(client.list(f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers"))
    # who may not list pods does not know what to leave alone.
    nodes: dict[WorkloadRef, set[str]] = defaultdict(set)
    classes: dict[WorkloadRef, set[QosClass]] = defaultdict(set)
    kills: dict[tuple[WorkloadRef, str], float] = defaultdict(float)
    present: dict[WorkloadRef, list[PodAmounts]] = defaultdict(list)
    for wire in client.list(f"/api/v1/namespaces/{namespace}/pods", KilledPodWire, fieldSelector=NOT_ENDED):
        pod = pod_of(wire)
        kind, name = pod.owner
        workload = deployment_of(WorkloadRef(namespace, kind, name), pod.template_hash)
        classes[workload].add(qos_of(pod.labels))
        if pod.node:
            nodes[workload].add(pod.node)
            if not pod.deleting:
                amounts = pod_resources(wire.spec, wire.status, f"pod {pod.namespace}/{pod.name}")
                present[workload].append(present_amounts(amounts))
        for container, seconds in wire.oom_kills().items():
            kills[workload, container] = max(kills[workload, container], seconds)
    try:
        path = f"{VPA_GROUP}/namespaces/{namespace}/verticalpodautoscalers"
        vpas = tuple(client.list(path, VerticalAutoscalerObject))
    except ClusterAbsent:
        vpas = ()
    return LiveNamespace(
        workloads=workloads,
        autoscalers=scalers,
        vpas=vpas,
        nodes={w: frozenset(names) for w, names in nodes.items()},
        classes={w: frozenset(qos) for w, qos in classes.items()},
        kills=dict(kills),
        running={w: running_requests(amounts) for w, amounts in present.items()},
    )


def list_readable(client: KubeClient, path: str, **query: str) -> list[dict[str, Any]] | None:
    """Return objects of a namespace, None if they cannot be read; raise ClusterUnreachable if no server answers."""
    try:
        return list(client.list(path, limit=None, **query))
    except ClusterUnreachable:
        raise
    except CotenantError:
        return None


def read_health(client: KubeClient, namespace: str) -> ClusterHealth:
    """Return how many nodes are ready, and the pause switch in `namespace`; only `trouble` if either is unreadable."""
    try:
        paused = read_switch(client, namespace)
        nodes = [node.is_ready for node in client.list("/api/v1/nodes", QueueNodeWire)]
    except CotenantError as error:
        return ClusterHealth(trouble=f"the cluster's state is not known: {error.message}")
    return ClusterHealth(len(nodes), sum(nodes), paused=paused)


def switch_write(namespace: str, value: str) -> Apply:
    """Return the write of the pause switch: `value` is the reason for a pause, or "false" for none."""
    address = switch_address(namespace)
    body = address.manifest("ConfigMap", data={PAUSED_KEY: value})
    return Apply(address, body, why="the autopilot's switch")


def mode_write(policy: NamespacedPolicy, mode: str) -> Apply:
    """Return the write that sets spec.mode of a policy."""
    address = policy_address(policy)
    body = address.manifest("AutopilotPolicy", spec={"mode": mode})
    return Apply(address, body, why="the policy's mode")


def policy_address(policy: NamespacedPolicy) -> Address:
    """Return the API address of a policy."""
    return Address(OWN_GROUP, POLICIES, policy.name, policy.namespace)
