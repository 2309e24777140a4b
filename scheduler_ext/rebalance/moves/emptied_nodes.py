"""EDGE: adds and removes the taint of nodes that a person wants emptied, with that person's rights and ledger rows.

The manager moves the pods off a tainted node; it removes the taint itself when pending pods need the node.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Final

from cotenant.base.errors import ClusterUnreachable, CotenantError, NoData, UsageError
from cotenant.base.kube import KubeClient, Writer
from cotenant.base.kubernetes.intent import Create, Intent, Patch
from cotenant.base.kubernetes.models.node import TaintedNode
from cotenant.base.kubernetes.node_taints import APPROVED, node_address, taint_patch, untaint_patch
from cotenant.base.kubernetes.protocol import EMPTYING_TAINT
from cotenant.changes.audited_acts import ActEvents, LedgerSubject
from cotenant.changes.sent_writes import Sent, sent
from cotenant.scheduler_ext.rebalance.model.move_service import MoveEvent, MoveOutcome

FIELD_MANAGER: Final = "cotenant-approver"
OPEN_AGAIN: Final = "Reload the page to see the moves and nodes that are planned now."


def outcome_of(name: str, act: Callable[[], Sent]) -> MoveOutcome:
    """Run an action on a pod or node and return its outcome; a refusal becomes the outcome's error text.

    Raise ClusterUnreachable if it is unknown whether the API server carried the action out.
    """
    try:
        done = act()
    except ClusterUnreachable:
        raise
    except CotenantError as error:
        return MoveOutcome(name, error=error.message, fix=error.fix)
    job = done.intent.address.name if isinstance(done.intent, Create) else ""
    return MoveOutcome(name, job, lines=done.lines)


@dataclass(frozen=True, slots=True)
class EmptiedNodes:
    """The nodes whose emptying the present round would start (`begun`), with the approving person's client."""

    client: KubeClient
    begun: Collection[str] = ()

    def mark(self, name: str, why: str) -> Patch:
        """Return the patch that adds the emptying taint; UsageError if the node has it already or is not in `begun`."""
        node = self._node(name)
        if node.bears(EMPTYING_TAINT):
            raise UsageError(f"node {name} is already being emptied", fix="Wait, or stop emptying the node.")
        if name not in self.begun:
            raise UsageError(f"node {name} is no longer planned to be emptied", fix=OPEN_AGAIN)
        patch = taint_patch(node, EMPTYING_TAINT, why, value=APPROVED)
        assert patch is not None, "a node without the taint needs a patch"
        return patch

    def tried(self, name: str) -> MoveOutcome:
        """Send the emptying taint of a node as a dry run, and return the outcome."""
        return outcome_of(name, lambda: self._send(self.mark(name, ""), dry_run=True))

    def approved(self, row: LedgerSubject, reason: str) -> MoveOutcome:
        """Add the emptying taint to the node of the ledger row; the request and its outcome go to the ledger."""
        why = f"node {row.name} is to be emptied"
        events = ActEvents(MoveEvent.NODE_ASKED, MoveEvent.NODE_APPROVED, MoveEvent.NODE_REFUSED)
        act = partial(row.carry_out, events, lambda: self.mark(row.name, why), self._send, reason)
        return outcome_of(row.name, act)

    def withdrawn(self, row: LedgerSubject, reason: str) -> MoveOutcome:
        """Remove the emptying taint from the node of the ledger row; raise NoData if the node has none."""
        patch = untaint_patch(self._node(row.name), (EMPTYING_TAINT,), f"node {row.name} is no longer emptied")
        if patch is None:
            raise NoData(f"node {row.name} is not being emptied", fix="Nothing to do: the node has no emptying taint.")
        events = ActEvents(MoveEvent.NODE_ASKED, MoveEvent.NODE_WITHDRAWN, MoveEvent.NODE_REFUSED)
        row.carry_out(events, lambda: patch, self._send, reason)
        return MoveOutcome(row.name)

    def _send(self, mark: Intent, *, dry_run: bool = False) -> Sent:
        return sent(Writer(self.client, FIELD_MANAGER), mark, dry_run=dry_run)

    def _node(self, name: str) -> TaintedNode:
        node = self.client.get(node_address(name).path, TaintedNode)
        if node is None:
            raise NoData(f"there is no node {name}", fix=OPEN_AGAIN)
        return node
