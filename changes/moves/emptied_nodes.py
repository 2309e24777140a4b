"""EDGE: nodes that a person approves to be emptied: marked and given back with their rights, through the ledger.

The manager goes on with a node that bears the mark; it takes the mark away when somebody needs the node.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from changes.audited_acts import LedgerSubject, sent
from cotenant.core.adapters.kube import KubeClient, Writer
from cotenant.core.model.errors import ClusterUnreachable, CotenantError, NoData, UsageError
from cotenant.core.model.kubernetes.intent import Patch
from cotenant.core.model.rebalance.move_service import MoveEvent, MoveOutcome
from scheduler_ext.rebalance.marks import APPROVED, TaintedNode, marked, node_address, unmarked

FIELD_MANAGER: Final = "cotenant-approver"
LOOK_AGAIN: Final = "Look at the page again: a round is decided every time."


@dataclass(frozen=True, slots=True)
class EmptiedNodes:
    """Nodes that the round would begin, for a person whose client this is."""

    client: KubeClient
    begun: Collection[str] = ()

    def mark(self, name: str, why: str) -> Patch:
        """The mark of a node as it is now; UsageError when the round does not begin it any more, or it has one."""
        node = self._node(name)
        patch = marked(node, APPROVED, why)
        if patch is None:
            raise UsageError(f"node {name} is being emptied already", fix="Wait, or withdraw it.")
        if name not in self.begun:
            raise UsageError(f"the round does not empty {name} any more", fix=LOOK_AGAIN)
        return patch

    def tried(self, name: str) -> MoveOutcome:
        """Dry run."""
        try:
            Writer(self.client, FIELD_MANAGER).send(self.mark(name, ""), dry_run=True)
        except ClusterUnreachable:
            raise
        except CotenantError as error:
            return MoveOutcome(name, error=error.message, fix=error.fix)
        return MoveOutcome(name)

    def approved(self, row: LedgerSubject, groups: Sequence[str], reason: str) -> MoveOutcome:
        """Ledger, cluster, ledger; row: of the node."""
        why = f"node {row.name} is emptied{f' ({reason})' if reason else ''}"
        try:
            patch = self.mark(row.name, why)
            row.write(MoveEvent.NODE_ASKED, why, groups, sent(patch))
            Writer(self.client, FIELD_MANAGER).send(patch)
        except ClusterUnreachable:
            raise  # whether it was done is unknown; the node says
        except CotenantError as error:
            row.write(MoveEvent.NODE_REFUSED, error.message, groups)
            return MoveOutcome(row.name, error=error.message, fix=error.fix)
        row.write(MoveEvent.NODE_APPROVED, why, groups)
        return MoveOutcome(row.name)

    def withdrawn(self, row: LedgerSubject, groups: Sequence[str], reason: str) -> MoveOutcome:
        """The same for the end of the mark; NoData for a node without one."""
        why = f"node {row.name} is given back{f': {reason}' if reason else ''}"
        patch = unmarked(self._node(row.name), why)
        if patch is None:
            raise NoData(f"node {row.name} is not being emptied", fix="Its mark was taken away already.")
        row.write(MoveEvent.NODE_ASKED, why, groups, sent(patch))
        try:
            Writer(self.client, FIELD_MANAGER).send(patch)
        except ClusterUnreachable:
            raise
        except CotenantError as error:
            row.write(MoveEvent.NODE_REFUSED, f"{why}: {error.message}", groups)
            raise
        row.write(MoveEvent.NODE_WITHDRAWN, why, groups)
        return MoveOutcome(row.name)

    def _node(self, name: str) -> TaintedNode:
        node = self.client.get(node_address(name).path, TaintedNode)
        if node is None:
            raise NoData(f"there is no node {name}", fix=LOOK_AGAIN)
        return node
