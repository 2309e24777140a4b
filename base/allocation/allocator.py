"""What the bind verb needs of each kind of hardware: one pure allocator a kind, all asked in the same step. Pure.

    holdings = what pods on the node have    (the node's ledger, and annotations of its pods)
    for each allocator that the pod concerns: allocate(node, claim, holdings) -> Allotment
    one write of the ledger, one Binding that carries all annotations

An allocator keeps nothing: everything that it knows of earlier pods it reads from their holdings.

The ledger of a node is its NodeAllocation, written before a pod is bound. Everybody who allocates writes it by
compare-and-swap, so that of two who read the same state one fails and looks again: that is the one writer a node. An
entry ends only on evidence that its pod will never run here: it is gone, has ended, or is bound elsewhere. Time is no
evidence: a binding may still be under way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final, Protocol

import msgspec

from cotenant.base.errors import UsageError
from cotenant.base.kubernetes.intent import Address, Apply, Create
from cotenant.base.kubernetes.models.metadata import ObjectIdentity
from cotenant.base.kubernetes.pod_identity import PodIdentity
from cotenant.base.kubernetes.protocol import OWN_GROUP

LONGEST_WISH: Final = 4096
"""Characters of an annotation by which a pod wishes; the ledger copies it, and all pods of a node share one object."""


@dataclass(frozen=True, slots=True)
class NodeHardware:
    """A node as its objects describe it: labels and annotations of the Node, and documents.

    documents: the object of the node's name in each collection that allocators ask for, by path of the collection;
    missing where there is none. claimed: names of devices that its ResourceSlices offer, or a ResourceClaim still has.
    """

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    documents: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    claimed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class HardwareClaim:
    """A pod that is to be bound: who it is, and its requests (millicores for cpu, bytes for memory, else whole)."""

    pod: PodIdentity
    requests: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Holding:
    """Hardware that another pod has, or is about to be bound with, as its annotations say it."""

    pod: str
    """NAMESPACE/NAME."""
    uid: str
    annotations: Mapping[str, str] = field(default_factory=dict)
    requests: Mapping[str, int] = field(default_factory=dict)
    entered: bool = False
    """In a ledger: we wrote its annotations. Those of another pod may have any author; they count up to the pod's
    request."""


@dataclass(frozen=True, slots=True)
class Allotment:
    """The annotations that a pod gets on a node, or `refusal`: why it gets nothing there, "" if it gets some."""

    annotations: Mapping[str, str] = field(default_factory=dict)
    refusal: str = ""


class Allocator(Protocol):
    """One kind of hardware."""

    @property
    def collection(self) -> str:
        """Path of the collection whose object of a node's name describes its hardware of this kind."""
        ...

    @property
    def wishes(self) -> tuple[str, ...]:
        """Keys of annotations that it reads from a pod and later from its holding; the pod's author writes them.

        `allocate` refuses one that is too long (`check_length`).
        """
        ...

    @property
    def result(self) -> str:
        """Key of the annotation that it writes, and reads of holdings; in a ledger it is never copied from a pod."""
        ...

    def concerns(self, claim: HardwareClaim) -> bool:
        """Return whether the pod asks for hardware of this kind."""
        ...

    def allocate(self, node: NodeHardware, claim: HardwareClaim, holdings: Sequence[Holding]) -> Allotment:
        """Return the pod's allotment on the node beside the holdings.

        Raises UsageError for a request that no node could serve.
        """
        ...


def check_length(annotations: Mapping[str, str], key: str, whose: str) -> None:
    """UsageError names the pod (`whose`) and the annotation where a wish is longer than LONGEST_WISH."""
    length = len(annotations.get(key, ""))
    if length > LONGEST_WISH:
        raise UsageError(
            f"{whose}: annotation {key} has {length} characters", fix=f"Write at most {LONGEST_WISH} of them."
        )


LEDGER_KIND: Final = "NodeAllocation"
LEDGERS: Final = "nodeallocations"


