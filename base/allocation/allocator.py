"""The assignment of hardware to a pod that is being bound: one pure allocator for each kind of hardware.

    holdings = what pods on the node have    (the node's ledger, and annotations of its pods)
    for each allocator that the pod concerns: allocate(node, claim, holdings) -> Allotment
    one write of the ledger, one Binding that carries all annotations

An allocator has no state: it reads everything about earlier pods from their holdings.

The ledger of a node is its NodeAllocation, written before a pod is bound. Every writer uses compare-and-swap, so that
of two that read the same state one fails and reads again: a node has one writer at a time. An entry is removed only if
its pod certainly will not run here: it is gone, has ended, or is bound elsewhere. Time is no evidence: a binding may
still be in progress.
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
"""Most characters of an annotation with a pod's wish: the ledger, one object for all pods of a node, copies it."""


@dataclass(frozen=True, slots=True)
class NodeHardware:
    """A node as the API's objects describe it: labels and annotations of the Node, and further objects (`documents`).

    `documents` has the objects with the node's name that allocators need, by the path of their collection; one that
    does not exist is left out. `claimed` are the names of devices that ResourceSlices offer or a ResourceClaim has.
    """

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    documents: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    claimed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class HardwareClaim:
    """A pod that is to be bound, with its requests (millicores for cpu, bytes for memory, else whole numbers)."""

    pod: PodIdentity
    requests: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Holding:
    """The hardware that another pod has, or is about to be bound with, according to its annotations."""

    pod: str
    """NAMESPACE/NAME."""
    uid: str
    annotations: Mapping[str, str] = field(default_factory=dict)
    requests: Mapping[str, int] = field(default_factory=dict)
    entered: bool = False
    """True for an entry of the ledger, whose annotations we wrote; others count only up to the pod's requests."""


@dataclass(frozen=True, slots=True)
class Allotment:
    """The annotations for the hardware that a pod gets on a node, or `refusal`, the reason why it gets none."""

    annotations: Mapping[str, str] = field(default_factory=dict)
    refusal: str = ""


class Allocator(Protocol):
    """The interface of the allocator of one kind of hardware."""

    @property
    def collection(self) -> str:
        """Path of the collection in which an object with the node's name describes the node's hardware of this kind."""
        ...

    @property
    def wishes(self) -> tuple[str, ...]:
        """Keys of the annotations that pods' authors set and that the allocator reads from every pod of the node.

        `allocate` refuses an annotation that is too long (`check_length`).
        """
        ...

    @property
    def result(self) -> str:
        """Key of the annotation with the allocated hardware, which the allocator writes; never copied to a ledger."""
        ...

    def concerns(self, claim: HardwareClaim) -> bool:
        """Return whether the pod requests hardware of this kind."""
        ...

    def allocate(self, node: NodeHardware, claim: HardwareClaim, holdings: Sequence[Holding]) -> Allotment:
        """Return the pod's hardware on the node, from what the `holdings` of other pods leave free, or a refusal.

        Raise UsageError for a request that no node could serve.
        """
        ...


def check_length(annotations: Mapping[str, str], key: str, whose: str) -> None:
    """Raise UsageError, naming the pod (`whose`), if the annotation `key` has more than LONGEST_WISH characters."""
    length = len(annotations.get(key, ""))
    if length > LONGEST_WISH:
        raise UsageError(
            f"{whose}: annotation {key} has {length} characters", fix=f"Use at most {LONGEST_WISH} characters."
        )


LEDGER_KIND: Final = "NodeAllocation"
LEDGERS: Final = "nodeallocations"


class PodFate(Enum):
    """The state of a pod that has an entry in the ledger."""

    HERE = "bound to this node"
    WAITING = "not bound yet"
    OVER = "deleted, ended or bound to another node"


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
    """A node's hardware ledger: entries by the pod's uid; `version` (resourceVersion) is "" if there is no ledger."""

    node: str
    version: str = ""
    holdings: Mapping[str, Holding] = field(default_factory=dict)
    uid: str = ""


def ledger_address(node: str) -> Address:
    """Return the address of a node's ledger."""
    return Address(OWN_GROUP, LEDGERS, node)


def parse_ledger(node: str, body: Mapping[str, Any] | None) -> NodeLedger:
    """Parse a node's hardware ledger from the API's JSON; a `body` of None (no ledger exists) gives an empty one.

    Raise UsageError if it is unreadable: no allocation is allowed then.
    """
    if body is None:
        return NodeLedger(node)
    try:
        wire = msgspec.convert(dict(body), _LedgerWire)
    except msgspec.ValidationError as bad:
        raise UsageError(f"{LEDGERS}/{node} cannot be read: {bad}", fix="Correct the object's spec.pods.") from bad
    holdings = {p.uid: Holding(f"{p.namespace}/{p.name}", p.uid, p.annotations, entered=True) for p in wire.spec.pods}
    return NodeLedger(node, wire.metadata.resource_version, holdings, wire.metadata.uid)


def new_ledger(node: str, node_uid: str) -> Create:
    """Return the creation of a node's empty ledger, owned by the Node; the server refuses it (409) if there is one.

    No entry is created with it, because a later apply by the same manager could not remove that entry.
    """
    return Create(ledger_address(node), _body(node, node_uid, []), why="hardware of pods")


def ledger_write(ledger: NodeLedger, node_uid: str, holdings: Iterable[Holding]) -> Apply:
    """Return the apply of a ledger with these entries; the server refuses it (409) if the ledger changed meanwhile.

    The apply has the uid, too: with the resourceVersion alone it would recreate a deleted ledger, without the entries
    that others have written since.
    """
    pods = [
        {"uid": h.uid, "namespace": h.pod.partition("/")[0], "name": h.pod.partition("/")[2]}
        | ({"annotations": dict(h.annotations)} if h.annotations else {})
        for h in holdings
    ]
    body = _body(ledger.node, node_uid, pods)
    body["metadata"] |= {"resourceVersion": ledger.version, "uid": ledger.uid}
    return Apply(ledger_address(ledger.node), body, why="record the CPUs and devices of a pod")


def _body(node: str, node_uid: str, pods: list[dict[str, Any]]) -> dict[str, Any]:
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid}
    metadata = {"name": node, "ownerReferences": [owner]}
    return {"apiVersion": OWN_GROUP, "kind": LEDGER_KIND, "metadata": metadata, "spec": {"pods": pods}}


def active_holdings(ledger: NodeLedger, fates: Mapping[str, PodFate]) -> dict[str, Holding]:
    """Return, by pod uid, the ledger's entries of pods that are not OVER; a pod that `fates` lacks is WAITING."""
    return {uid: h for uid, h in ledger.holdings.items() if fates.get(uid, PodFate.WAITING) is not PodFate.OVER}


def all_holdings(entries: Mapping[str, Holding], on_node: Iterable[Holding]) -> list[Holding]:
    """Return the entries (with the requests that `on_node` shows) and the holdings of `on_node` without an entry."""
    pods = {holding.uid: holding for holding in on_node}
    written = [replace(h, requests=pods[uid].requests) if uid in pods else h for uid, h in entries.items()]
    return [*written, *(holding for uid, holding in pods.items() if uid not in entries)]
