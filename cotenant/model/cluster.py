"""The cluster as the profiler saw it: nodes, pods (also gone ones), workloads, autoscalers, events.

An `Inventory` is a snapshot joined with what history still refers to; it is stored beside the usage and is all that the
later stages know of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from cotenant.model.identity import ContainerRef, PodContainerRef, WorkloadRef
from cotenant.model.qos import PriorityClass, QosClass
from cotenant.model.resource import Resource


@dataclass(frozen=True, slots=True)
class Container:
    """A container of a workload's template; amounts in millicores and bytes, a missing key is "not set"."""

    name: str
    requests: Mapping[Resource, int] = field(default_factory=dict)
    limits: Mapping[Resource, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Autoscaler:
    """A HorizontalPodAutoscaler; `targets` maps a resource to its utilisation target in percent of the request."""

    name: str
    min_replicas: int
    max_replicas: int
    targets: Mapping[Resource, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Workload:
    """A controller and its template; `replicas` counts the pods that run now."""

    ref: WorkloadRef
    replicas: int
    containers: tuple[Container, ...]
    qos: QosClass = QosClass.NONE
    priority: PriorityClass = PriorityClass.NONE
    autoscaler: Autoscaler | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    def container(self, name: str) -> Container | None:
        """The template's container of that name."""
        return next((c for c in self.containers if c.name == name), None)


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod, running or gone; `end_seconds` is None while it runs."""

    namespace: str
    name: str
    workload: WorkloadRef
    node: str
    start_seconds: int
    end_seconds: int | None = None
    qos: QosClass = QosClass.NONE
    priority: PriorityClass = PriorityClass.NONE
    requests: Mapping[Resource, int] = field(default_factory=dict)
    """Effective request of the whole pod (all containers, overhead)."""

    @property
    def running(self) -> bool:
        """Whether the pod was there when the snapshot was taken."""
        return self.end_seconds is None


@dataclass(frozen=True, slots=True)
class Node:
    """A node; capacity and allocatable in millicores and bytes."""

    name: str
    capacity: Mapping[Resource, int]
    allocatable: Mapping[Resource, int]
    labels: Mapping[str, str] = field(default_factory=dict)


class EventKind(StrEnum):
    """What happened to a container or workload."""

    OOM_KILL = "oom-kill"
    RESTART = "restart"
    DEPLOY = "deploy"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened at a moment; `memory_limit_bytes` is the limit in force at an OOM kill, if known."""

    time_seconds: int
    kind: EventKind
    subject: PodContainerRef
    memory_limit_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Inventory:
    """Everything known about one cluster at `time_seconds`."""

    cluster: str
    time_seconds: int
    nodes: tuple[Node, ...]
    workloads: tuple[Workload, ...]
    pods: tuple[Pod, ...]
    events: tuple[Event, ...] = ()
    notes: tuple[str, ...] = ()
    """Data-quality notes in words, such as "priority labels unknown: no access to the Kubernetes API"."""

    def owners(self) -> dict[tuple[str, str], WorkloadRef]:
        """(namespace, pod) -> workload, gone pods included."""
        return {(p.namespace, p.name): p.workload for p in self.pods}

    def container_of(
        self, series: PodContainerRef, owners: Mapping[tuple[str, str], WorkloadRef]
    ) -> ContainerRef | None:
        """The template's container behind a usage series, None for a pod nobody knows."""
        owner = owners.get((series.namespace, series.pod))
        return ContainerRef(owner, series.container) if owner else None
