"""Builds an Inventory from kube-state-metrics: owners, templates, nodes, autoscalers. Pure.

Owners come from the series index over the whole window, so that pods which are gone keep theirs; everything else from
the values at one time.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Final

from cotenant.base.allocation.devices import WHOLE
from cotenant.base.cluster import Container, ContainerRole, Inventory, Node, Pod, PodPhase, Workload
from cotenant.base.identity import WorkloadRef
from cotenant.base.inventory.pod_templates import ROLE_LABELS, role_of, template
from cotenant.base.kubernetes.pod_request import container_total
from cotenant.base.kubernetes.protocol import PLACEHOLDER_NAMESPACE
from cotenant.base.kubernetes.qos import PRIORITY_CLASS_LABEL, PriorityClass, QosClass, priority_of, qos_of
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.base.text import counted
from cotenant.base.usage.usage import Signal
from cotenant.profiler.prometheus.clusters import address
from cotenant.profiler.prometheus.kube_state import autoscalers, declared, gaps, phases, stored
from cotenant.profiler.prometheus.kube_state.owners import LINKS, POD_OWNER, Chains, chains
from cotenant.profiler.prometheus.parts import (
    GPU_RESOURCES,
    INIT_LIMITS,
    INIT_REQUESTS,
    LIMITS,
    REQUESTS,
    RESTARTS,
    TERMINATED,
)
from cotenant.profiler.prometheus.promql import Matcher, metric_name_matcher, selector, union

OWNERS: Final = (POD_OWNER, *(metric for metric, _ in LINKS.values()), "kube_pod_info")
"""Metrics of which only the labels count (their value is always 1); read over the window."""
STATE: Final = (
    *("kube_pod_info", phases.CREATED, phases.COMPLETED, phases.PHASE, phases.REASON, "kube_pod_labels"),
    *(RESTARTS, REQUESTS, LIMITS, TERMINATED, gaps.INIT_INFO, INIT_REQUESTS, INIT_LIMITS),
    *(gaps.INIT_RESTARTS, gaps.INIT_TERMINATED, declared.NODE_INFO, gaps.NODE_LABELS),
    *("kube_node_status_capacity", "kube_node_status_allocatable"),
    *autoscalers.METRICS,
    *declared.DECLARED,
    *stored.CREATED.values(),
    *stored.METRICS,
)
"""Metrics that are read at the snapshot's time."""
_OF_NODES: Final = tuple(metric for metric in STATE if metric.startswith("kube_node_"))
ANCHORS: Final[Mapping[str, tuple[str, ...]]] = {
    "kube_pod_info": tuple(metric for metric in STATE if metric not in _OF_NODES),
    "kube_node_status_allocatable": _OF_NODES,
    "kube_node_status_capacity": ("kube_node_status_capacity",),
    phases.CREATED: (phases.CREATED,),
    RESTARTS: (RESTARTS,),
    REQUESTS: (REQUESTS, INIT_REQUESTS),
    LIMITS: (LIMITS, INIT_LIMITS),
    **{metric: (metric,) for metric in gaps.READ_LATE},
}
"""Metric -> metrics that, if the snapshot has no sample of it, are read at the time of its newest sample, in this
order. Phases are not among them: a pod's earlier phase says nothing about its present one."""

OF_PODS: Final = ("kube_pod_info", phases.CREATED, phases.PHASE, RESTARTS, REQUESTS, LIMITS)
"""Metrics that each show that a pod exists."""


def lacks(anchor: str, metrics: AbstractSet[str]) -> bool:
    """Return whether a needed metric, `anchor`, is missing in the snapshot and must be read at an earlier time.

    `metrics` are the metrics at the snapshot's time. kube_pod_info is not needed if another metric there shows which
    pods exist: its labels are also among the owner series, which are read over the whole window.
    """
    return anchor not in metrics and (anchor != "kube_pod_info" or metrics.isdisjoint(OF_PODS))


_EXPORTED: Final = "exported_"

Key = tuple[str, str]
"""(namespace, name)."""
Marks = Mapping[Key, tuple[QosClass, PriorityClass]]
"""QoS and priority class of pods, from the Kubernetes API."""

QOS_LABELS: Final = ("label_koordinator_sh_qos_class", "label_koordinator_sh_qosClass")
PRIORITY_LABEL: Final = "label_koordinator_sh_priority_class"


