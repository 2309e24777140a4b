"""The cluster as the profiler read it: nodes, pods (including past ones), workloads, autoscalers, events.

An `Inventory` is a snapshot joined with objects to which the history still refers; it is stored next to the usage, and
later stages know nothing else of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from cotenant.base.identity import ContainerRef, PodContainerRef, WorkloadRef
from cotenant.base.kubernetes.pod_request import container_total, effective_requests
from cotenant.base.kubernetes.qos import PriorityClass, QosClass, with_default
from cotenant.base.kubernetes.quantity import add
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.base.runtimes.heap import ManagedHeap

CHECKPOINT_VERSION: Final = "v3"
"""VPA's `SupportedCheckpointVersion`: it reads no other, and neither do we."""


@dataclass(frozen=True, slots=True)
class SavedHistogram:
    """One decaying histogram of usage, as a VPA's checkpoint has it: relative weights by bucket number.

    At `reference_seconds` (Unix), a bucket of weight w has the absolute weight total * w / (sum of all w).
    """

    weights: Mapping[int, float]
    total: float
    reference_seconds: int


@dataclass(frozen=True, slots=True)
class VpaHistory:
    """Usage of one container over all its pods, from a VPA's checkpoint; first and last CPU sample in Unix seconds."""

    container: ContainerRef
    autoscaler: str
    first_seconds: int
    last_seconds: int
    samples: int
    """CPU samples of all pods together; the recommender takes one per minute and pod."""
    histograms: Mapping[Resource, SavedHistogram]


class ContainerRole(StrEnum):
    """The role of a container: main, init or sidecar container of the pod's template, or injected by a webhook."""

    MAIN = "main"
    INIT = "init"
    """Runs before the main containers and ends."""
    SIDECAR = "sidecar"
    """An init container that stays (restartPolicy Always)."""
    INJECTED = "injected"
    """A container that a webhook adds to live pods: the template lacks it, so a patch of the template is no use."""


class PodPhase(StrEnum):
    """A pod's phase as Kubernetes names it; UNKNOWN also if no source reports it."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"

    @property
    def ended(self) -> bool:
        """True if the pod will never run again, so that it no longer occupies its node."""
        return self in (PodPhase.SUCCEEDED, PodPhase.FAILED)


@dataclass(frozen=True, slots=True)
class RunningSum:
    """The sums of a container's requests of one resource over its running pods, for pods whose requests may differ.

    `counted` is the sum of the requests that the scheduler counts; `in_force` is the sum that kubelets have applied,
    which is less while an increase is pending; both in the resource's unit.
    """

    pods: int
    counted: int
    in_force: int

    @classmethod
    def of(cls, pods: Sequence[RunningSum]) -> RunningSum:
        """Return the sums over all pods of these RunningSums together."""
        return cls(sum(p.pods for p in pods), add(p.counted for p in pods), add(p.in_force for p in pods))

    @property
    def mean_in_force(self) -> int:
        """The mean applied request of a pod in the resource's unit, rounded down."""
        return self.in_force // self.pods

    def less_than(self, amount: float) -> float:
        """Return by how much the sum of counted requests is below `amount` per pod; negative if it is above."""
        return self.pods * amount - self.counted

    def differs_from(self, amount: int) -> bool:
        """Return whether either sum differs from that of pods which all request this amount, as in a pending resize."""
        return not self.counted == self.in_force == self.pods * amount


