"""EDGE: finds what components made or wrote that no manifest names: by our label, and by our marks on others' objects.

The label is looked for in every kind that the API server lists and lets us delete, so that nothing depends on a list
of kinds that somebody would have to keep complete.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import msgspec

from cotenant.apps.cli.cluster.installation.plan import MANAGED_BY
from cotenant.apps.cli.cluster.installation.restoration import (
    NODE_WRITERS,
    WORKLOADS,
    pod_marks,
    restored,
)
from cotenant.core.adapters.kube import KubeClient
from cotenant.core.model.errors import ClusterAbsent
from cotenant.core.model.kubernetes.intent import Address
from cotenant.core.model.kubernetes.protocol import RESERVATION_GATE
from recommender.colocation.zones import TOPOLOGIES, TOPOLOGY_GROUP

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
_PATCHED: Final = (
    *(Address("apps/v1", plural, "") for plural in WORKLOADS[:4]),
    Address("v1", "replicationcontrollers", ""),
    Address("batch/v1", "cronjobs", ""),
    Address("autoscaling/v2", "horizontalpodautoscalers", ""),
    Address(TOPOLOGY_GROUP, TOPOLOGIES, ""),
)
"""Kinds besides pods and nodes in whose objects we write."""


class _Owner(msgspec.Struct):
    controller: bool = False


class _Meta(msgspec.Struct, rename="camel"):
    name: str
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[_Owner] | None = None


class _LabelledObject(msgspec.Struct):
    metadata: _Meta


class _Gate(msgspec.Struct):
    name: str = ""


class _GatedSpec(msgspec.Struct, rename="camel"):
    scheduling_gates: list[_Gate] | None = None


class _MarkedPod(msgspec.Struct):
    metadata: _Meta
    spec: _GatedSpec


class _ManagedField(msgspec.Struct):
    manager: str = ""


class _NodeMeta(msgspec.Struct, rename="camel"):
    name: str
    managed_fields: list[_ManagedField] | None = None


class _WrittenNode(msgspec.Struct):
    metadata: _NodeMeta


def labelled(
    client: KubeClient, without: Collection[Address], own_kinds: Collection[str]
) -> Iterator[tuple[Address, str]]:
    """(address, UID) of every object with our label, but those addresses and these kinds ("plural.group").

    Objects of a controller are left out: they go with it.
    """
    selector = "=".join(MANAGED_BY)
    for api_version, plural in _kinds(client):
        group = api_version.rpartition("/")[0]
        if plural in _NEVER or f"{plural}.{group}" in own_kinds:
            continue
        path = f"/apis/{api_version}/{plural}" if group else f"/api/{api_version}/{plural}"
        for item in client.list(path, _LabelledObject, labelSelector=selector):
            meta = item.metadata
            address = Address(api_version, plural, meta.name, meta.namespace)
            if address not in without and not any(owner.controller for owner in meta.owner_references or ()):
                yield address, meta.uid


def _kinds(client: KubeClient) -> Iterator[tuple[str, str]]:
    """(apiVersion, plural) of every kind that is listed and deleted, each in the group's preferred version."""
    groups = (client.get("/apis") or {}).get("groups") or []
    versions = ["v1", *(str(group["preferredVersion"]["groupVersion"]) for group in groups)]
    for version in versions:
        try:
            resources = (client.get(f"/apis/{version}" if "/" in version else f"/api/{version}") or {}).get("resources")
        except ClusterAbsent:
            continue
        for resource in resources or ():
            if "/" not in resource["name"] and {"list", "delete"} <= set(resource.get("verbs") or ()):
                yield version, str(resource["name"])


def written_into(client: KubeClient) -> Iterator[tuple[Address, str]]:
    """(address, what) of others' objects that hold something of ours."""
    for node in client.list("/api/v1/nodes", _WrittenNode):
        if any(f.manager in NODE_WRITERS for f in node.metadata.managed_fields or ()):
            yield Address("v1", "nodes", node.metadata.name), "extended resources and annotations"
    for pod in client.list("/api/v1/pods", _MarkedPod):
        meta = pod.metadata
        gated = any(gate.name == RESERVATION_GATE for gate in pod.spec.scheduling_gates or ())
        if gated or _marked(meta):
            yield Address("v1", "pods", meta.name, meta.namespace), "scheduling gate" if gated else "marks"
    for kind in _PATCHED:
        yield from _patched(client, kind)


def _patched(client: KubeClient, kind: Address) -> Iterator[tuple[Address, str]]:
    try:
        items = list(client.list(kind.collection))
    except ClusterAbsent:  # the kind is not installed
        return
    for item in items:
        meta: Mapping[str, Any] = item["metadata"]
        address = Address(kind.api_version, kind.resource, meta["name"], meta.get("namespace", ""))
        if restored(address, item) is not None:
            yield address, "marks of changes, plans or zones"


def _marked(meta: _Meta) -> bool:
    marks = pod_marks({"labels": meta.labels})
    return bool(
        set(meta.labels or ()) & set(marks["labels"]) or set(meta.annotations or ()) & set(marks["annotations"])
    )
