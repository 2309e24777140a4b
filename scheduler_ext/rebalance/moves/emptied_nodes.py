"""EDGE: nodes that a person approves to be emptied: marked and given back with their rights, through the ledger.

The manager goes on with a node that bears the mark; it takes the mark away when somebody needs the node.
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
OPEN_AGAIN: Final = "Load the page again: each time a round is decided."


def outcome_of(name: str, act: Callable[[], Sent]) -> MoveOutcome:
    """Return the outcome of an act on a pod or node; a refusal in words.

    Raises ClusterUnreachable: the outcome is unknown; the object shows it.
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
    """Nodes that the round would begin, for a person whose client this is."""

    client: KubeClient
    begun: Collection[str] = ()

    def mark(self, name: str, why: str) -> Patch:
        """The mark for a node; UsageError if the round no longer empties it, or it has a mark."""
        node = self._node(name)
        if node.bears(EMPTYING_TAINT):
            raise UsageError(f"node {name} is being emptied already", fix="Wait, or withdraw it.")
        if name not in self.begun:
            raise UsageError(f"the round does not empty {name} any more", fix=OPEN_AGAIN)
        patch = taint_patch(node, EMPTYING_TAINT, why, value=APPROVED)
        assert patch is not None, "a node without the taint gets it"
        return patch

    def tried(self, name: str) -> MoveOutcome:
        """Return what emptying the node would do, by the server's dry run."""
        return outcome_of(name, lambda: self._send(self.mark(name, ""), dry_run=True))

    def approved(self, row: LedgerSubject, reason: str) -> MoveOutcome:
        """Ledger, cluster, ledger; row: of the node."""
        why = f"node {row.name} is emptied"
        events = ActEvents(MoveEvent.NODE_ASKED, MoveEvent.NODE_APPROVED, MoveEvent.NODE_REFUSED)
        act = partial(row.carry_out, events, lambda: self.mark(row.name, why), self._send, reason)
        return outcome_of(row.name, act)

    def withdrawn(self, row: LedgerSubject, reason: str) -> MoveOutcome:
        """The same for the end of the mark; NoData for a node without one."""
        patch = untaint_patch(self._node(row.name), (EMPTYING_TAINT,), f"node {row.name} is given back")
        if patch is None:
            raise NoData(f"node {row.name} is not being emptied", fix="Its mark was taken away already.")
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
