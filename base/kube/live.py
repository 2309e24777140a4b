"""EDGE: read the current state of the cluster from the API server into the types of `cotenant.base.cluster`.

`objects` decodes the lists and `projection` converts them; `overlay` merges the result with history. What may not be
read is a note, not a failure: a scan without rights on HPAs is still a scan. `node_inputs` reads all inputs of one node
or fails, because half of them would explain another number than the published one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

from cotenant.base.cluster import Autoscaler, Container, LimitRange, ListedFacts, Node, OwnAmounts, Pod, Quota, tightest
from cotenant.base.colocation.nodemetric import NodeMetric
from cotenant.base.errors import ClusterAbsent, ClusterError, NoData, QuantityError
from cotenant.base.identity import WorkloadRef
from cotenant.base.kube import projection
from cotenant.base.kube.client import KubeClient, Many
from cotenant.base.kube.objects import AutoscalerObject, ControllerObject, LimitRangeObject, QuotaObject, VersionObject
from cotenant.base.kube.seen_pods import SeenPod, Workloads, owners_of, pod_of, seen_pod, with_injected
from cotenant.base.kubernetes.intent import Address
from cotenant.base.kubernetes.models.autoscalers import CheckpointObject, VerticalAutoscalerObject
from cotenant.base.kubernetes.models.metadata import ConfigMapObject
from cotenant.base.kubernetes.models.node import NodeWire
from cotenant.base.kubernetes.models.pod import PodObject
from cotenant.base.kubernetes.protocol import ENDED_PHASES, SLO_CONFIG_MAP, SLO_GROUP

ItemT = TypeVar("ItemT")
LONGEST_WHY: Final = 300
"""Most characters of the reason why an object is left out, which may contain text that a person wrote."""

PODS: Final = "/api/v1/pods"
NODES: Final = "/api/v1/nodes"
LIMIT_RANGES: Final = "/api/v1/limitranges"
QUOTAS: Final = "/api/v1/resourcequotas"
AUTOSCALERS: Final = "/apis/autoscaling/v2/horizontalpodautoscalers"
VPA_GROUP: Final = "/apis/autoscaling.k8s.io/v1"
VPAS: Final = f"{VPA_GROUP}/verticalpodautoscalers"
CHECKPOINTS: Final = f"{VPA_GROUP}/verticalpodautoscalercheckpoints"
VERSION: Final = "/version"
CONTROLLERS: Final = {
    "Deployment": "/apis/apps/v1/deployments",
    "StatefulSet": "/apis/apps/v1/statefulsets",
    "DaemonSet": "/apis/apps/v1/daemonsets",
    "ReplicaSet": "/apis/apps/v1/replicasets",
    "ReplicationController": "/api/v1/replicationcontrollers",
    "Job": "/apis/batch/v1/jobs",
    "CronJob": "/apis/batch/v1/cronjobs",
}
"""Kind -> where it is listed: owners, templates, labels and annotations."""
LASTING: Final = frozenset({"Deployment", "StatefulSet", "DaemonSet", "CronJob"})
"""Kinds whose objects stay while they have no pods, until somebody deletes them."""
LISTED: Final = (PODS, NODES, *CONTROLLERS.values(), AUTOSCALERS, LIMIT_RANGES, QUOTAS)
"""Everything that `observe` lists of every cluster; besides, VPAS and CHECKPOINTS where they are installed."""


@dataclass(frozen=True, slots=True)
class Marks:
    """A workload's labels, its annotations for cotenant, and the object ("KIND NAME") that manages it (`operator`)."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    operator: str = ""


@dataclass(frozen=True, slots=True)
class LiveCluster(ListedFacts):
    """The current state of the cluster; a field is None if its objects could not be listed.

    `containers` has each pod's containers by (namespace, pod), `own_amounts` the pod-level amounts; `unread` names the
    pods on nodes that are left out because an amount is unreadable. `marks` has the labels and annotations of each
    workload, `verticals` a sentence on the VerticalPodAutoscaler that sets its requests. `listed_kinds` are the kinds
    of LASTING that could be listed.
    """

    nodes: tuple[Node, ...] | None = None
    pods: tuple[Pod, ...] = ()
    containers: Mapping[tuple[str, str], tuple[Container, ...]] = field(default_factory=dict)
    own_amounts: Mapping[tuple[str, str], OwnAmounts] = field(default_factory=dict)
    autoscalers: Mapping[WorkloadRef, Autoscaler] | None = None
    marks: Mapping[WorkloadRef, Marks] = field(default_factory=dict)
    limit_ranges: tuple[LimitRange, ...] | None = None
    quotas: tuple[Quota, ...] | None = None
    verticals: Mapping[WorkloadRef, str] | None = None
    unread: frozenset[tuple[str, str]] = frozenset()