class PodFate(Enum):
    """The state of a pod that has an entry in the ledger."""

    HERE = "bound to this node"
    WAITING = "not bound yet"
    OVER = "gone, ended or bound elsewhere"


class _LedgerPod(msgspec.Struct, omit_defaults=True):
    uid: str
    namespace: str
    name: str
    annotations: dict[str, str] = {}


class _LedgerSpec(msgspec.Struct):
    pods: list[_LedgerPod] = []


class _LedgerWire(msgspec.Struct):
    metadata: ObjectIdentity = msgspec.field(default_factory=ObjectIdentity)
    spec: _LedgerSpec = msgspec.field(default_factory=_LedgerSpec)


@dataclass(frozen=True, slots=True)
class NodeLedger:
    """Entries by uid of the pod; version: resourceVersion of what was read, "" = there is none; uid: the object's."""

    node: str
    version: str = ""
    holdings: Mapping[str, Holding] = field(default_factory=dict)
    uid: str = ""


def ledger_address(node: str) -> Address:
    """Return the address of a node's ledger."""
    return Address(OWN_GROUP, LEDGERS, node)


def parse_ledger(node: str, body: Mapping[str, Any] | None) -> NodeLedger:
    """Parse a node's ledger from the API's JSON; None = there is no ledger, which reads as an empty ledger.

    Raises UsageError if it cannot be read: no allocation is allowed then.
    """
    if body is None:
        return NodeLedger(node)
    try:
        wire = msgspec.convert(dict(body), _LedgerWire)
    except msgspec.ValidationError as bad:
        raise UsageError(f"{LEDGERS}/{node} cannot be read: {bad}", fix="Repair its spec.pods by hand.") from bad
    holdings = {p.uid: Holding(f"{p.namespace}/{p.name}", p.uid, p.annotations, entered=True) for p in wire.spec.pods}
    return NodeLedger(node, wire.metadata.resource_version, holdings, wire.metadata.uid)


def new_ledger(node: str, node_uid: str) -> Create:
    """A ledger without entries; it goes with its Node. Refused by the server (409) where there is one.

    Made empty because entries that one write created, an apply of the same manager could not take away.
    """
    return Create(ledger_address(node), _body(node, node_uid, []), why="hardware of pods")


def ledger_write(ledger: NodeLedger, node_uid: str, holdings: Iterable[Holding]) -> Apply:
    """The ledger with these entries; refused by the server (409) where it is not the one that was read.

    The version alone would do that for a ledger that was changed, and make one anew that was deleted: without the
    entries that others have written since it was read.
    """
    pods = [
        {"uid": h.uid, "namespace": h.pod.partition("/")[0], "name": h.pod.partition("/")[2]}
        | ({"annotations": dict(h.annotations)} if h.annotations else {})
        for h in holdings
    ]
    body = _body(ledger.node, node_uid, pods)
    body["metadata"] |= {"resourceVersion": ledger.version, "uid": ledger.uid}
    return Apply(ledger_address(ledger.node), body, why="hardware of a pod")


def _body(node: str, node_uid: str, pods: list[dict[str, Any]]) -> dict[str, Any]:
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid}
    metadata = {"name": node, "ownerReferences": [owner]}
    return {"apiVersion": OWN_GROUP, "kind": LEDGER_KIND, "metadata": metadata, "spec": {"pods": pods}}


def active_holdings(ledger: NodeLedger, fates: Mapping[str, PodFate]) -> dict[str, Holding]:
    """Entries whose pod is here or may still come, by uid; fates: by uid, one that is missing counts as waiting."""
    return {uid: h for uid, h in ledger.holdings.items() if fates.get(uid, PodFate.WAITING) is not PodFate.OVER}


def all_holdings(entries: Mapping[str, Holding], on_node: Iterable[Holding]) -> list[Holding]:
    """Entries, and pods of the node that have none: another scheduler placed them, or the ledger was lost."""
    pods = {holding.uid: holding for holding in on_node}
    written = [replace(h, requests=pods[uid].requests) if uid in pods else h for uid, h in entries.items()]
    return [*written, *(holding for uid, holding in pods.items() if uid not in entries)]
