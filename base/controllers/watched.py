"""EDGE: the form in which the manager's mirrors keep objects: Node and Pod of `base.cluster`, with the uid of an owner.

5,000 nodes and 50,000 pods stay in memory, so nothing is kept that no decision reads, and repeated texts (names of
nodes and namespaces, label keys) exist once.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cotenant.base.cluster import Node, Pod
from cotenant.base.colocation.reclaim_policies import Band
from cotenant.base.controllers.published import ExistingObject, is_other_program
from cotenant.base.identity import WorkloadRef
from cotenant.base.kube.projection import zones_of
from cotenant.base.kubernetes.models.node import ManagedNodeWire
from cotenant.base.kubernetes.models.pod import ObservedPodWire
from cotenant.base.kubernetes.observed import ObservedPod, node_of, pod_of
from cotenant.base.kubernetes.owners import workload_by_name
from cotenant.base.kubernetes.pod_identity import is_placeholder
from cotenant.base.kubernetes.pod_request import mid_request_of
from cotenant.base.kubernetes.protocol import (
    BATCH_CPU_POLICY_ANNOTATION,
    ENDED_PHASES,
    EXTENDED_RESOURCES,
    OWNER_WORKLOAD_ANNOTATION,
    RESOURCE_ALIASES,
)
from cotenant.base.kubernetes.qos import priority_of, qos_of
from cotenant.base.resource import Amounts, Resource

NODE_ANNOTATIONS: Final = ("node.koordinator.sh/", BATCH_CPU_POLICY_ANNOTATION)
"""Beginnings of the names of annotations that decisions read."""
PUBLISHED: Final = frozenset({*EXTENDED_RESOURCES.values(), *RESOURCE_ALIASES})
BATCH_CPU: Final = EXTENDED_RESOURCES[Band.BATCH, Resource.CPU]
UNSTARTED_SECONDS: Final = 2**53
"""Start of a pod that has a node and that no kubelet has accepted yet: later than any moment."""


@dataclass(frozen=True, slots=True)
class WatchedNode:
    """A node, the fields for an ownerReference to it, and other programs that publish batch or mid amounts on it."""

    owned: ExistingObject
    node: Node
    other_writers: tuple[str, ...] = ()


def watched_node(wire: ManagedNodeWire) -> WatchedNode:
    """Convert a Node object; raise QuantityError for an unreadable amount."""
    observed = node_of(wire)
    node = Node(
        name=observed.name,
        capacity=_amounts(observed.capacity),
        allocatable=_amounts(observed.allocatable),
        labels={sys.intern(k): sys.intern(v) for k, v in observed.labels.items()},
        annotations={k: v for k, v in observed.annotations.items() if k.startswith(NODE_ANNOTATIONS)},
        extended_capacity=_published_amounts(observed.capacity),
        extended_allocatable=_published_amounts(observed.allocatable),
    )
    others = tuple(sys.intern(name) for name in wire.writers_of(PUBLISHED) if is_other_program(name))
    return WatchedNode(ExistingObject("v1", "Node", observed.name, observed.uid), node, others)


def watched_pod(wire: ObservedPodWire) -> Pod:
    """Convert a Pod object for sums over nodes; a pod that has ended, or is a placeholder, gets the end time 0."""
    observed = pod_of(wire)
    placeholder, start = is_placeholder(observed.namespace, observed.labels), observed.start_seconds
    return Pod(
        namespace=observed.namespace,
        name=observed.name,
        workload=_workload(observed),
        node=observed.node,
        start_seconds=UNSTARTED_SECONDS if start is None else int(start),
        end_seconds=0 if observed.phase in ENDED_PHASES or placeholder else None,
        qos=qos_of(observed.labels),
        priority=priority_of(observed.labels, observed.priority),
        requests=_amounts(observed.requests),
        mid_requests=mid_request_of(observed.requests),
        zones=tuple(sorted({*zones_of(observed.annotations)})),
        batch_millicores=observed.requests.get(BATCH_CPU, 0),
        best_effort=observed.best_effort,
        placeholder=placeholder and observed.phase not in ENDED_PHASES,
    )


def _workload(pod: ObservedPod) -> WorkloadRef:
    """Return the workload of the pod, as the analysis names it; for a placeholder that of its plan."""
    planned = WorkloadRef.parse(pod.annotations.get(OWNER_WORKLOAD_ANNOTATION, ""))
    if planned and is_placeholder(pod.namespace, pod.labels):
        return planned
    kind, name = pod.owner
    if not kind or kind == "Node":
        return WorkloadRef(pod.namespace, "Pod", pod.name)
    return workload_by_name(WorkloadRef(pod.namespace, kind, name), pod.template_hash, pod.deployment_config)


def _amounts(quantities: Mapping[str, int]) -> Amounts:
    return {r: quantities[r.value] for r in Resource if r.value in quantities}


def _published_amounts(quantities: Mapping[str, int]) -> dict[str, int]:
    """Return the published batch and mid amounts, including those with old names: a node must not have both."""
    return {name: amount for name, amount in quantities.items() if name in PUBLISHED}
