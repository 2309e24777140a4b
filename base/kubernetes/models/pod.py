"""A Pod as the API writes it: the fields that most consumers read, and one struct per group of consumers. Pure.

Every struct that counts resources inherits from PodSpecWire and PodStatusWire, so that no consumer can forget native
sidecars, a resize in progress or pod-level resources.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec

from cotenant.base.kubernetes.models.metadata import (
    DatedMeta,
    EndingMeta,
    ObjectLabels,
    ObjectMeta,
    ObjectName,
    ObjectOwner,
    ObjectReference,
)

Quantities = dict[str, str | int | float]
Json = dict[str, Any]


class ResourcesWire(msgspec.Struct):
    """Requests and limits of a container or of a pod."""

    requests: Quantities | None = None
    limits: Quantities | None = None


class ContainerWire(msgspec.Struct, rename="camel"):
    """A container in a Pod's spec, with its requests, limits and restart policy."""

    name: str = ""
    resources: ResourcesWire | None = None
    restart_policy: str | None = None


class PodSpecWire(msgspec.Struct, rename="camel"):
    """The containers, overhead and resources in a Pod's spec."""

    containers: Sequence[ContainerWire] | None = None
    init_containers: Sequence[ContainerWire] | None = None
    ephemeral_containers: Sequence[ContainerWire] | None = None
    overhead: Quantities | None = None
    resources: ResourcesWire | None = None


class PlacedPodSpec(PodSpecWire, rename="camel"):
    """The resources in a Pod's spec, with its node ("" before it is bound) and its priority."""

    node_name: str = ""
    priority: int | None = None


class Terminated(msgspec.Struct, rename={"finished_at": "finishedAt", "container_id": "containerID"}):
    """The end of a container: its time, the kubelet's reason such as "OOMKilled", and the container's runtime id."""

    finished_at: datetime | None = None
    reason: str = ""
    container_id: str = ""


class ContainerState(msgspec.Struct):
    """The state of a container: `running` is not None while it runs; the content of that object is not used."""

    running: Json | None = None
    terminated: Terminated | None = None


class ContainerStatusWire(msgspec.Struct, rename="camel"):
    """The resources of a container as its kubelet reports them."""

    name: str = ""
    resources: ResourcesWire | None = None
    allocated_resources: Quantities | None = None


class StatedContainer(ContainerStatusWire, rename="camel"):
    """The reported resources of a container, its current and its last state, and the number of its restarts."""

    id: str = msgspec.field(default="", name="containerID")
    restart_count: int = 0
    state: ContainerState = msgspec.field(default_factory=ContainerState)
    last_state: ContainerState = msgspec.field(default_factory=ContainerState)


class PodCondition(msgspec.Struct, rename="camel"):
    """A condition of a Pod: its type, its status ("True", "False" or "Unknown"), and the reason in one word."""

    type: str = ""
    status: str = ""
    reason: str = ""


class TimedPodCondition(PodCondition, rename="camel"):
    """A condition of a Pod and the time of its last change of status."""

    last_transition_time: datetime | None = None


class PodStatusWire(msgspec.Struct, rename="camel"):
    """The conditions of a Pod, and the resources of the pod and its containers as the kubelet reports them."""

    conditions: Sequence[PodCondition] | None = None
    container_statuses: Sequence[ContainerStatusWire] | None = None
    init_container_statuses: Sequence[ContainerStatusWire] | None = None
    resources: ResourcesWire | None = None
    allocated_resources: Quantities | None = None

    def each_status(self) -> Iterator[ContainerStatusWire]:
        """Yield the status of every container: the main ones, then init containers and sidecars."""
        yield from self.container_statuses or ()
        yield from self.init_container_statuses or ()


class PhasedPodStatus(PodStatusWire, rename="camel"):
    """The reported resources of a Pod, its phase and its Kubernetes QoS class."""

    phase: str = ""
    qos_class: str = ""


class StartedPodStatus(PhasedPodStatus, rename="camel"):
    """The reported resources of a Pod, its phase, and the time at which the kubelet accepted it."""

    start_time: datetime | None = None


class ObservedPodWire(msgspec.Struct):
    """A Pod as the controllers watch and cache it."""

    metadata: EndingMeta
    spec: PlacedPodSpec
    status: StartedPodStatus = msgspec.field(default_factory=StartedPodStatus)