class ObjectLister(Protocol):
    """An interface to get and list objects: a client of the API server, or a reader that also uses watched objects."""

    def get(self, path: str, kind: type[ItemT]) -> ItemT | None:
        """Return one object, or None if it does not exist."""

    def list(self, path: str, kind: type[ItemT]) -> Many[ItemT]:
        """Return all objects of a collection; raise ClusterError if they cannot be listed."""


def observe(client: ObjectLister) -> LiveCluster:
    """List pods, nodes, workloads, LimitRanges and quotas; raise ClusterForbidden only if pods may not be listed."""
    return observe_pods(client, list(map(seen_pod, client.list(PODS, PodObject))))


def observe_pods(client: ObjectLister, pods: Sequence[SeenPod]) -> LiveCluster:
    """List nodes, workloads, LimitRanges and quotas; `pods` are all pods of the cluster; a failed list gives a note."""
    notes: list[str] = []
    controllers, listed_kinds = _controllers(client, notes)
    workloads = Workloads(owners_of(controllers, pods))
    alive = [pod for pod in pods if pod.occupies_node]
    scalers = _list_optional(client, AUTOSCALERS, AutoscalerObject, notes)
    # VerticalPodAutoscalers; none, and no note, where their kind is not installed; None where they are not told
    try:
        vpas = list(client.list(VPAS, VerticalAutoscalerObject))
    except ClusterAbsent:
        vpas = []
    except ClusterError as error:
        notes.append(f"{error.message} {error.fix}".strip())
        vpas = None
    targets = projection.vpa_targets(vpas or ())
    return LiveCluster(
        pods=tuple(_project_readable(lambda pod: pod_of(pod, workloads), alive, notes)),
        nodes=_all(projection.node_of, _list_optional(client, NODES, NodeWire, notes), notes),
        unread=frozenset(pod.key for pod in alive if pod.shape.refusal),
        containers=_containers([pod for pod in alive if not pod.shape.refusal], workloads, controllers),
        own_amounts={pod.key: pod.shape.own for pod in alive if pod.shape.own.resources()},
        autoscalers=None if scalers is None else dict(_project_readable(projection.autoscaler_of, scalers, notes)),
        marks=_marks(alive, workloads, controllers),
        limit_ranges=_limit_ranges(client, notes),
        quotas=_quotas(client, notes),
        vpa_histories=tuple(
            history
            for checkpoint in (_list_optional(client, CHECKPOINTS, CheckpointObject, notes) or () if targets else ())
            for history in _project_readable(lambda c: projection.vpa_history_of(c, targets), [checkpoint], notes)
            if history is not None
        ),
        verticals=None if vpas is None else projection.vpa_writers(vpas),
        server_version=_version(client, notes),
        notes=tuple(dict.fromkeys(notes)),
        controllers=tuple(sorted(ref for ref in controllers if ref.kind in LASTING)),
        listed_kinds=tuple(sorted(listed_kinds & LASTING)),
    )


def _controllers(client: ObjectLister, notes: list[str]) -> tuple[dict[WorkloadRef, ControllerObject], set[str]]:
    """Return every controller that may be listed, by its reference, and the kinds that could be listed."""
    listed = {kind: _list_optional(client, path, ControllerObject, notes) for kind, path in CONTROLLERS.items()}
    controllers = {
        WorkloadRef(thing.metadata.namespace, kind, thing.metadata.name): thing
        for kind, things in listed.items()
        for thing in things or ()
    }
    return controllers, {kind for kind, things in listed.items() if things is not None}


def _containers(
    pods: Sequence[SeenPod], workloads: Workloads, controllers: Mapping[WorkloadRef, ControllerObject]
) -> dict[tuple[str, str], tuple[Container, ...]]:
    """Return the containers of each pod, compared with the template of its direct controller, else its workload's."""
    of_shape: dict[int, tuple[Container, ...]] = {}
    for pod in pods:
        shape = pod.shape
        if id(shape) not in of_shape:
            chain = (shape.controller, workloads.of(pod))
            name_sets = (controllers[ref].template_names() for ref in chain if ref and ref in controllers)
            template = next((names for names in name_sets if names is not None), None)
            of_shape[id(shape)] = with_injected(shape.containers, template)
    return {pod.key: of_shape[id(pod.shape)] for pod in pods}


def _marks(
    pods: Sequence[SeenPod], workloads: Workloads, controllers: Mapping[WorkloadRef, ControllerObject]
) -> dict[WorkloadRef, Marks]:
    """Return the marks of each workload; those of its own object override those of its pods' template."""
    marks: dict[WorkloadRef, Marks] = {}
    for pod in sorted(pods, key=lambda p: (p.accepted_seconds is not None, p.accepted_seconds, p.name)):
        marks[workloads.of(pod)] = Marks(pod.shape.labels, pod.shape.annotations)
    for ref, thing in controllers.items():
        if workloads.owners.get(ref) is None:
            pods_words = marks.get(ref, Marks()).annotations
            annotations = {**pods_words, **projection.own_annotations(thing.metadata)}
            owner = projection.controller_of(thing.metadata)
            operator = f"{owner.kind} {owner.name}" if owner and owner.kind not in CONTROLLERS else ""
            marks[ref] = Marks(thing.metadata.labels or {}, annotations, operator)
    return marks


