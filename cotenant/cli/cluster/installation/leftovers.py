"""EDGE: finds what components created without a manifest (by our label) or wrote into objects of other owners.

The label is searched for in every kind that the API server lists and lets us delete, so that nobody has to maintain a
list of kinds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from cotenant.base.errors import ClusterAbsent, ClusterError
from cotenant.base.kube import KubeClient
from cotenant.base.kubernetes import protocol
from cotenant.base.kubernetes.intent import Address
from cotenant.base.kubernetes.models.metadata import OwnedObject
from cotenant.base.kubernetes.models.node import WrittenNode
from cotenant.base.kubernetes.models.pod import GatedPod, ObservedPodWire
from cotenant.cli.cluster.installation.plan import MANAGED_BY
from cotenant.cli.cluster.installation.restoration import EVERYTHING, WORKLOADS, OurWrites, pod_marks, restoring_patch

_NEVER: Final = frozenset(
    {
        "namespaces",
        "customresourcedefinitions",
        "persistentvolumeclaims",
        "persistentvolumes",
        "events",
        "endpoints",
        "endpointslices",
    }
)
"""A namespace or definition goes only by its manifest, data never; Events expire, endpoints go with Services."""
ACTING: Final = (
    Address("v1", "nodes", ""),
    Address("v1", "pods", ""),
    Address("autoscaling/v2", "horizontalpodautoscalers", ""),
    Address(protocol.TOPOLOGY_GROUP, protocol.TOPOLOGIES, ""),
    Address(protocol.SCHEDULING_GROUP, "reservations", ""),
)
"""Kinds of other owners' objects in which what we wrote still acts, or becomes wrong, when our processes have ended."""
WRITTEN: Final = (
    *ACTING,
    *(Address("apps/v1", plural, "") for plural in WORKLOADS[:4]),
    Address("v1", "replicationcontrollers", ""),
    Address("batch/v1", "cronjobs", ""),
)
"""Kinds of other owners' objects into which we write."""
_OURS: Final = "=".join(MANAGED_BY)
_BUFFERS: Final = ("autoscaling.x-k8s.io", "capacitybuffers")


def labelled_objects(
    client: KubeClient, without: Collection[Address], own_kinds: Collection[str]
) -> Iterator[tuple[Address, str | ClusterError]]:
    """Yield (address, UID) of every object with our label that is not in `without` or of `own_kinds` ("plural.group").

    Each kind that can be listed and deleted, except `_NEVER`, is searched in its group's preferred version. An object
    with a controlling owner reference is left out, since it is deleted with its owner. A kind that may not be listed,
    or a group version whose kinds are unknown, is yielded with the error.
    """
    groups = (client.get("/apis") or {}).get("groups") or []
    for version in ["v1", *(str(group["preferredVersion"]["groupVersion"]) for group in groups)]:
        try:
            resources = (client.get(f"/apis/{version}" if "/" in version else f"/api/{version}") or {}).get("resources")
        except ClusterAbsent:
            continue
        except ClusterError as error:
            yield Address(version, version, ""), error
            continue
        for resource in resources or ():
            kind = Address(version, str(resource["name"]), "")
            is_listed = "/" not in kind.resource and {"list", "delete"} <= set(resource.get("verbs") or ())
            is_ours = f"{kind.resource}.{version.rpartition('/')[0]}" in own_kinds
            if not is_listed or is_ours or kind.resource in _NEVER:
                continue
            try:
                for item in client.list(kind.collection, OwnedObject, labelSelector=_OURS):
                    meta = item.metadata
                    address = Address(version, kind.resource, meta.name, meta.namespace)
                    if address not in without and not any(owner.controller for owner in meta.owner_references or ()):
                        yield address, meta.uid
            except ClusterAbsent:  # the definition has just gone
                continue
            except ClusterError as error:
                yield kind, error


def written_into(client: KubeClient, kind: Address, ours: OurWrites = EVERYTHING) -> Iterator[tuple[Address, str]]:
    """Yield (address, description) of a kind's objects that cotenant wrote into; nothing if there is no such kind."""
    if kind.resource == "nodes":
        for node in client.list("/api/v1/nodes", WrittenNode):
            meta = node.metadata
            if node.bears(*ours.taints) or any(f.manager in ours.node_writers for f in meta.managed_fields or ()):
                yield Address("v1", "nodes", meta.name), "taint, extended resources and annotations"
        return
    if kind.resource == "pods":
        for pod in client.list("/api/v1/pods", GatedPod):
            of_pod = pod.metadata
            gated = any(gate.name in ours.gates for gate in pod.spec.scheduling_gates or ())
            marks = pod_marks(of_pod.labels or {}, ours)
            marked = any(name in (getattr(of_pod, part) or ()) for part, names in marks.items() for name in names)
            if of_pod.namespace != protocol.PLACEHOLDER_NAMESPACE and (gated or marked):
                yield Address("v1", "pods", of_pod.name, of_pod.namespace), "scheduling gates" if gated else "marks"
        return
    try:
        items = list(client.list(kind.collection))
    except ClusterAbsent:  # the kind is not installed
        return
    for item in items:
        metadata: Mapping[str, Any] = item["metadata"]
        address = Address(kind.api_version, kind.resource, metadata["name"], metadata.get("namespace", ""))
        if restoring_patch(address, item, ours) is not None:
            yield address, "status Available" if kind.resource == "reservations" else "marks of changes, plans or zones"


def placeholders(client: KubeClient) -> Iterator[tuple[Address, str]]:
    """Yield (address, UID) of the placeholder pods, which hold reserved capacity."""
    for pod in client.list(
        f"/api/v1/namespaces/{protocol.PLACEHOLDER_NAMESPACE}/pods", OwnedObject, labelSelector=_OURS
    ):
        yield Address("v1", "pods", pod.metadata.name, protocol.PLACEHOLDER_NAMESPACE), pod.metadata.uid


def buffers(client: KubeClient) -> Iterator[tuple[Address, str]]:
    """Yield (address, UID) of the CapacityBuffers that plans created, if the cluster serves that kind."""
    group, plural = _BUFFERS
    versions = client.get(f"/apis/{group}")
    if versions is not None:
        preferred = str(versions["preferredVersion"]["groupVersion"])
        for item in client.list(f"/apis/{preferred}/{plural}", OwnedObject, labelSelector=_OURS):
            yield Address(preferred, plural, item.metadata.name, item.metadata.namespace), item.metadata.uid


def running_pods(client: KubeClient, namespace: str) -> list[ObservedPodWire]:
    """Return the pods of our processes that have not ended, except the pod that runs the uninstallation."""
    selector = "app.kubernetes.io/part-of=cotenant,app.kubernetes.io/component!=uninstall"
    pods = client.list(f"/api/v1/namespaces/{namespace}/pods", ObservedPodWire, labelSelector=selector)
    return [pod for pod in pods if pod.status.phase not in protocol.ENDED_PHASES]