class ResizePolicy(msgspec.Struct, rename="camel"):
    """The policy that says whether the container restarts when one resource is resized in place."""

    resource_name: str
    restart_policy: str


class ResizableContainer(ContainerWire, rename="camel"):
    """A container of a pod's spec with its resize policies."""

    resize_policy: list[ResizePolicy] | None = None


class _ResizableSpec(PlacedPodSpec, rename="camel"):
    containers: list[ResizableContainer] | None = None
    init_containers: list[ResizableContainer] | None = None


class PodObject(msgspec.Struct):
    """A Pod as a scan's inventory reads it."""

    metadata: DatedMeta
    spec: _ResizableSpec
    status: StartedPodStatus = msgspec.field(default_factory=StartedPodStatus)


class _StatedStatus(StartedPodStatus, rename="camel"):
    container_statuses: list[StatedContainer] | None = None
    init_container_statuses: list[StatedContainer] | None = None

    def each_status(self) -> Iterator[StatedContainer]:
        """Yield the status of every container, with its states: the main ones, then init containers and sidecars."""
        yield from self.container_statuses or ()
        yield from self.init_container_statuses or ()


class StatedPod(PodObject):
    """A Pod as a scan's inventory reads it, with the states of its containers."""

    status: _StatedStatus = msgspec.field(default_factory=_StatedStatus)


class KilledPodWire(ObservedPodWire):
    """A Pod as controllers watch it, with the last termination of each container."""

    status: _StatedStatus = msgspec.field(default_factory=_StatedStatus)

    def oom_kills(self) -> dict[str, float]:
        """Return the Unix time of each container's last kill for lack of memory, by container name."""
        kills = {}
        for status in self.status.each_status():
            for state in (status.last_state, status.state):
                end = state.terminated
                if end is not None and end.reason == "OOMKilled" and end.finished_at is not None:
                    kills[status.name] = end.finished_at.timestamp()
        return kills


class _EndedStatus(msgspec.Struct, rename="camel"):
    phase: str = ""
    start_time: datetime | None = None
    container_statuses: list[StatedContainer] | None = None


class _MemberMeta(EndingMeta, rename="camel"):
    owner_references: Sequence[ObjectReference] | None = None

    @property
    def controller_uid(self) -> str:
        """The uid of the owner that manages the pod, or "" if none does."""
        return next((owner.uid for owner in self.owner_references or () if owner.controller), "")


class EndedPodWire(msgspec.Struct):
    """A Pod that has ended, with its owner and the times of its start and end."""

    metadata: _MemberMeta
    status: _EndedStatus = msgspec.field(default_factory=_EndedStatus)

    def run_seconds(self) -> float | None:
        """Return the seconds from the pod's start to its last container's end, or None if the status lacks either."""
        ends = [c.state.terminated.finished_at for c in self.status.container_statuses or () if c.state.terminated]
        known_ends = [end for end in ends if end is not None]
        start = self.status.start_time
        return max(0.0, (max(known_ends) - start).total_seconds()) if start and known_ends else None


class SchedulingGate(msgspec.Struct):
    """An entry of a Pod's schedulingGates."""

    name: str = ""


class TolerationWire(msgspec.Struct):
    """A toleration of a Pod; a field that is not set is ""."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class SchedulingGroup(msgspec.Struct, rename="camel"):
    """The PodGroup that a Pod belongs to, by Kubernetes' native gang scheduling."""

    pod_group_name: str = ""


class _QueuePodMeta(_MemberMeta, rename="camel"):
    resource_version: str = ""
    creation_timestamp: datetime | None = None


class _QueuePodSpec(PlacedPodSpec, rename="camel"):
    scheduling_group: SchedulingGroup | None = None
    preemption_policy: str = ""
    restart_policy: str = ""
    active_deadline_seconds: float | None = None
    scheduling_gates: list[SchedulingGate] | None = None
    node_selector: dict[str, str] | None = None
    affinity: Json | None = None
    tolerations: list[TolerationWire] | None = None


class QueuePodWire(ObservedPodWire):
    """A Pod as controllers watch it, with the fields that quotas, gangs and scheduling gates depend on."""

    metadata: _QueuePodMeta
    spec: _QueuePodSpec


class _AgentMeta(EndingMeta, rename="camel"):
    creation_timestamp: datetime | None = None


class _AgentSpec(PlacedPodSpec, rename="camel"):
    host_network: bool = False
    resource_claims: list[Json] | None = None


