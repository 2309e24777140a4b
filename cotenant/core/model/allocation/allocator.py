"""What the bind verb needs of each kind of hardware: one pure allocator a kind, all asked in the same step. Pure.

    holdings = what pods on the node have    (the node's ledger, and annotations of its pods)
    for each allocator that the pod concerns: allocate(node, claim, holdings) -> Allotment
    one write of the ledger, one Binding that carries all annotations

An allocator keeps nothing: everything that it knows of earlier pods it reads from their holdings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from cotenant.core.model.reservations.reservation import PodIdentity


@dataclass(frozen=True, slots=True)
class NodeHardware:
    """A node as its objects describe it: labels and annotations of the Node, and documents.

    documents: the object of the node's name in each collection that allocators ask for, by path of the collection; a
    collection is missing where there is no such object.
    """

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    documents: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


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
    requests: Mapping[str, int] | None = None
    """Of a pod that is in no ledger, whose annotations anybody may have written; None: we wrote them."""


@dataclass(frozen=True, slots=True)
class Allotment:
    """What a pod gets, as annotations to write on it; refusal: why it gets nothing on this node, or ""."""

    annotations: Mapping[str, str] = field(default_factory=dict)
    refusal: str = ""


class Allocator(Protocol):
    """One kind of hardware."""

    @property
    def collection(self) -> str:
        """Path of the collection whose object of a node's name describes its hardware of this kind."""
        ...

    @property
    def annotations(self) -> tuple[str, ...]:
        """Keys of pods' annotations that it reads and writes; the ledger keeps these of every holding."""
        ...

    def concerns(self, claim: HardwareClaim) -> bool:
        """Whether the pod asks for hardware of this kind."""
        ...

    def allocate(self, node: NodeHardware, claim: HardwareClaim, holdings: Sequence[Holding]) -> Allotment:
        """What the pod gets on the node beside the holdings. UsageError for what no node could give."""
        ...
