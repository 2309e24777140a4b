"""A Node as the API writes it, with one struct per group of consumers. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from cotenant.base.kubernetes.models.metadata import EndingMeta, FieldWriter, ObjectIdentity
from cotenant.base.kubernetes.models.pod import Quantities


class _NodeSpec(msgspec.Struct):
    unschedulable: bool = False


class NodeStatusWire(msgspec.Struct):
    """The capacity and allocatable of a Node's status."""

    capacity: Quantities | None = None
    allocatable: Quantities | None = None


class NodeWire(msgspec.Struct):
    """A Node with its metadata, its capacity and allocatable, and whether it is cordoned."""

    metadata: EndingMeta
    spec: _NodeSpec = msgspec.field(default_factory=_NodeSpec)
    status: NodeStatusWire = msgspec.field(default_factory=NodeStatusWire)


class TaintWire(msgspec.Struct):
    """A taint of a Node."""

    key: str = ""
    value: str = ""
    effect: str = ""


class _TaintedSpec(_NodeSpec):
    taints: list[TaintWire] | None = None


class SchedulableNode(NodeWire):
    """A Node with its taints."""

    spec: _TaintedSpec = msgspec.field(default_factory=_TaintedSpec)


class _NodeCondition(msgspec.Struct):
    type: str = ""
    status: str = ""


class _ConditionedStatus(NodeStatusWire):
    conditions: list[_NodeCondition] | None = None


class QueueNodeWire(SchedulableNode):
    """A Node with its taints and conditions."""

    status: _ConditionedStatus = msgspec.field(default_factory=_ConditionedStatus)

    @property
    def is_ready(self) -> bool:
        """True if the node's condition Ready is True; False if it has none, as in kube-scheduler and Koordinator."""
        return any(
            condition.type == "Ready" and condition.status == "True" for condition in self.status.conditions or ()
        )


class _ManagedMeta(EndingMeta, rename="camel"):
    managed_fields: list[FieldWriter] | None = None


class ManagedNodeWire(NodeWire):
    """A Node with its managedFields, which record the field manager of each field."""

    metadata: _ManagedMeta

    def writers_of(self, resource_names: Iterable[str]) -> tuple[str, ...]:
        """Return the field managers that own an amount of one of these resources, sorted."""
        keys = [f'"f:{name}"'.encode() for name in resource_names]
        entries = self.metadata.managed_fields or ()
        return tuple(sorted({e.manager for e in entries if any(key in bytes(e.fields) for key in keys)}))


class _NodeAddress(msgspec.Struct):
    type: str = ""
    address: str = ""


class _Endpoint(msgspec.Struct, rename={"port": "Port"}):
    port: int = 0


class _Endpoints(msgspec.Struct, rename="camel"):
    kubelet_endpoint: _Endpoint = msgspec.field(default_factory=_Endpoint)


class _AddressedStatus(NodeStatusWire, rename="camel"):
    addresses: list[_NodeAddress] | None = None
    daemon_endpoints: _Endpoints = msgspec.field(default_factory=_Endpoints)


class AddressedNode(NodeWire):
    """A Node with its addresses and the port of its kubelet."""

    status: _AddressedStatus = msgspec.field(default_factory=_AddressedStatus)


class _WrittenSpec(msgspec.Struct):
    taints: list[dict[str, Any]] | None = None


class TaintedNode(msgspec.Struct):
    """A Node of which only the taints are read, unchanged, so that patches can address single entries."""

    metadata: ObjectIdentity = msgspec.field(default_factory=ObjectIdentity)
    spec: _WrittenSpec | None = None

    @property
    def taints(self) -> list[dict[str, Any]]:
        """All taints of the node as plain objects."""
        return (self.spec.taints if self.spec else None) or []

    def bears(self, *keys: str) -> bool:
        """Return whether the node has a taint with any of these keys."""
        return any(taint.get("key") in keys for taint in self.taints)


class _WriterMeta(ObjectIdentity, rename="camel"):
    managed_fields: list[FieldWriter] | None = None


class WrittenNode(TaintedNode):
    """A Node with its taints and the field managers that wrote its fields."""

    metadata: _WriterMeta = msgspec.field(default_factory=_WriterMeta)
