"""Builds an Inventory from kube-state-metrics: owners, templates, nodes, autoscalers. Pure.

Owners come from the series index over the whole window, so that pods which are gone keep theirs; everything else from
the values of one moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from cotenant.core.model.cluster import Autoscaler, Container, ContainerRole, Inventory, Node, Pod, Workload
from cotenant.core.model.identity import WorkloadRef
from cotenant.core.model.kubernetes.pod_request import container_total
from cotenant.core.model.kubernetes.protocol import PLACEHOLDER_NAMESPACE
from cotenant.core.model.kubernetes.qos import PRIORITY_CLASS_LABEL, PriorityClass, QosClass, priority_of, qos_of
from cotenant.core.model.resource import Resource
from profiler.prometheus import declared
from profiler.prometheus.parts import INIT_LIMITS, INIT_REQUESTS, LIMITS, REQUESTS, RESTARTS

OWNERS: Final = ("kube_pod_owner", "kube_replicaset_owner", "kube_job_owner", "kube_pod_info")
"""Metrics of which only the labels count (their value is always 1); read over the window."""
STATE: Final = (
    "kube_pod_info",
    "kube_pod_created",
    "kube_pod_completion_time",
    "kube_pod_labels",
    RESTARTS,
    REQUESTS,
    LIMITS,
    "kube_pod_init_container_info",
    INIT_REQUESTS,
    INIT_LIMITS,
    declared.NODE_INFO,
    "kube_node_labels",
    "kube_node_status_capacity",
    "kube_node_status_allocatable",
    "kube_horizontalpodautoscaler_info",
    "kube_horizontalpodautoscaler_spec_min_replicas",
    "kube_horizontalpodautoscaler_spec_max_replicas",
    "kube_horizontalpodautoscaler_spec_target_metric",
    *declared.DECLARED,
)
"""Metrics read at the moment of the snapshot."""
_OF_NODES: Final = tuple(metric for metric in STATE if metric.startswith("kube_node_"))
ANCHORS: Final[Mapping[str, tuple[str, ...]]] = {
    "kube_pod_info": tuple(metric for metric in STATE if metric not in _OF_NODES),
    "kube_node_status_allocatable": _OF_NODES,
}
"""Metric -> those that are read at its newest sample where the moment of the snapshot has none of it."""

_EXPORTED: Final = "exported_"

Key = tuple[str, str]
"""(namespace, name)."""
Marks = Mapping[Key, tuple[QosClass, PriorityClass]]
"""QoS and priority class of pods, from the Kubernetes API."""

QOS_LABELS: Final = ("label_koordinator_sh_qos_class", "label_koordinator_sh_qosClass")
PRIORITY_LABEL: Final = "label_koordinator_sh_priority_class"


@dataclass(frozen=True, slots=True)
class Rows:
    """Label sets by metric; `values` belong to the snapshot's series in the same order."""

    owners: Mapping[str, list[dict[str, str]]]
    state: Mapping[str, list[tuple[dict[str, str], float]]]

    @classmethod
    def of(cls, owners: Iterable[dict[str, str]], state: Iterable[tuple[dict[str, str], float]]) -> Rows:
        """Sort by the metric's name. Placeholder pods are left out: they are no workload and cost nothing."""
        by_owner: dict[str, list[dict[str, str]]] = {name: [] for name in OWNERS}
        by_state: dict[str, list[tuple[dict[str, str], float]]] = {name: [] for name in STATE}
        for labels in map(own_labels, owners):
            if labels.get("namespace") == PLACEHOLDER_NAMESPACE:
                continue
            by_owner.setdefault(labels.get("__name__", ""), []).append(labels)
        for scraped, value in state:
            labels = own_labels(scraped)
            if labels.get("namespace") == PLACEHOLDER_NAMESPACE:
                continue
            by_state.setdefault(labels.get("__name__", ""), []).append((labels, value))
        return cls(by_owner, by_state)


def own_labels(labels: dict[str, str]) -> dict[str, str]:
    """The labels as the exporter wrote them.

    Without honor_labels Prometheus keeps its own label of the scraped target (namespace: monitoring) and renames the
    exporter's (exported_namespace: shop).
    """
    renamed = {name.removeprefix(_EXPORTED): value for name, value in labels.items() if name.startswith(_EXPORTED)}
    return labels | renamed if renamed else labels


