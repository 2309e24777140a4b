"""The mark of a node that is emptied: the taint EMPTYING_TAINT, and the patches that set it and take it away. Pure.

Its value says who began: APPROVED for a person, none for the manager's own rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from cotenant.core.model.kubernetes.intent import Address, Patch
from cotenant.core.model.kubernetes.protocol import EMPTYING_TAINT

NODES: Final = "/api/v1/nodes"
APPROVED: Final = "approved"
EFFECT: Final = "PreferNoSchedule"


class TaintedMeta(msgspec.Struct, rename="camel"):
    """Which node it is, and its version."""

    name: str = ""
    uid: str = ""
    resource_version: str = ""


class _TaintedSpec(msgspec.Struct):
    taints: list[dict[str, Any]] | None = None


class TaintedNode(msgspec.Struct):
    """A Node as far as its mark is concerned; taints as the server writes them."""

    metadata: TaintedMeta = msgspec.field(default_factory=TaintedMeta)
    spec: _TaintedSpec | None = None

    @property
    def taints(self) -> list[dict[str, Any]]:
        """All of them."""
        return (self.spec.taints if self.spec else None) or []

    @property
    def is_marked(self) -> bool:
        """Whether it bears the mark."""
        return any(taint.get("key") == EMPTYING_TAINT for taint in self.taints)


def node_address(name: str) -> Address:
    """Where a node lives."""
    return Address("v1", "nodes", name)


def marked(node: TaintedNode, value: str, why: str) -> Patch | None:
    """Set the mark beside the node's other taints; None where it has one."""
    if node.is_marked:
        return None
    taint = {"key": EMPTYING_TAINT, "effect": EFFECT, **({"value": value} if value else {})}
    if node.taints:
        return _patch(node, [{"op": "add", "path": "/spec/taints/-", "value": taint}], why)
    # without the version a list that somebody made in the meantime would be lost
    version = {"op": "test", "path": "/metadata/resourceVersion", "value": node.metadata.resource_version}
    part: dict[str, Any] = {"path": "/spec/taints", "value": [taint]}
    if node.spec is None:
        part = {"path": "/spec", "value": {"taints": [taint]}}
    return _patch(node, [version, {"op": "add", **part}], why)


def unmarked(node: TaintedNode, why: str) -> Patch | None:
    """Take the mark away and leave the other taints; None where there is none."""
    operations: list[dict[str, Any]] = []
    for place, taint in reversed(list(enumerate(node.taints))):
        if taint.get("key") == EMPTYING_TAINT:
            operations.append({"op": "test", "path": f"/spec/taints/{place}/key", "value": EMPTYING_TAINT})
            operations.append({"op": "remove", "path": f"/spec/taints/{place}"})
    return _patch(node, operations, why) if operations else None


def _patch(node: TaintedNode, operations: Sequence[dict[str, Any]], why: str) -> Patch:
    uid = {"op": "test", "path": "/metadata/uid", "value": node.metadata.uid}
    return Patch(node_address(node.metadata.name), (uid, *operations), why=why)
