"""EDGE: what mirrors keep of nodes and pods: converted into `base.kubernetes.observed`. Pure itself.

    Mirror(client, "/api/v1/nodes", NodeWire, node_of)
    Mirror(client, "/api/v1/pods", ObservedPodWire, pod_of, fieldSelector=ON_NODES)

A cpu or memory quantity that cannot be read is a QuantityError
that names the object; another resource's is left out.
"""

from __future__ import annotations

import sys
from typing import Final

from cotenant.base.kubernetes.models.node import NodeWire
from cotenant.base.kubernetes.models.pod import ObservedPodWire
from cotenant.base.kubernetes.observed import ObservedNode, ObservedPod
from cotenant.base.kubernetes.owners import DEPLOYMENT_CONFIG_LABEL, TEMPLATE_HASH_LABEL
from cotenant.base.kubernetes.pod_qos import PodQos
from cotenant.base.kubernetes.pod_request import named_amounts
from cotenant.base.kubernetes.pod_resources import counted_requests
from cotenant.base.kubernetes.pod_wire import pod_resources
from cotenant.base.kubernetes.protocol import NOT_ENDED, own_texts

ON_NODES: Final = f"spec.nodeName!=,{NOT_ENDED}"
"""Field selector of pods that occupy a node."""


def node_of(node: NodeWire) -> ObservedNode:
    """Convert a Node to the form in which controllers keep it: integer amounts by resource name, our annotations."""
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
    """Convert a Pod to the form in which controllers keep it: counted requests, its controller, Unix times."""
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