@dataclass(slots=True)
class _WorkloadTemplate:
    """What is known of a workload while its pods are read."""

    running: int = 0
    newest: tuple[int, str] = (-1, "")
    containers: tuple[Container, ...] = ()
    marks: tuple[QosClass, PriorityClass] = (QosClass.NONE, PriorityClass.NONE)


@dataclass(frozen=True, slots=True)
class InventoryBuild:
    """An inventory and how many pods have no known owner."""

    inventory: Inventory
    unknown_owners: int
    node_names: Mapping[str, str] = field(default_factory=dict)
    """Address -> node."""


def build(cluster: str, now_seconds: int, rows: Rows, marks: Marks | None) -> InventoryBuild:
    """The inventory at a moment. Pods of the window that are gone have end_seconds = now; usage may know better."""
    owner, unknown = _owners(rows.owners)
    amounts = _amounts(rows.state)
    classes = marks if marks is not None else _marks(rows)
    pods = tuple(_pods(now_seconds, rows, owner, amounts, classes))
    notes = () if marks is not None else tuple(_unknown(bool(classes), rows.state))
    annotations = declared.own_annotations(rows.state)
    workloads = tuple(
        replace(w, annotations=annotations.get(w.ref, {})) for w in _workloads(pods, amounts, _autoscalers(rows.state))
    )
    inventory = Inventory(
        cluster, now_seconds, tuple(_nodes(rows.state)), workloads, pods, notes=notes,
        limit_ranges=declared.limit_ranges(rows.state), quotas=declared.quotas(rows.state),
        server_version=declared.server_version(rows.state), controllers=declared.controllers(rows.state),
    )  # fmt: skip
    return InventoryBuild(inventory, unknown, _addresses(rows.state))


def _unknown(classes: bool, state: declared.State) -> Iterable[str]:
    """Notes on what kube-state-metrics does not export, while the Kubernetes API cannot be read for it."""
    blind = "no access to the Kubernetes API, and kube-state-metrics"
    if not classes:
        yield f"QoS and priority are unknown: {blind} shows no such labels"
    if not any(state[metric] for metric in declared.ANNOTATED):
        yield f"annotations of workloads are unknown: {blind} exports none (--metric-annotations-allowlist)"


def _owners(series: Mapping[str, list[dict[str, str]]]) -> tuple[dict[Key, WorkloadRef], int]:
    """(namespace, pod) -> controller at the top of the chain, and the number of pods that no owner metric names."""
    above: dict[tuple[str, str, str], tuple[str, str]] = {}
    for metric, kind, label in (
        ("kube_replicaset_owner", "ReplicaSet", "replicaset"),
        ("kube_job_owner", "Job", "job_name"),
    ):
        for x in series[metric]:
            if _owned(x):
                above[x.get("namespace", ""), kind, x.get(label, "")] = (x["owner_kind"], x["owner_name"])
    owner: dict[Key, WorkloadRef] = {}
    for x in series["kube_pod_owner"]:
        namespace, pod = x.get("namespace", ""), x.get("pod", "")
        direct = (x["owner_kind"], x["owner_name"]) if _owned(x) else ("Pod", pod)
        kind, name = above.get((namespace, *direct), direct)
        owner[namespace, pod] = WorkloadRef(namespace, kind, name)
    pod_keys = {(x.get("namespace", ""), x.get("pod", "")) for x in series["kube_pod_info"]}
    return owner, len(pod_keys - owner.keys())


def _owned(labels: Mapping[str, str]) -> bool:
    """Whether the owner is a controller; a static pod's owner is its node, which counts as none."""
    return labels.get("owner_kind", "") not in ("", "<none>", "Node") and labels.get("owner_name", "") not in (
        "",
        "<none>",
    )