class _Ip(msgspec.Struct, gc=False):
    ip: str = ""


class NodePodStatus(PhasedPodStatus, rename="camel"):
    """A Pod's status as the node agent reads it: with its IP addresses and the runtime ids of all containers."""

    pod_ips: list[_Ip] | None = msgspec.field(default=None, name="podIPs")
    container_statuses: list[StatedContainer] | None = None
    init_container_statuses: list[StatedContainer] | None = None
    ephemeral_container_statuses: list[StatedContainer] | None = None


class NodePodWire(msgspec.Struct):
    """A Pod with the fields that the node agent reads."""

    metadata: _AgentMeta
    spec: _AgentSpec = msgspec.field(default_factory=_AgentSpec)
    status: NodePodStatus = msgspec.field(default_factory=NodePodStatus)


class _ScheduledMeta(ObjectLabels, rename="camel"):
    generate_name: str = ""
    resource_version: str = ""
    owner_references: list[ObjectReference] | None = None
    deletion_timestamp: datetime | None = None


class _ScheduledSpec(PlacedPodSpec, rename="camel"):
    active_deadline_seconds: float | None = None
    affinity: msgspec.Raw = msgspec.Raw()
    topology_spread_constraints: msgspec.Raw = msgspec.Raw()


class TimedPodStatus(PhasedPodStatus, rename="camel"):
    """The reported resources of a Pod, its phase, and its conditions with the time of their last change."""

    conditions: list[TimedPodCondition] | None = None

    def true_since(self, condition_type: str) -> float | None:
        """Return the Unix time since which a condition is true; None if it is not true or has no time."""
        true = (c for c in self.conditions or () if (c.type, c.status) == (condition_type, "True"))
        return next((c.last_transition_time.timestamp() for c in true if c.last_transition_time is not None), None)


class PodWire(msgspec.Struct):
    """A Pod as the scheduler sends it to the extender; a pod that is not created yet has no name."""

    metadata: _ScheduledMeta = msgspec.field(default_factory=_ScheduledMeta)
    spec: _ScheduledSpec = msgspec.field(default_factory=_ScheduledSpec)
    status: TimedPodStatus = msgspec.field(default_factory=TimedPodStatus)


class _MovableMeta(_ScheduledMeta, rename="camel"):
    creation_timestamp: datetime | None = None
    finalizers: list[str] | None = None


class _VolumeClaim(msgspec.Struct, rename="camel"):
    claim_name: str = ""


class _Volume(msgspec.Struct, rename="camel"):
    name: str = ""
    empty_dir: msgspec.Raw = msgspec.Raw()
    host_path: msgspec.Raw = msgspec.Raw()
    persistent_volume_claim: _VolumeClaim | None = None


class MovablePodSpec(_ScheduledSpec, rename="camel"):
    """A Pod's spec with its volumes and, as JSON, its rules that limit the nodes it may run on."""

    volumes: list[_Volume] | None = None
    node_selector: msgspec.Raw = msgspec.Raw()
    tolerations: msgspec.Raw = msgspec.Raw()


class MovablePod(PodWire):
    """A Pod as rebalancing reads it: the extender's fields, and the fields that determine the cost of moving it."""

    metadata: _MovableMeta = msgspec.field(default_factory=_MovableMeta)
    spec: MovablePodSpec = msgspec.field(default_factory=MovablePodSpec)


class _SizedMeta(ObjectLabels, rename="camel"):
    owner_references: list[ObjectOwner] | None = None
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None


class _Port(msgspec.Struct, rename="camel"):
    host_port: int = 0
    protocol: str = "TCP"


class _PortedContainer(ContainerWire, rename="camel"):
    ports: list[_Port] | None = None


class SizedPodSpec(PlacedPodSpec, rename="camel"):
    """A Pod's spec with all rules that restrict its placement, for a simulation of the scheduler."""

    containers: Sequence[_PortedContainer] | None = None
    init_containers: Sequence[_PortedContainer] | None = None
    node_selector: dict[str, str] | None = None
    affinity: Json | None = None
    tolerations: list[Json] | None = None
    topology_spread_constraints: list[Json] | None = None
    volumes: list[Json] | None = None
    scheduler_name: str = "default-scheduler"
    resource_claims: list[Json] | None = None


