"""What the bind verb needs of each kind of hardware: one pure allocator a kind, all asked in the same step. Pure.

    holdings = what pods on the node have    (the node's ledger, and annotations of its pods)
    for each allocator that the pod concerns: allocate(node, claim, holdings) -> Allotment
    one write of the ledger, one Binding that carries all annotations

An allocator keeps nothing: everything that it knows of earlier pods it reads from their holdings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from cotenant.base.errors import UsageError
from cotenant.base.kubernetes.pod_identity import PodIdentity

LONGEST_WISH: Final = 4096
"""Characters of an annotation by which a pod wishes; the ledger copies it, and all pods of a node share one object."""


@dataclass(frozen=True, slots=True)
class NodeHardware:
    """A node as its objects describe it: labels and annotations of the Node, and documents.

    documents: the object of the node's name in each collection that allocators ask for, by path of the collection; a
    collection is missing where there is no such object. claimed: names of devices that its ResourceSlices offer, or
    that a ResourceClaim still has.
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
