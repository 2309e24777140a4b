"""Pods as their objects describe them, before their owners are known. Pure.

The properties that pods of one template share are their shape, which is stored once for many pods. The workload of a
pod is found when its owners are listed (`Workloads`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from cotenant.base.cluster import Container, ContainerRole, OwnAmounts, Pod, PodClass, PodPhase
from cotenant.base.errors import QuantityError
from cotenant.base.identity import WorkloadRef
from cotenant.base.inventory.pod_templates import role_of
from cotenant.base.json_documents.inherited import inherited_fields
from cotenant.base.kube import projection
from cotenant.base.kube.objects import ControllerObject
from cotenant.base.kubernetes.models.pod import PodObject
from cotenant.base.kubernetes.owners import (
    DEPLOYMENT_CONFIG_LABEL,
    LINKED,
    MOST_LINKS,
    TEMPLATE_HASH_LABEL,
    owner_by_name,
)
from cotenant.base.kubernetes.pod_qos import PodQos
from cotenant.base.kubernetes.pod_request import mid_request_of
from cotenant.base.kubernetes.pod_resources import counted_requests
from cotenant.base.kubernetes.pod_wire import pod_resources
from cotenant.base.kubernetes.protocol import ENDED_PHASES, PLACEHOLDER_NAMESPACE
from cotenant.base.kubernetes.qos import priority_of, qos_of
from cotenant.base.resource import Resource

Owners = Mapping[WorkloadRef, WorkloadRef | None]
"""Objects that were read, and their owners; None = no owner."""
_PHASES: Final = {phase.value: phase for phase in PodPhase}


@dataclass(frozen=True, slots=True, weakref_slot=True)
class PodShape(PodClass):
    """The properties that pods of one template and state share.

    `controller` is the pods' direct controller; `annotations` are those that cotenant reads; `containers` have the
    roles of the spec, and are empty if an amount is unreadable. `own` are pod-level amounts of the spec; `reported` are
    the names of containers in the kubelet's status; `refusal` is the reason why amounts are unreadable, "" if all are
    readable.
    """

    controller: WorkloadRef | None
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    phase: str
    containers: tuple[Container, ...] = ()
    own: OwnAmounts = field(default_factory=OwnAmounts)
    reported: tuple[str, ...] = ()
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class SeenPod:
    """A pod as listed; its times are Unix seconds: created (0 if unknown), and accepted by its kubelet."""

    namespace: str
    name: str
    uid: str
    node: str
    created_seconds: float
    accepted_seconds: float | None
    shape: PodShape

    @property
    def key(self) -> tuple[str, str]:
        """The pair (namespace, name)."""
        return self.namespace, self.name

    @property
    def start_seconds(self) -> int:
        """Unix second at which the kubelet accepted the pod, or else at which it was created."""
        return int(self.created_seconds if self.accepted_seconds is None else self.accepted_seconds)

    @property
    def occupies_node(self) -> bool:
        """True if the pod is bound to a node and has not ended."""
        return bool(self.node) and self.shape.phase not in ENDED_PHASES


def seen_pod(pod: PodObject) -> SeenPod:
    """Convert a Pod object of the API to a SeenPod."""
    return with_shape(pod, shape_of(pod))


def with_shape(pod: PodObject, shape: PodShape) -> SeenPod:
    """Convert a Pod object of the API to a SeenPod with an already computed shape."""
    meta, started = pod.metadata, pod.status.start_time
    return SeenPod(
        namespace=sys.intern(meta.namespace),
        name=meta.name,
        uid=meta.uid,
        node=sys.intern(pod.spec.node_name),
        created_seconds=meta.creation_timestamp.timestamp() if meta.creation_timestamp else 0.0,
        accepted_seconds=None if started is None else started.timestamp(),
        shape=shape,
    )


def shape_of(pod: PodObject) -> PodShape:
    """Return a pod's shape; if it cannot be read in full, `refusal` is the reason, and properties are missing."""
    meta = pod.metadata
    shape = PodShape(None, {}, {}, pod.status.phase)
    try:
        status, labels = pod.status, meta.labels or {}
        shape = PodShape(
            controller=projection.controller_of(meta),
            labels=labels,
            annotations=projection.own_annotations(meta),
            phase=status.phase,
            qos=qos_of(labels),
            priority=priority_of(labels, pod.spec.priority),
            zones=projection.zones_of(meta.annotations or {}),
            best_effort=status.qos_class == PodQos.BEST_EFFORT,
            reported=tuple(sys.intern(state.name) for state in status.each_status()),
        )
        shape = replace(shape, containers=projection.containers_of(pod), own=projection.own_amounts_of(pod))
        counted = counted_requests(pod_resources(pod.spec, pod.status, f"pod {meta.namespace}/{meta.name}"))
        requests = {resource: counted[resource.value] for resource in Resource if resource.value in counted}
        return replace(shape, requests=requests, mid_requests=mid_request_of(counted))
    except QuantityError as error:
        return replace(shape, refusal=error.message)
    except Exception as error:  # noqa: BLE001 - whatever a person wrote into it, it must not hide all the others
        why = f"pod {meta.namespace}/{meta.name} cannot be read: {type(error).__name__}: {error}"
        return replace(shape, containers=(), refusal=why)