def question(metrics: Sequence[str], conditions: Iterable[Matcher]) -> str:
    """Return the PromQL of these metrics' series at one time; of one series per possible state, only the true one.

    The API server's object counts are limited to the required kinds.
    """
    conditions = tuple(conditions)
    special = {*phases.ONE_OF_MANY, *stored.METRICS}
    groups: tuple[tuple[list[str], tuple[Matcher, ...], str], ...] = (
        ([m for m in metrics if m not in special], (), ""),
        ([m for m in metrics if m in phases.ONE_OF_MANY], (), " == 1"),
        ([m for m in metrics if m in stored.METRICS], (stored.OF_KINDS,), ""),
    )
    return union(
        f"{selector((metric_name_matcher(*some), *own, *conditions))}{holds}" for some, own, holds in groups if some
    )


@dataclass(frozen=True, slots=True)
class Rows:
    """Labels of series by metric: `owners` of the whole window; `state`, with values, at the snapshot's time."""

    owners: Mapping[str, list[dict[str, str]]]
    state: Mapping[str, list[tuple[dict[str, str], float]]]

    @classmethod
    def of(cls, owners: Iterable[dict[str, str]], state: Iterable[tuple[dict[str, str], float]]) -> Rows:
        """Group series by metric, without placeholder pods, which are no workload and cost nothing."""
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
    """Return a series' labels as the exporter wrote them, before Prometheus renamed any.

    Without honor_labels Prometheus keeps its own label of the scraped target (namespace: monitoring) and renames the
    exporter's (exported_namespace: shop).
    """
    renamed = {name.removeprefix(_EXPORTED): value for name, value in labels.items() if name.startswith(_EXPORTED)}
    return labels | renamed if renamed else labels


@dataclass(frozen=True, slots=True)
class InventoryBuild:
    """An inventory, the number of its pods without a known owner, and `node_names`, the node names by address."""

    inventory: Inventory
    unknown_owners: int
    node_names: Mapping[str, str] = field(default_factory=dict)
    """Address -> node."""


def build(
    cluster: str, now_seconds: int, rows: Rows, marks: Marks | None, coverage: gaps.SeriesCoverage | None = None
) -> InventoryBuild:
    """Build the inventory; `now_seconds` is its time, and the end of pods that are gone until usage shows the true end.

    If `marks` is None, QoS and priority classes are read from `rows`. If `coverage` is None, the server has exactly the
    metrics of these rows, all read at this time.
    """
    listed = declared.controllers(rows.state)
    # The pods that there are at the moment: any series of one shows it
    present = frozenset(_pod_of(x) for metric in OF_PODS for x, _ in rows.state[metric])
    labels = {_pod_of(x): x for x, _ in rows.state["kube_pod_labels"]}
    series = {m: [*rows.owners[m], *(x for x, _ in rows.state.get(m, ()))] for m in OWNERS}
    everyone = present | {_pod_of(x) for m in (POD_OWNER, "kube_pod_info") for x in rows.owners[m]}
    owned = chains(series, everyone, labels, listed)
    amounts = _amounts(rows.state)
    classes = marks if marks is not None else _marks(rows)
    pods = tuple(_pods(now_seconds, rows, present, owned, amounts, classes, labels))
    series_coverage = coverage or gaps.SeriesCoverage({metric for metric, some in rows.state.items() if some})
    scalers = autoscalers.autoscalers(rows.state)
    notes: list[str] = []
    if marks is None:
        kinds = {p.workload.kind for p in pods if p.running}
        notes += [
            *_missing_metric_notes(bool(classes), rows.state, kinds),
            *stored.notes(stored.kinds(rows.state, series_coverage.names)),
        ]
    notes += owned.notes()
    unclear = sum(pod.running and pod.phase is PodPhase.UNKNOWN for pod in pods)
    if unclear and phases.PHASE in series_coverage.names:
        notes.append(
            f"{phases.PHASE} does not show the phases of {counted(unclear, 'pod')} now: pods with recent usage "
            "count as running"
        )
    notes += series_coverage.notes()
    annotations, nodes = declared.own_annotations(rows.state), tuple(_nodes(rows.state))
    series_gaps = gaps.find_gaps(rows.state, series_coverage, pods, amounts, nodes)
    workloads = tuple(
        replace(w, annotations=annotations.get(w.ref, {})) for w in _workloads(pods, amounts, scalers, series_gaps)
    )
    pods = tuple(replace(p, in_doubt=in_doubt) if (in_doubt := series_gaps.in_doubt(p)) else p for p in pods)
    inventory = Inventory(
        cluster, now_seconds, nodes, workloads, pods, notes=tuple(notes),
        limit_ranges=declared.limit_ranges(rows.state), quotas=declared.quotas(rows.state),
        server_version=declared.server_version(rows.state), controllers=listed,
    )  # fmt: skip
    infos = (x for x, _ in rows.state[declared.NODE_INFO] if x.get("internal_ip"))
    return InventoryBuild(inventory, len(owned.unowned), {address(x["internal_ip"]): x.get("node", "") for x in infos})