def _limit_ranges(client: ObjectLister, notes: list[str]) -> tuple[LimitRange, ...] | None:
    groups = _all(projection.limit_ranges_of, _list_optional(client, LIMIT_RANGES, LimitRangeObject, notes), notes)
    return None if groups is None else tightest([bounds for group in groups for bounds in group])


def _quotas(client: ObjectLister, notes: list[str]) -> tuple[Quota, ...] | None:
    """Return the quotas that count all pods of their namespace; one with scopes counts only some and is left out."""
    listed = _list_optional(client, QUOTAS, QuotaObject, notes)
    if listed is None:
        return None
    for thing in (thing for thing in listed if thing.scoped):
        name = f"{thing.metadata.namespace}/{thing.metadata.name}"
        notes.append(f"ResourceQuota {name} has scopes and counts only some pods; it is not taken into account")
    groups = _project_readable(projection.quotas_of, [thing for thing in listed if not thing.scoped], notes)
    return tuple(quota for group in groups for quota in group)


def _version(client: ObjectLister, notes: list[str]) -> str:
    try:
        answer = client.get(VERSION, VersionObject)
    except ClusterError as error:
        notes.append(f"{error.message} {error.fix}".strip())
        return ""
    return projection.version_of(answer.git_version) if answer else ""


def _list_optional(client: ObjectLister, path: str, kind: type[ItemT], notes: list[str]) -> list[ItemT] | None:
    """Return a list that a scan can do without; None, with a note, if it cannot be read."""
    try:
        return client.list(path, kind)
    except ClusterError as error:
        notes.append(f"{error.message} {error.fix}".strip())
        return None


def _all(project: Callable[[Any], ItemT], objects: Sequence[Any] | None, notes: list[str]) -> tuple[ItemT, ...] | None:
    return None if objects is None else tuple(_project_readable(project, objects, notes))


def _project_readable(project: Callable[[Any], ItemT], objects: Sequence[Any], notes: list[str]) -> list[ItemT]:
    """Return every object that can be converted; an unreadable one is left out with a note."""
    projected = []
    for thing in objects:
        try:
            projected.append(project(thing))
        except QuantityError as error:
            notes.append(error.message)
        except Exception as error:  # noqa: BLE001 - whatever a person wrote into it, it must not hide all the others
            key = thing.key if isinstance(thing, SeenPod) else (thing.metadata.namespace, thing.metadata.name)
            what = f"{type(thing).__name__.removesuffix('Object')} {'/'.join(filter(None, key))}"
            notes.append(f"{what} cannot be read and is left out: {type(error).__name__}: {error}"[:LONGEST_WHY])
    return projected


@dataclass(frozen=True, slots=True)
class NodeInputs:
    """The inputs from which a node's reclaimable capacity is computed.

    `metric` is the node's report, None if there is none; `pods` are those that have not ended; `config_map` is the data
    of slo-controller-config, None if that ConfigMap does not exist; `notes` are sentences about unreadable objects.
    """

    node: Node
    metric: NodeMetric | None
    pods: tuple[Pod, ...]
    config_map: dict[str, str] | None
    notes: tuple[str, ...] = ()


def node_inputs(client: KubeClient, name: str, namespace: str) -> NodeInputs:
    """Read a node's `NodeInputs`; raise NoData without the node. `namespace` is that of slo-controller-config."""
    node = client.get(Address("v1", "nodes", name).path, NodeWire)
    if node is None:
        raise NoData(f"no node is named {name}", fix="`kubectl get nodes` lists all nodes.")
    report = client.get(Address(SLO_GROUP, "nodemetrics", name).path)
    config_map = client.get(Address("v1", "configmaps", SLO_CONFIG_MAP, namespace).path, ConfigMapObject)
    pods, notes = _pods(client.list("/api/v1/pods", PodObject, fieldSelector=f"spec.nodeName={name}"))
    return NodeInputs(
        node=projection.node_of(node),
        metric=None if report is None else NodeMetric.parse(report),
        pods=pods,
        config_map=None if config_map is None else config_map.data or {},
        notes=notes,
    )


def _pods(listed: list[PodObject]) -> tuple[tuple[Pod, ...], tuple[str, ...]]:
    """Return the pods that have not ended, and a sentence about each that is left out for an unreadable quantity."""
    pods, notes = [], []
    for pod in listed:
        if pod.status.phase not in ENDED_PHASES:
            try:
                pods.append(pod_of(seen_pod(pod), Workloads({})))
            except QuantityError as error:
                notes.append(f"{error.message}; this pod is not counted")
    return tuple(pods), tuple(notes)
