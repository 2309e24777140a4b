"""EDGE: the marks of nodes that are emptied: nodes are read as they are now, patched, and told about by Events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from cotenant.apps.manager.controllers.contract import ObjectNote
from cotenant.core.adapters.kube import KubeClient
from cotenant.core.model.kubernetes.intent import Outcome, Patch
from cotenant.core.model.reasons import SENTENCES, Reason
from scheduler_ext.rebalance.marks import NODES, TaintedNode, marked, node_address, unmarked
from scheduler_ext.rebalance.plan import MarkChange, NodeMark

LEAVING: Final = "The manager ends: nobody would take the mark away when somebody needs the node."
EVENTS: Final = {"add": "EmptyingBegun", "remove": "EmptyingEnded"}
"""Last operation of a mark's patch -> reason of its Event."""


class NodeMarks:
    """Marks of one cluster."""

    def __init__(self, client: KubeClient) -> None:
        """Nothing is read yet."""
        self._client = client

    def patches(self, marks: Iterable[NodeMark]) -> Iterator[Patch]:
        """What sets and takes away these marks; nothing of a node that is gone, or is as it should be."""
        for mark in marks:
            node = self._client.get(node_address(mark.node).path, TaintedNode)
            if node is None or mark.change is MarkChange.STAYS:
                continue
            why = _why(mark)
            patch = unmarked(node, why) if mark.change is MarkChange.TAKEN else marked(node, "", why)
            if patch is not None:
                yield patch

    def withdrawn(self) -> Iterator[Patch]:
        """What takes every mark away, those that people approved too."""
        for node in self._client.list(NODES, TaintedNode):
            patch = unmarked(node, LEAVING)
            if patch is not None:
                yield patch


def marks_notes(outcomes: Sequence[Outcome]) -> Iterator[ObjectNote]:
    """An Event for each mark that the server set or took away."""
    for outcome in outcomes:
        intent = outcome.intent
        if outcome.ok and isinstance(intent, Patch) and intent.address.resource == "nodes":
            yield ObjectNote(str(intent.address), EVENTS[intent.operations[-1]["op"]], intent.why, event=True)


def _why(mark: NodeMark) -> str:
    if mark.change is MarkChange.TAKEN:
        return SENTENCES[mark.reason]
    pods = f"{mark.pods} {'pod leaves' if mark.pods == 1 else 'pods leave'}"
    return f"{SENTENCES[Reason.UNDER_USED]} {pods} for {mark.cost:.0f} of {mark.gain:.0f} node-seconds."