@dataclass(frozen=True, slots=True)
class Container:
    """A container of a workload's pods; amounts in millicores and bytes, a missing key is "not set".

    `restarts_on` lists the resources whose in-place resize restarts the container (resizePolicy RestartContainer).
    `heap` is None unless metrics of the heap are scraped. `pods` is the number of running pods with the container, None
    for all. `gaps` are the reasons why the container is known only partly, so that nothing is proposed. `running` has
    the sums of each resource whose requests differ between pods, or differ from the applied ones.
    """

    name: str
    requests: Mapping[Resource, int] = field(default_factory=dict)
    limits: Mapping[Resource, int] = field(default_factory=dict)
    role: ContainerRole = ContainerRole.MAIN
    restarts_on: tuple[Resource, ...] = ()
    heap: ManagedHeap | None = None
    pods: int | None = None
    gaps: tuple[Reason, ...] = ()
    running: Mapping[Resource, RunningSum] = field(default_factory=dict)

    @property
    def effective_requests(self) -> Mapping[Resource, int]:
        """The requests that the scheduler counts, in the resource's unit; a missing request is the limit."""
        return effective_requests(self.requests, self.limits)


def pod_amount(containers: Iterable[Container], resource: Resource, side: str = "requests") -> int:
    """Return the amount that the scheduler counts for a pod of these containers (`base.kubernetes.pod_request`).

    The amount is in the resource's unit. `side` is "requests" or "limits"; a missing request is the limit. `containers`
    has init containers and sidecars in the order in which they start. Overhead and pod-level amounts are not included
    (`Workload.pod_amount` includes the latter).
    """
    mains: list[dict[Resource, int]] = []
    inits: list[tuple[dict[Resource, int], bool]] = []
    for container in containers:
        declared = container.effective_requests if side == "requests" else container.limits
        amounts = {resource: declared.get(resource, 0)}
        if container.role in (ContainerRole.INIT, ContainerRole.SIDECAR):
            inits.append((amounts, container.role is ContainerRole.SIDECAR))
        else:
            mains.append(amounts)
    return container_total(mains, inits).get(resource, 0)


@dataclass(frozen=True, slots=True)
class OwnAmounts:
    """Pod-level amounts (spec.resources), which count in place of the containers' total; a missing key is not set."""

    requests: Mapping[Resource, int] = field(default_factory=dict)
    limits: Mapping[Resource, int] = field(default_factory=dict)

    def resources(self) -> frozenset[Resource]:
        """Return the resources that have a pod-level request or limit."""
        return frozenset((*self.requests, *self.limits))


@dataclass(frozen=True, slots=True)
class Autoscaler:
    """A HorizontalPodAutoscaler; `targets` are utilisations of a whole pod that it aims at, in percent of the request.

    `unsolvable` are resources with another kind of utilisation target: of one container, several targets, or unknown.
    """

    name: str
    min_replicas: int
    max_replicas: int
    targets: Mapping[Resource, int] = field(default_factory=dict)
    unsolvable: tuple[Resource, ...] = ()

    def follows(self, resource: Resource) -> bool:
        """Return whether the autoscaler compares the usage of the resource with the request."""
        return resource in self.targets or resource in self.unsolvable