class Workloads:
    """Finds the topmost controller (workload) of each pod; pods with the same shape share the cached result."""

    def __init__(self, owners: Owners) -> None:
        """`owners` is the result of `owners_of`."""
        self.owners = owners
        self._known: dict[int, tuple[PodShape, tuple[WorkloadRef, bool]]] = {}

    def of(self, pod: SeenPod) -> WorkloadRef:
        """Return the topmost known controller of a pod, or the pod itself if it has none."""
        return self.topmost(pod)[0]

    def topmost(self, pod: SeenPod) -> tuple[WorkloadRef, bool]:
        """Return a pod's topmost known controller, or the pod itself, and whether it surely has no owner above it.

        The owner of a ReplicaSet that could not be listed is found by the pod-template-hash in its name, that of a
        ReplicationController by its pods' DeploymentConfig label.
        """
        shape = pod.shape
        if shape.controller is None:
            return WorkloadRef(pod.namespace, "Pod", pod.name), True
        cached = self._known.get(id(shape))
        if cached is None:
            cached = self._known[id(shape)] = shape, self._lead_on(shape.controller, shape.labels)
        return cached[1]

    def _lead_on(self, ref: WorkloadRef, labels: Mapping[str, str]) -> tuple[WorkloadRef, bool]:
        for _ in range(MOST_LINKS):
            if ref.kind not in LINKED:
                return ref, True
            if ref not in self.owners:
                upper = owner_by_name(ref, labels.get(TEMPLATE_HASH_LABEL, ""), labels.get(DEPLOYMENT_CONFIG_LABEL, ""))
                return upper or ref, upper is not None
            upper = self.owners[ref]
            if upper is None:
                return ref, True
            ref = upper
        return ref, True


def owners_of(controllers: Mapping[WorkloadRef, ControllerObject], pods: Iterable[SeenPod] = ()) -> Owners:
    """Return the controller of each object of a kind in LINKED, and of each pod that owns others; None without one."""
    own: dict[WorkloadRef, WorkloadRef | None] = {
        ref: projection.controller_of(thing.metadata) for ref, thing in controllers.items() if ref.kind in LINKED
    }
    pods = tuple(pods)
    names = {ref.name for ref in (*own.values(), *(pod.shape.controller for pod in pods)) if ref and ref.kind == "Pod"}
    owning = (pod for pod in pods if pod.name in names)
    return own | {WorkloadRef(pod.namespace, "Pod", pod.name): pod.shape.controller for pod in owning}


def pod_of(pod: SeenPod, workloads: Workloads) -> Pod:
    """Convert a listed pod to a Pod with its workload, QoS class, priority and effective requests.

    Its `end_seconds` is None. Raise QuantityError if an amount of the pod is unreadable.
    """
    shape = pod.shape
    if shape.refusal:
        raise QuantityError(shape.refusal)
    workload, is_known = workloads.topmost(pod)
    return Pod(
        namespace=pod.namespace,
        name=pod.name,
        workload=workload,
        node=pod.node,
        start_seconds=pod.start_seconds,
        **inherited_fields(shape, PodClass),
        placeholder=pod.namespace == PLACEHOLDER_NAMESPACE,
        phase=_PHASES.get(shape.phase, PodPhase.UNKNOWN),
        owner_known=is_known,
        role=role_of(workload, pod.name, shape.labels, shape.controller),
    )


def with_injected(containers: tuple[Container, ...], template: frozenset[str] | None) -> tuple[Container, ...]:
    """Mark the long-running containers that are not in the owner's template as injected; None is an unknown template.

    Init containers are never marked, because they end.
    """
    if template is None or all(_is_own(container, template) for container in containers):
        return containers
    return tuple(c if _is_own(c, template) else replace(c, role=ContainerRole.INJECTED) for c in containers)


def _is_own(container: Container, template: frozenset[str]) -> bool:
    return container.name in template or container.role is ContainerRole.INIT
