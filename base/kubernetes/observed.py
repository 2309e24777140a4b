"""Nodes and pods as decisions about colocation read them: a few fields of thousands of objects. Pure.

Amounts are integers by resource name: cpu in millicores, everything else in its own unit (bytes for memory; batch-cpu
and mid-cpu are whole numbers that mean millicores).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from cotenant.base.kubernetes.models.node import NodeWire
from cotenant.base.kubernetes.models.pod import ObservedPodWire
from cotenant.base.kubernetes.owners import DEPLOYMENT_CONFIG_LABEL, TEMPLATE_HASH_LABEL
from cotenant.base.kubernetes.pod_qos import PodQos
from cotenant.base.kubernetes.pod_request import named_amounts
from cotenant.base.kubernetes.pod_resources import counted_requests
from cotenant.base.kubernetes.pod_wire import pod_resources
from cotenant.base.kubernetes.protocol import NOT_ENDED, own_texts
from cotenant.base.kubernetes.qos import PriorityClass, QosClass, priority_of, qos_of

NamedAmounts = Mapping[str, int]
LAG_SECONDS: Final = 60.0
"""A deleted pod may exist for this time beyond its grace period before it counts as stuck."""


def outlasts_its_end(gone_by_seconds: float | None, now_seconds: float) -> bool:
    """Return whether a pod exists LAG_SECONDS after its grace period, due to a finalizer or an unreachable node.

    `gone_by_seconds` is the Unix time at which the grace period ends; None if the pod is not being deleted.
    """
    return gone_by_seconds is not None and now_seconds >= gone_by_seconds + LAG_SECONDS


@dataclass(frozen=True, slots=True)
class ObservedNode:
    """A Node; its `annotations` are only those with a key of koordinator.sh, cotenant.dev or their subdomains."""

    name: str
    uid: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    capacity: NamedAmounts = field(default_factory=dict)
    allocatable: NamedAmounts = field(default_factory=dict)
    unschedulable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PodState:
    """The state of a pod that scheduling gates and placements depend on: its node (or ""), requests and gates."""

    node: str = ""
    phase: str = "Pending"
    deleting: bool = False
    gates: tuple[str, ...] = ()
    requests: NamedAmounts = field(default_factory=dict)
    priority: int = 0
    created_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ObservedPod:
    """A Pod that may be on a node; labels and annotations only with keys of koordinator.sh, cotenant.dev or subdomains.

    `requests` are those that the scheduler counts, including overhead and init containers. `owner` is (kind, name) of
    its controller, ("", "") without one. `template_hash` is set for a Deployment's pod, `deployment_config` is the name
    in its label; otherwise they are "". `start_seconds` is the Unix time at which the kubelet accepted it, None before;
    `gone_by_seconds` is the Unix time at which the grace period of a deleted pod ends.
    """

    namespace: str
    name: str
    uid: str
    node: str
    phase: str
    deleting: bool = False
    priority: int | None = None
    owner: tuple[str, str] = ("", "")
    requests: NamedAmounts = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    best_effort: bool = False
    """True if status.qosClass is BestEffort."""
    template_hash: str = ""
    deployment_config: str = ""
    start_seconds: float | None = None
    gone_by_seconds: float | None = None

    @property
    def active(self) -> bool:
        """True if the pod uses or will use its node: Running or Pending."""
        return self.phase in ("Running", "Pending")

    @property
    def qos_class(self) -> QosClass:
        """The Koordinator QoS class of the pod's label."""
        return qos_of(self.labels)

    @property
    def priority_class(self) -> PriorityClass:
        """The priority class of the pod's label, else that of its priority's band; no default is applied."""
        return priority_of(self.labels, self.priority)


ON_NODES: Final = f"spec.nodeName!=,{NOT_ENDED}"
"""Field selector of pods that occupy a node."""


def node_of(node: NodeWire) -> ObservedNode:
    """Return a Node as controllers cache it: integer amounts by resource name, annotations of known domains."""
    meta, what = node.metadata, f"node {node.metadata.name}"
    return ObservedNode(
        name=meta.name,
        uid=meta.uid,
        labels=meta.labels or {},
        annotations=own_texts(meta.annotations),
        capacity=named_amounts(node.status.capacity, what),
        allocatable=named_amounts(node.status.allocatable, what),
        unschedulable=node.spec.unschedulable,
    )


def pod_of(pod: ObservedPodWire) -> ObservedPod:
    """Return a Pod as controllers cache it: with `counted_requests`, its controller, times as Unix seconds."""
    meta, spec = pod.metadata, pod.spec
    return ObservedPod(
        namespace=sys.intern(meta.namespace),
        name=meta.name,
        uid=meta.uid,
        node=sys.intern(spec.node_name),
        phase=sys.intern(pod.status.phase),
        deleting=meta.deletion_timestamp is not None,
        priority=spec.priority,
        owner=(sys.intern(owner.kind), owner.name) if (owner := meta.controller) else ("", ""),
        requests=counted_requests(pod_resources(spec, pod.status, f"pod {meta.namespace}/{meta.name}")),
        labels=own_texts(meta.labels),
        annotations=own_texts(meta.annotations),
        best_effort=pod.status.qos_class == PodQos.BEST_EFFORT,
        template_hash=sys.intern((meta.labels or {}).get(TEMPLATE_HASH_LABEL, "")),
        deployment_config=sys.intern((meta.labels or {}).get(DEPLOYMENT_CONFIG_LABEL, "")),
        start_seconds=pod.status.start_time.timestamp() if pod.status.start_time else None,
        gone_by_seconds=meta.deletion_timestamp.timestamp() if meta.deletion_timestamp else None,
    )