@dataclass(frozen=True, slots=True)
class Workload:
    """A controller and its pod template; `replicas` is the number of pods that run now."""

    ref: WorkloadRef
    replicas: int
    containers: tuple[Container, ...]
    qos: QosClass = QosClass.NONE
    priority: PriorityClass = PriorityClass.NONE
    autoscaler: Autoscaler | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    """The annotations whose key begins with `cotenant.dev/`."""
    described: bool = True
    """True if the source reports its containers; False if only usage shows them and their requests are unknown."""
    gaps: tuple[Reason, ...] = ()
    """Reasons why the workload is known only partly, so that nothing is proposed; empty if it is known completely."""
    own: OwnAmounts = field(default_factory=OwnAmounts)
    """The pod-level amounts (spec.resources) of each of its pods."""
    operator: str = ""
    """Kind and name of the object from which an operator writes the workload's template; "" if none is known."""
    vertical: str = ""
    """The reason, as a clause, why a VerticalPodAutoscaler writes the pods' requests; "" if none is known to."""

    @property
    def staying(self) -> tuple[Container, ...]:
        """The containers that run as long as the pod: all except init containers, which end before the others start."""
        return tuple(c for c in self.containers if c.role is not ContainerRole.INIT)

    @property
    def one_template(self) -> bool:
        """True if all pods of the workload have all its containers."""
        return all(c.pods is None for c in self.containers)

    def container(self, name: str) -> Container | None:
        """Return the template's container of this name, or None."""
        return next((c for c in self.containers if c.name == name), None)

    def pods_with(self, container: Container) -> int:
        """Return the number of running pods that have the container."""
        return self.replicas if container.pods is None else container.pods

    def pod_amount(self, resource: Resource, side: str = "requests") -> int:
        """Return a pod's request or limit (`side`) in the resource's unit: its pod-level one, else its containers'."""
        own = self.own.requests if side == "requests" else self.own.limits
        return own[resource] if resource in own else pod_amount(self.containers, resource, side)

    def total(self, resource: Resource, side: str = "requests") -> int:
        """Return the requests or limits (`side`) of all running pods together, in the resource's unit.

        If pods differ, each container counts for the pods that have it, and init containers do not count.
        """
        of_containers = side == "requests" and resource not in self.own.requests
        sums = {c.name: c.running[resource].counted for c in self.staying if of_containers and resource in c.running}
        if self.one_template and not sums:
            return add([self.replicas * self.pod_amount(resource, side)])
        counts = ((c.name, self.pods_with(c) * pod_amount([c], resource, side)) for c in self.staying)
        return add(sums.get(name, count) for name, count in counts)

    def total_request(self, resource: Resource) -> int | None:
        """Return the requests of all running pods together; None if no pod or container requests or limits any."""
        asks = resource in self.own.requests or any(resource in c.effective_requests for c in self.containers)
        return self.total(resource) if asks else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodClass:
    """The QoS class, priority class and requests that all pods of one template and state share.

    `requests` are the effective ones of the whole pod (all containers, overhead); `mid_requests` are those of the
    extended resources mid-cpu and mid-memory. `zones` are the numbers of the NUMA zones that the scheduler chose, empty
    for any. `best_effort` is true if Kubernetes' QoS class is BestEffort; False if that is unknown.
    """

    qos: QosClass = QosClass.NONE
    priority: PriorityClass = PriorityClass.NONE
    requests: Mapping[Resource, int] = field(default_factory=dict)
    mid_requests: Mapping[Resource, int] = field(default_factory=dict)
    zones: tuple[int, ...] = ()
    best_effort: bool = False


@dataclass(frozen=True, slots=True)
class Pod(PodClass):
    """A pod, running or past; `end_seconds` is None while it runs."""

    namespace: str
    name: str
    workload: WorkloadRef
    node: str
    start_seconds: int
    end_seconds: int | None = None
    batch_millicores: int = 0
    """Reclaimed CPU (batch-cpu) that the pod requests."""

    placeholder: bool = False
    """True if the pod only holds reserved capacity for its workload: it uses nothing and never counts as running."""

    phase: PodPhase = PodPhase.RUNNING

    owner_known: bool = True
    """True if the whole chain of the pod's owners is known; otherwise `workload` is the topmost known owner."""

    listed: bool = True
    """True if the source lists the pod; False if it no longer does, and only usage shows that the pod still runs."""

    role: str = ""
    """The pod's role if pods of its workload differ, such as a cluster's head; "" if all are alike."""

    in_doubt: frozenset[Resource] = frozenset()
    """Resources whose resize the node may have refused or deferred, so that the pod's actual amounts are unknown."""

    @property
    def effective_priority(self) -> PriorityClass:
        """The priority class for calculations: the pod's own class, else the class that its QoS class implies."""
        return with_default(self.qos, self.priority, best_effort=self.best_effort)

    @property
    def belongs_to_node(self) -> bool:
        """True if the pod never runs elsewhere: a DaemonSet's pod or a static one.

        A static pod is its own workload (kind Pod), and is recognised by its name, which ends with the node's name.
        """
        kind = self.workload.kind
        return kind == "DaemonSet" or (kind == "Pod" and bool(self.node) and self.name.endswith(f"-{self.node}"))

    @property
    def running(self) -> bool:
        """True if the pod existed and had not ended at the time of the snapshot, so that it may occupy its node."""
        return self.end_seconds is None

    @property
    def serving(self) -> bool:
        """True if the pod counts as a replica of its workload: running, in phase Running, and no placeholder."""
        return self.running and self.phase is PodPhase.RUNNING and not self.placeholder