def _missing_metric_notes(classes: bool, state: declared.State, kinds: AbstractSet[str]) -> Iterable[str]:
    """Yield notes on what kube-state-metrics does not export of these kinds, if the Kubernetes API is not read."""
    if not classes:
        yield f"QoS and priority are unknown: {declared.BLIND} shows no such labels"
    annotated = declared.kinds_with_own_annotations(state)
    silent = sorted(kinds & {kind for kind, _ in declared.ANNOTATED.values()} - annotated)
    if not annotated:
        yield (
            f"annotations of workloads are unknown: {declared.BLIND} shows none of cotenant.dev "
            "(none is set, or --metric-annotations-allowlist leaves them out)"
        )
    elif silent:
        yield (
            f"annotations of {', '.join(f'{kind}s' for kind in silent)} are unknown: {declared.BLIND} shows those of "
            f"{', '.join(f'{kind}s' for kind in sorted(annotated))} alone (none is set, or "
            "--metric-annotations-allowlist "
            "leaves them out)"
        )


def _amounts(state: Mapping[str, list[tuple[dict[str, str], float]]]) -> dict[Key, dict[str, Container]]:
    """Return (namespace, pod) -> container name -> its requests and limits, main containers first.

    Containers without requests are known from their restart counts, which every container has (kube_pod_container_info
    has the same information in ten times as many bytes). Without the label `restart_policy` a sidecar counts as an init
    container; if no series tells which of the two a container is, it counts as a sidecar, so that its pod is not taken
    for smaller than it is. Injected containers cannot be recognized here.
    """
    amounts: dict[tuple[Key, bool, str], tuple[dict[Resource, int], dict[Resource, int]]] = {}
    stays: set[tuple[Key, str]] = set()
    for x, _ in state[RESTARTS]:
        amounts[_pod_of(x), False, x.get("container", "")] = ({}, {})
    for x, _ in state[gaps.INIT_INFO]:
        amounts[_pod_of(x), True, x.get("container", "")] = ({}, {})
        if x.get("restart_policy") == "Always":
            stays.add((_pod_of(x), x.get("container", "")))
    stays |= {((namespace, pod), name) for namespace, pod, name in gaps.containers_of_unknown_role(state)}
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
    """Return the request that the scheduler counts for a pod (`cotenant.base.kubernetes.pod_request`).

    Metrics do not show the order of init containers, so every sidecar is assumed to start before all others: the result
    is never too small.
    """
    listed = list(containers)
    sidecars = [(container.effective_requests, True) for container in listed if container.role is ContainerRole.SIDECAR]
    early = [(container.effective_requests, False) for container in listed if container.role is ContainerRole.INIT]
    outside = (ContainerRole.SIDECAR, ContainerRole.INIT)
    total = container_total(
        (container.effective_requests for container in listed if container.role not in outside), [*sidecars, *early]
    )
    return {r: v for r, v in total.items() if v}


def _marks(rows: Rows) -> Marks:
    """Return QoS and priority class from the pods' labels and the name of their priority class."""
    priority_labels: dict[Key, dict[str, str]] = {}
    for x, _ in rows.state["kube_pod_info"]:
        if name := x.get("priority_class"):
            priority_labels.setdefault(_pod_of(x), {})[PRIORITY_CLASS_LABEL] = name
    qos: dict[Key, QosClass] = {}
    for x, _ in rows.state["kube_pod_labels"]:
        key = _pod_of(x)
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
    now: int,
    rows: Rows,
    present: Collection[Key],
    owned: Chains,
    amounts: Mapping[Key, dict[str, Container]],
    marks: Marks,
    labels: Mapping[Key, Mapping[str, str]],
) -> Iterable[Pod]:
    """Yield the pods of the window, one for each name: a present one (`present`) takes precedence over past ones."""

    def moments(metric: str) -> dict[Key, int]:
        latest: dict[Key, int] = {}
        for x, v in rows.state[metric]:
            latest[_pod_of(x)] = max(latest.get(_pod_of(x), 0), int(v))
        return latest

    created, completed = moments(phases.CREATED), moments(phases.COMPLETED)
    # The node of each pod: what its information says now, else what else names it, else what it said before
    nodes = {_pod_of(x): x["node"] for x in rows.owners["kube_pod_info"] if x.get("node")}
    for metric in (LIMITS, REQUESTS, "kube_pod_info"):
        nodes |= {_pod_of(x): x["node"] for x, _ in rows.state[metric] if x.get("node")}
    unscheduled = {_pod_of(x) for x, _ in rows.state["kube_pod_info"] if not nodes.get(_pod_of(x))}
    phase_of = phases.phases(rows.state, present, unscheduled)
    for key in sorted(owned.owner):
        namespace, name = key
        phase = phase_of.get(key, PodPhase.UNKNOWN)
        end = (completed.get(key, now) if phase.ended else None) if key in present else now
        qos, priority = marks.get(key, (QosClass.NONE, PriorityClass.NONE))
        workload = owned.owner[key]
        roles = {_ROLES[label]: value for label, value in labels.get(key, {}).items() if label in _ROLES}
        yield Pod(
            namespace, name, workload, nodes.get(key, ""), created.get(key, 0), end, qos=qos, priority=priority,
            requests=effective_request(amounts.get(key, {}).values()), phase=phase,
            owner_known=key not in owned.missing,
            role=role_of(workload, name, roles, owned.direct.get(key)),
        )  # fmt: skip