class SizedPodWire(msgspec.Struct):
    """A Pod as the computation of the least cluster size reads it."""

    metadata: _SizedMeta = msgspec.field(default_factory=_SizedMeta)
    spec: SizedPodSpec = msgspec.field(default_factory=SizedPodSpec)
    status: PodStatusWire = msgspec.field(default_factory=PodStatusWire)


class AdmittedPodSpec(PodSpecWire, rename="camel"):
    """The resources in the spec of a Pod that is being admitted, its priority and its priority class."""

    priority: int | None = None
    priority_class_name: str | None = None


class AdmittedPod(msgspec.Struct):
    """A Pod as the admission webhook reviews it."""

    metadata: ObjectLabels
    spec: AdmittedPodSpec


class _CreatedMeta(ObjectLabels, rename="camel"):
    creation_timestamp: datetime | None = None


class _CreatedSpec(msgspec.Struct, rename="camel"):
    priority_class_name: str = ""
    scheduler_name: str = ""


class ProfiledPod(msgspec.Struct):
    """A Pod with the fields that a ClusterColocationProfile sets at its creation."""

    metadata: _CreatedMeta
    spec: _CreatedSpec = msgspec.field(default_factory=_CreatedSpec)


class _ConditionStatus(msgspec.Struct):
    conditions: list[PodCondition] | None = None


class WaitingPodWire(msgspec.Struct):
    """A Pod without a node, of which only the conditions are read."""

    status: _ConditionStatus = msgspec.field(default_factory=_ConditionStatus)

    @property
    def is_unschedulable(self) -> bool:
        """True if the scheduler searched for a node and found none."""
        return any(
            condition.type == "PodScheduled" and condition.reason == "Unschedulable"
            for condition in self.status.conditions or ()
        )


class _GatedSpec(msgspec.Struct, rename="camel"):
    scheduling_gates: list[SchedulingGate] | None = None


class GatedPod(msgspec.Struct):
    """A Pod of which only the metadata and the scheduling gates are read."""

    metadata: ObjectMeta
    spec: _GatedSpec


class _NodeName(msgspec.Struct, rename="camel"):
    node_name: str = ""


class PodPlace(msgspec.Struct):
    """The name and node of a Pod, decoded alone if the rest of the Pod is unreadable."""

    metadata: ObjectName
    spec: _NodeName


class _Variable(msgspec.Struct):
    name: str = ""
    value: str = ""


class _ConfiguredContainer(msgspec.Struct):
    env: list[_Variable] | None = None


class _ConfiguredSpec(msgspec.Struct, rename="camel"):
    node_name: str = ""
    containers: list[_ConfiguredContainer] | None = None


class ConfiguredPod(msgspec.Struct):
    """A Pod of which only the node and its containers' environment variables are read."""

    spec: _ConfiguredSpec

    def variable(self, name: str) -> str | None:
        """Return the value of an environment variable from the last container that sets it, or None if none does."""
        entries = [entry for container in self.spec.containers or () for entry in container.env or ()]
        return next((entry.value for entry in reversed(entries) if entry.name == name), None)


class _TolerantSpec(msgspec.Struct):
    tolerations: list[Json] | None = None


class TolerantTemplate(msgspec.Struct):
    """A pod template of which only the tolerations are read."""

    spec: _TolerantSpec = msgspec.field(default_factory=_TolerantSpec)


class _NamedContainer(msgspec.Struct):
    name: str


class _NamedContainers(msgspec.Struct, rename="camel"):
    containers: list[_NamedContainer] | None = None
    init_containers: list[_NamedContainer] | None = None


class NamedTemplate(msgspec.Struct):
    """A pod template of which only the names of the containers are read."""

    spec: _NamedContainers = msgspec.field(default_factory=_NamedContainers)


class _SizedContainer(msgspec.Struct):
    name: str = ""
    resources: Json | None = None


class _SizedContainers(msgspec.Struct, rename="camel"):
    containers: list[_SizedContainer] | None = None
    init_containers: list[_SizedContainer] | None = None


class SizedTemplate(msgspec.Struct):
    """A pod template of which only the containers' names and resources are read."""

    spec: _SizedContainers = msgspec.field(default_factory=_SizedContainers)

    def resources(self) -> dict[str, Json | None]:
        """Return the `resources` of each container by name, including init containers and sidecars."""
        every = (*(self.spec.containers or ()), *(self.spec.init_containers or ()))
        return {container.name: container.resources for container in every}
