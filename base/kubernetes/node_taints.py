"""The taints that cotenant sets on nodes, and the patches that set, change and remove them. Pure.

EMPTYING_TAINT marks a node that is being emptied; its value is APPROVED if a person started it, and empty if the
manager did. LOAD_TAINT keeps pods away from busy nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from cotenant.base.kubernetes.intent import Address, Patch
from cotenant.base.kubernetes.models.node import TaintedNode
from cotenant.base.kubernetes.protocol import EMPTYING_TAINT, LOAD_TAINT

NODES: Final = "/api/v1/nodes"
APPROVED: Final = "approved"
AVOIDED: Final = "PreferNoSchedule"
REFUSED: Final = "NoSchedule"
OUR_TAINTS: Final = (EMPTYING_TAINT, LOAD_TAINT)
"""Keys of every taint that a process of ours sets."""


def node_address(name: str) -> Address:
    """Return the address of a node."""
    return Address("v1", "nodes", name)


def taint_patch(node: TaintedNode, key: str, why: str, *, effect: str = AVOIDED, value: str = "") -> Patch | None:
    """Return the patch that adds a taint to the node or changes its effect; None if the taint is already set.

    If the node has the key several times, with different effects, one taint remains.
    """
    places = _taint_indexes(node, (key,))
    if places:
        operations = _removals(node, places[1:])
        if node.taints[places[0]].get("effect") != effect:
            at = f"/spec/taints/{places[0]}"
            operations.append({"op": "test", "path": f"{at}/key", "value": key})
            operations.append({"op": "replace", "path": f"{at}/effect", "value": effect})
        return _patch(node, operations, why) if operations else None
    taint = {"key": key, "effect": effect, **({"value": value} if value else {})}
    if node.taints:
        return _patch(node, [{"op": "add", "path": "/spec/taints/-", "value": taint}], why)
    # without the version a list that somebody made in the meantime would be lost
    version = {"op": "test", "path": "/metadata/resourceVersion", "value": node.metadata.resource_version}
    part: dict[str, Any] = {"path": "/spec/taints", "value": [taint]}
    if node.spec is None:
        part = {"path": "/spec", "value": {"taints": [taint]}}
    return _patch(node, [version, {"op": "add", **part}], why)


def untaint_patch(node: TaintedNode, keys: Sequence[str], why: str) -> Patch | None:
    """Return the patch that removes the taints with these keys, or None if the node has none of them."""
    operations = _removals(node, _taint_indexes(node, keys))
    return _patch(node, operations, why) if operations else None


def _taint_indexes(node: TaintedNode, keys: Sequence[str]) -> list[int]:
    return [index for index, taint in enumerate(node.taints) if taint.get("key") in keys]


def _removals(node: TaintedNode, places: Sequence[int]) -> list[dict[str, Any]]:
    """Remove the last taint first, so that the indices of the others stay valid."""
    operations: list[dict[str, Any]] = []
    for place in reversed(places):
        at = f"/spec/taints/{place}"
        operations.append({"op": "test", "path": f"{at}/key", "value": node.taints[place]["key"]})
        operations.append({"op": "remove", "path": at})
    return operations


def _patch(node: TaintedNode, operations: Sequence[dict[str, Any]], why: str) -> Patch:
    uid = {"op": "test", "path": "/metadata/uid", "value": node.metadata.uid}
    return Patch(node_address(node.metadata.name), (uid, *operations), why=why)