_ROLES: Final = {f"label_{re.sub('[^a-zA-Z0-9_]', '_', label)}": label for label in ROLE_LABELS}
"""Labels of roles by the names that they have in Prometheus."""


def _workloads(
    pods: Sequence[Pod],
    amounts: Mapping[Key, dict[str, Container]],
    scalers: autoscalers.Autoscalers,
    series_gaps: gaps.SeriesGaps,
) -> Iterable[Workload]:
    """Yield a workload for each owner, with the containers of its pods (`cotenant.base.inventory.pod_templates`)."""
    own: dict[WorkloadRef, list[Pod]] = {}
    for pod in pods:
        own.setdefault(pod.workload, []).append(pod)
    containers = {key: tuple(by_name.values()) for key, by_name in amounts.items()}
    refs = frozenset(own)
    for ref, members in sorted(own.items()):
        youngest = max(members, key=lambda p: (p.running, (p.namespace, p.name) in amounts, p.start_seconds, p.name))
        reasons = [*series_gaps.of(ref, youngest, members)]
        if scalers.half_told(ref, refs):
            reasons.append(Reason.AUTOSCALER_UNKNOWN)
        own_containers = tuple(_unsure(template(members, containers), members, amounts))
        if doubted := series_gaps.resources_in_doubt(youngest, members):
            reasons.append(Reason.AMOUNTS_UNKNOWN)
            sure = []
            for of in own_containers:
                requests = {r: a for r, a in of.requests.items() if r not in doubted}
                limits = {r: a for r, a in of.limits.items() if r not in doubted}
                sure.append(replace(of, requests=requests, limits=limits))
            own_containers = tuple(sure)
        yield Workload(
            ref, sum(p.serving for p in members), own_containers, youngest.qos, youngest.priority,
            autoscaler=scalers.of_pods(ref, own_containers), gaps=tuple(dict.fromkeys(reasons)),
        )  # fmt: skip


def _unsure(
    containers: Iterable[Container], pods: Sequence[Pod], amounts: Mapping[Key, dict[str, Container]]
) -> Iterator[Container]:
    """Yield the containers; mark one with fewer amounts than the same one of another pod as possibly incomplete."""
    alive = [amounts.get((pod.namespace, pod.name), {}) for pod in pods if pod.running]
    for container in containers:
        others = [by_name[container.name] for by_name in alive if container.name in by_name]
        asked_resources = {
            (side, r)
            for container in others
            for side, own in enumerate((container.requests, container.limits))
            for r in own
        }
        own = {(side, r) for side, mine in enumerate((container.requests, container.limits)) for r in mine}
        unsure = asked_resources - own and Reason.SEVERAL_TEMPLATES not in container.gaps
        yield replace(container, gaps=(*container.gaps, Reason.AMOUNTS_UNKNOWN)) if unsure else container


def _nodes(state: Mapping[str, list[tuple[dict[str, str], float]]]) -> Iterable[Node]:
    sides: dict[str, tuple[dict[Resource, int], dict[Resource, int]]] = {}
    for side, metric in enumerate(("kube_node_status_capacity", "kube_node_status_allocatable")):
        for x, value in state[metric]:
            resource = next((r for r in Resource if r == x.get("resource")), None)
            if resource:
                sides.setdefault(x.get("node", ""), ({}, {}))[side][resource] = declared.amount(resource, value)
    gpus: dict[str, float] = {}
    for x, value in state["kube_node_status_allocatable"]:
        percent = GPU_RESOURCES.get(x.get("resource", ""), {}).get(Signal.GPU_CORE_REQUEST, 0.0)
        gpus[x.get("node", "")] = max(gpus.get(x.get("node", ""), 0.0), value * percent / WHOLE)
    labels = {x.get("node", ""): declared.node_labels(x) for x, _ in state[gaps.NODE_LABELS]}
    return (Node(name, *sides[name], labels.get(name, {}), gpus=gpus.get(name, 0.0)) for name in sorted(sides))