@dataclass(frozen=True, slots=True)
class Node:
    """A node with its capacity and allocatable of each resource, in millicores and bytes."""

    name: str
    capacity: Mapping[Resource, int]
    allocatable: Mapping[Resource, int]
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    """The annotations whose key begins with `node.koordinator.sh/`."""
    extended_capacity: Mapping[str, int] = field(default_factory=dict)
    """Present amounts of the extended resources in the Node's status.capacity, by resource name."""
    extended_allocatable: Mapping[str, int] = field(default_factory=dict)
    """Present amounts of the extended resources in the Node's status.allocatable, by resource name."""
    gpus: float = 0.0
    """Number of allocatable GPUs."""


@dataclass(frozen=True, slots=True)
class GoneNode:
    """A node that left or became smaller at `end_seconds`; `capacity` is the earlier one, in millicores and bytes."""

    name: str
    capacity: Mapping[Resource, int]
    end_seconds: int


class EventKind(StrEnum):
    """The kind of an event of a container or workload."""

    OOM_KILL = "oom-kill"
    RESTART = "restart"
    DEPLOY = "deploy"


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a container at a Unix time; `memory_limit_bytes` is the limit at an OOM kill, if known."""

    time_seconds: int
    kind: EventKind
    subject: PodContainerRef
    memory_limit_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class LimitRange:
    """A namespace's bounds for one resource of a container, in the resource's unit; None is no bound.

    `max_ratio` bounds limit / request. If `of_pod`, the bounds are on the sum of a pod's containers.
    """

    namespace: str
    resource: Resource
    minimum: int | None = None
    maximum: int | None = None
    max_ratio: float | None = None
    of_pod: bool = False


@dataclass(frozen=True, slots=True)
class Quota:
    """A namespace's ResourceQuota for one resource, in its unit: of limits.* if `of_limits`, else of requests.*."""

    namespace: str
    name: str
    resource: Resource
    of_limits: bool
    hard: int
    used: int


@dataclass(frozen=True, slots=True)
class UnnamedPod:
    """A pod with usage that the source does not list among the pods; first and last slot with usage, Unix seconds."""

    namespace: str
    name: str
    first_seconds: int
    last_seconds: int


@dataclass(frozen=True, slots=True)
class PodRow:
    """Facts about a pod's usage that the usage series of its containers do not show, at `seen_seconds` (Unix time).

    `beyond` is the pod's mean usage, in the resource's unit, if it clearly exceeds the sum of its containers. `idle`
    are containers whose CPU counter is above 0 and did not change, so that their usage is truly 0; "" means all. By
    container, `unreclaimable` are the bytes that the kernel cannot reclaim, if the working set fills the limit.
    `swaps` is true if the pod's node swaps memory and no metric shows how much of that is the pod's.
    """

    namespace: str
    name: str
    seen_seconds: int
    beyond: Mapping[Resource, int] = field(default_factory=dict)
    idle: tuple[str, ...] = ()
    unreclaimable: Mapping[str, int] = field(default_factory=dict)
    swaps: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedFacts:
    """Facts about a cluster that a source reports in addition to its nodes and pods."""

    notes: tuple[str, ...] = ()
    """Data-quality notes in words, such as "priority labels unknown: no access to the Kubernetes API"."""
    server_version: str = ""
    """Version of the API server, such as "1.35.4"; empty if it was not read."""
    controllers: tuple[WorkloadRef, ...] = ()
    """All existing controllers, with or without pods, of the kinds that the source lists."""
    listed_kinds: tuple[str, ...] = ()
    """Kinds that were listed in full: one without entries in `controllers` has no object. Others may have entries."""
    vpa_histories: tuple[VpaHistory, ...] = ()
    """Usage histories of containers, from the checkpoints of VerticalPodAutoscalers."""


