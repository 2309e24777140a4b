"""Joins the plans of both plugins for one round, so that at most one plugin changes a node. Pure.

LowNodeLoad has precedence: while it moves pods, no node's emptying starts or continues. A tainted node belongs to
HighNodeLoad (`decide` ignores it); a node that pods are moved from or to is not emptied (`EmptyingArgs.busy`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from cotenant.base.reasons import Reason
from cotenant.scheduler_ext.rebalance.emptying.decide import NEEDED
from cotenant.scheduler_ext.rebalance.plan import MarkChange, NodeMark, RebalancePlan


@dataclass(frozen=True, slots=True)
class RoundMode:
    """The permissions of a round. Nothing new starts unless `settled`: earlier moves have ended and metrics show them.

    `relieves` and `empties` say which plugin may act. Nodes that people have approved are emptied in any case.
    """

    settled: bool
    relieves: bool
    empties: bool


@dataclass(frozen=True, slots=True)
class RoundWrites:
    """The writes of a round: taints that are added or removed, and the plan whose moves become jobs."""

    marks: tuple[NodeMark, ...] = ()
    plan: RebalancePlan | None = None

    @property
    def released(self) -> frozenset[str]:
        """Nodes whose emptying ends with this round."""
        return frozenset(mark.node for mark in self.marks if mark.change is MarkChange.TAKEN)


def writes_of(relief: RebalancePlan | None, emptying: RebalancePlan | None, mode: RoundMode) -> RoundWrites:
    """Return the writes of one round for the plans of LowNodeLoad (relief) and HighNodeLoad (emptying).

    A plan is None if its plugin did not run. Taints of nodes that are no longer emptied are removed; while earlier
    moves are unsettled, only where the capacity is needed. If emptying is off, taints that no person approved are
    removed too. Once earlier moves are settled, relief moves pods; if it has no moves, emptying starts or continues.
    """
    existing = [mark for mark in emptying.marks if mark.change is not MarkChange.SET] if emptying else []
    disallowed = [mark for mark in existing if not (mode.empties or mark.approved)]
    removed = [replace(mark, change=MarkChange.TAKEN, reason=Reason.EMPTYING_OFF) for mark in disallowed]
    removed += [mark for mark in existing if mark not in disallowed and _is_taken(mark, mode)]
    if not mode.settled:
        return RoundWrites(tuple(removed))
    if relief is not None and relief.moves and mode.relieves:
        return RoundWrites(tuple(removed), relief)
    if emptying is None:
        return RoundWrites(tuple(removed))
    opened = [mark for mark in emptying.marks if mark.change is MarkChange.SET and mode.empties]
    marks = [*opened, *existing]
    nodes = {mark.node for mark in marks} - {mark.node for mark in removed}
    return RoundWrites(
        (*removed, *opened), replace(emptying, moves=tuple(move for move in emptying.moves if move.source in nodes))
    )


def _is_taken(mark: NodeMark, mode: RoundMode) -> bool:
    """Return whether a taint is removed; while pods are moved, only for pods that need the node's capacity."""
    return mark.change is MarkChange.TAKEN and (mode.settled or mark.reason in NEEDED)