def _amounts(state: Mapping[str, list[tuple[dict[str, str], float]]]) -> dict[Key, dict[str, Container]]:
    """(namespace, pod) -> container name -> its requests and limits, main containers first.

    Containers that request nothing are known by their restarts, which every container counts (kube_pod_container_info
    tells the same in ten times as many bytes).
    Where the label `restart_policy` is not exported, a sidecar counts as an init container. Which
    containers were injected cannot be seen here.
    """
    amounts: dict[tuple[Key, bool, str], tuple[dict[Resource, int], dict[Resource, int]]] = {}
    stays: set[tuple[Key, str]] = set()
    for x, _ in state[RESTARTS]:
        amounts[_pod_of(x), False, x.get("container", "")] = ({}, {})
    for x, _ in state["kube_pod_init_container_info"]:
        amounts[_pod_of(x), True, x.get("container", "")] = ({}, {})
        if x.get("restart_policy") == "Always":
            stays.add((_pod_of(x), x.get("container", "")))
    for metric, init, side in _AMOUNTS:
        for x, value in state[metric]:
            resource = next((r for r in Resource if r == x.get("resource")), None)
            if resource and value >= 0:
                key = (_pod_of(x), init, x.get("container", ""))
                amounts.setdefault(key, ({}, {}))[side][resource] = declared.amount(resource, value)
    out: dict[Key, dict[str, Container]] = {}
    for (pod, init, name), (requests, limits) in sorted(amounts.items()):
        role = ContainerRole.SIDECAR if (pod, name) in stays else ContainerRole.INIT if init else ContainerRole.MAIN
        out.setdefault(pod, {})[name] = Container(name, requests, limits, role)
    return out


_AMOUNTS: Final = ((REQUESTS, False, 0), (LIMITS, False, 1), (INIT_REQUESTS, True, 0), (INIT_LIMITS, True, 1))
"""Metric, whether it speaks of init containers, and 0 for requests, 1 for limits."""


def _pod_of(labels: Mapping[str, str]) -> Key:
    return labels.get("namespace", ""), labels.get("pod", "")


def effective_request(containers: Iterable[Container]) -> dict[Resource, int]:
    """What the scheduler counts for a pod (`cotenant.core.model.kubernetes.pod_request`).

    Metrics do not tell the order of init containers, so every sidecar is taken to start before all others: never too
    little.
    """
    listed = list(containers)
    sidecars = [(one.requests, True) for one in listed if one.role is ContainerRole.SIDECAR]
    early = [(one.requests, False) for one in listed if one.role is ContainerRole.INIT]
    outside = (ContainerRole.SIDECAR, ContainerRole.INIT)
    total = container_total((one.requests for one in listed if one.role not in outside), [*sidecars, *early])
    return {r: v for r, v in total.items() if v}


def _marks(rows: Rows) -> Marks:
    """QoS and priority class from the pods' labels and the name of their priority class."""
    priority_labels: dict[Key, dict[str, str]] = {}
    for x, _ in rows.state["kube_pod_info"]:
        if name := x.get("priority_class"):
            priority_labels.setdefault((x.get("namespace", ""), x.get("pod", "")), {})[PRIORITY_CLASS_LABEL] = name
    qos: dict[Key, QosClass] = {}
    for x, _ in rows.state["kube_pod_labels"]:
        key = (x.get("namespace", ""), x.get("pod", ""))
        if text := next((x[name] for name in QOS_LABELS if name in x), ""):
            qos[key] = qos_of({"koordinator.sh/qosClass": text})
        if name := x.get(PRIORITY_LABEL):
            priority_labels.setdefault(key, {})[PRIORITY_CLASS_LABEL] = name
    both = {
        key: (qos.get(key, QosClass.NONE), priority_of(priority_labels.get(key, {}), None))
        for key in priority_labels.keys() | qos.keys()
    }
    return {key: marks for key, marks in both.items() if any(marks)}