@dataclass(frozen=True, slots=True)
class Inventory(ListedFacts):
    """Everything known about one cluster at `time_seconds`."""

    cluster: str
    time_seconds: int
    nodes: tuple[Node, ...]
    workloads: tuple[Workload, ...]
    pods: tuple[Pod, ...]
    events: tuple[Event, ...] = ()
    limit_ranges: tuple[LimitRange, ...] = ()
    quotas: tuple[Quota, ...] = ()
    created_seconds: int | None = None
    """Unix time at which the namespace kube-system was created, which identifies the cluster; None if it is unknown."""
    unnamed: tuple[UnnamedPod, ...] = ()
    """Pods with usage in the window that no source lists; each belongs to some workload."""
    pod_rows: tuple[PodRow, ...] = ()
    """Facts of the pods for which cAdvisor's pod-level series show more than those of their containers."""
    gone_nodes: tuple[GoneNode, ...] = ()
    """Nodes that have left, on which pods of the window ran: these may have used more than any present node has."""

    def owners(self) -> dict[tuple[str, str], WorkloadRef]:
        """Return the workload of each pod by (namespace, pod), including past pods."""
        return {(p.namespace, p.name): p.workload for p in self.pods}

    def requested_by_node(self, resource: Resource) -> dict[str, int]:
        """Return the sum of requests of the pods that may occupy each node, in the resource's unit; 0 without pods."""
        requested = {node.name: 0 for node in self.nodes}
        for pod in self.pods:
            if pod.running and pod.node in requested:
                requested[pod.node] = add((requested[pod.node], pod.requests.get(resource, 0)))
        return requested

    def known_requests_by_node(self, resource: Resource) -> dict[str, int | None]:
        """Return the sum of pods' requests on each node, in the resource's unit; None if any of them is in doubt."""
        doubted = {pod.node for pod in self.pods if pod.running and resource in pod.in_doubt}
        requested = self.requested_by_node(resource)
        return {name: None if name in doubted else amount for name, amount in requested.items()}

    def container_of(
        self, series: PodContainerRef, owners: Mapping[tuple[str, str], WorkloadRef]
    ) -> ContainerRef | None:
        """Return the template's container to which a usage series belongs, or None if the pod is unknown."""
        owner = owners.get((series.namespace, series.pod))
        return ContainerRef(owner, series.container) if owner else None


QUOTA_KEYS: Final[Mapping[str, tuple[Resource, bool]]] = {
    "cpu": (Resource.CPU, False),
    "memory": (Resource.MEMORY, False),
    "requests.cpu": (Resource.CPU, False),
    "requests.memory": (Resource.MEMORY, False),
    "limits.cpu": (Resource.CPU, True),
    "limits.memory": (Resource.MEMORY, True),
}
"""What a ResourceQuota may name -> resource, and whether it counts limits; `cpu` is short for `requests.cpu`."""


def tightest(ranges: Iterable[LimitRange]) -> tuple[LimitRange, ...]:
    """Return the tightest bound by namespace and resource, for containers and for pods: every LimitRange applies."""
    bounds: dict[tuple[str, bool, Resource], LimitRange] = {}
    for limit_range in ranges:
        old = bounds.get((limit_range.namespace, limit_range.of_pod, limit_range.resource), limit_range)
        bounds[limit_range.namespace, limit_range.of_pod, limit_range.resource] = LimitRange(
            limit_range.namespace,
            limit_range.resource,
            max((m for m in (old.minimum, limit_range.minimum) if m is not None), default=None),
            min((m for m in (old.maximum, limit_range.maximum) if m is not None), default=None),
            min((r for r in (old.max_ratio, limit_range.max_ratio) if r is not None), default=None),
            limit_range.of_pod,
        )
    return tuple(bounds[key] for key in sorted(bounds))
