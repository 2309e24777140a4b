"""Marks of nodes that are emptied: what sets them and takes them away, and the Events that tell of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from cotenant.base.controllers.contract import ObjectNote
from cotenant.base.kubernetes.intent import Outcome, Patch
from cotenant.base.kubernetes.node_taints import AVOIDED
from cotenant.base.reasons import SENTENCES, Reason
from cotenant.base.text import agree
from cotenant.scheduler_ext.load_taints.node_taints import NodeTaints
from cotenant.scheduler_ext.rebalance.plan import MarkChange, NodeMark

LEAVING: Final = "The manager ends: nobody would take the mark away when somebody needs the node."
EVENTS: Final = {"add": "EmptyingBegun", "remove": "EmptyingEnded"}
"""Last operation of a mark's patch -> reason of its Event."""


def mark_patches(taints: NodeTaints, marks: Iterable[NodeMark]) -> Iterator[Patch]:
    """Yield patches that set and remove these marks; none for a node that is gone, or is as it should be."""
    for mark in marks:
        if mark.change is MarkChange.STAYS:
            continue
        patch = taints.patch(mark.node, "" if mark.change is MarkChange.TAKEN else AVOIDED, _why(mark))
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
    pods = agree(mark.pods, "pod leaves", "pods leave")
    return f"{SENTENCES[Reason.UNDER_USED]} {pods} for {mark.cost:.0f} of {mark.gain:.0f} node-seconds."