def _pods(
    now: int, rows: Rows, owner: Mapping[Key, WorkloadRef], amounts: Mapping[Key, dict[str, Container]], marks: Marks
) -> Iterable[Pod]:
    """Pods of the window, one for each name: the running one before one of the past."""

    def moments(metric: str) -> dict[Key, int]:
        return {(x.get("namespace", ""), x.get("pod", "")): int(v) for x, v in rows.state[metric]}

    created, completed = moments("kube_pod_created"), moments("kube_pod_completion_time")
    running = {(x.get("namespace", ""), x.get("pod", "")): x.get("node", "") for x, _ in rows.state["kube_pod_info"]}
    window_nodes = {(x.get("namespace", ""), x.get("pod", "")): x.get("node", "") for x in rows.owners["kube_pod_info"]}
    for key in sorted(window_nodes.keys() | running.keys() | owner.keys()):
        namespace, name = key
        end = completed.get(key) if key in running else now
        requests = effective_request(amounts.get(key, {}).values())
        qos, priority = marks.get(key, (QosClass.NONE, PriorityClass.NONE))
        workload = owner.get(key) or WorkloadRef(namespace, "Pod", name)
        node = running.get(key) or window_nodes.get(key, "")
        yield Pod(namespace, name, workload, node, created.get(key, 0), end, qos, priority, requests)


def _workloads(
    pods: Sequence[Pod], amounts: Mapping[Key, dict[str, Container]], autoscalers: Mapping[WorkloadRef, Autoscaler]
) -> Iterable[Workload]:
    """A workload for each owner; its template is the newest pod whose containers are known."""
    templates: dict[WorkloadRef, _WorkloadTemplate] = {}
    for pod in pods:
        template = templates.setdefault(pod.workload, _WorkloadTemplate())
        template.running += pod.running
        containers = amounts.get((pod.namespace, pod.name), {})
        age = (pod.start_seconds, pod.name)
        if age > template.newest and (containers or not template.containers):
            template.newest, template.containers = age, tuple(containers.values())
            template.marks = (pod.qos, pod.priority)
    for ref, template in sorted(templates.items()):
        yield Workload(ref, template.running, template.containers, *template.marks, autoscaler=autoscalers.get(ref))


def _autoscalers(state: Mapping[str, list[tuple[dict[str, str], float]]]) -> dict[WorkloadRef, Autoscaler]:
    """Target workload -> autoscaler, with its utilisation targets in percent."""
    prefix = "kube_horizontalpodautoscaler_"

    def named(metric: str) -> dict[Key, int]:
        return {
            (x.get("namespace", ""), x.get("horizontalpodautoscaler", "")): int(v) for x, v in state[prefix + metric]
        }

    least, most = named("spec_min_replicas"), named("spec_max_replicas")
    targets: dict[Key, dict[Resource, int]] = {}
    for x, value in state[prefix + "spec_target_metric"]:
        resource = next((r for r in Resource if r == x.get("metric_name")), None)
        if resource and x.get("metric_target_type") == "utilization":
            targets.setdefault((x.get("namespace", ""), x.get("horizontalpodautoscaler", "")), {})[resource] = round(
                value
            )
    out = {}
    for x, _ in state[prefix + "info"]:
        key = (x.get("namespace", ""), x.get("horizontalpodautoscaler", ""))
        ref = WorkloadRef(key[0], x.get("scaletargetref_kind", ""), x.get("scaletargetref_name", ""))
        out[ref] = Autoscaler(key[1], least.get(key, 1), most.get(key, 1), targets.get(key, {}))
    return out


def _nodes(state: Mapping[str, list[tuple[dict[str, str], float]]]) -> Iterable[Node]:
    """Nodes with capacity, allocatable and labels."""
    sides: dict[str, tuple[dict[Resource, int], dict[Resource, int]]] = {}
    for side, metric in enumerate(("kube_node_status_capacity", "kube_node_status_allocatable")):
        for x, value in state[metric]:
            resource = next((r for r in Resource if r == x.get("resource")), None)
            if resource:
                sides.setdefault(x.get("node", ""), ({}, {}))[side][resource] = declared.amount(resource, value)
    labels = {x.get("node", ""): declared.node_labels(x) for x, _ in state["kube_node_labels"]}
    return (Node(name, *sides[name], labels.get(name, {})) for name in sorted(sides))


def _addresses(state: Mapping[str, list[tuple[dict[str, str], float]]]) -> dict[str, str]:
    return {x["internal_ip"]: x.get("node", "") for x, _ in state[declared.NODE_INFO] if x.get("internal_ip")}
